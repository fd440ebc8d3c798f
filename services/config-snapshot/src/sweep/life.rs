//! Whether bucket and database are the ones that were seen before.

use roadstead_bus::bucket::Incarnation;

/// What was seen of the bucket.
#[derive(Debug, Default)]
pub(crate) struct Life(Option<(Incarnation, u64)>);

/// What a look at the bucket tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing is known to be lost.
    Nothing,
    /// It was made anew or has less in it than before, or the database is in another epoch: no entry is to be trusted.
    Loss,
}

impl Life {
    /// Whether nothing was seen yet.
    pub(crate) fn is_unknown(&self) -> bool {
        self.0.is_none()
    }

    /// Takes note of the bucket and of the database's epoch as they are now. The first look tells only whether an entry
    /// is of a `former` life of the database.
    pub(crate) fn see(&mut self, now: &Incarnation, epoch: u64, former: bool) -> Seen {
        let lost = match &self.0 {
            None => former,
            Some((before, of)) => before.created != now.created || before.last > now.last || *of != epoch,
        };
        self.0 = Some((now.clone(), epoch));
        if lost { Seen::Loss } else { Seen::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use roadstead_bus::bucket::Revision;

    use super::*;

    fn at(created: &str, last: u64) -> Incarnation {
        Incarnation { created: created.to_owned(), last: Revision(last) }
    }

    #[test]
    fn a_bucket_that_grows_has_lost_nothing() {
        let mut life = Life::default();
        for last in [0, 0, 5, 9, 9] {
            assert_eq!(life.see(&at("monday", last), 1, false), Seen::Nothing);
        }
    }

    #[test]
    fn a_bucket_made_anew_or_rolled_back_is_a_loss_once() {
        let mut life = Life::default();
        life.see(&at("monday", 5), 1, false);
        assert_eq!(life.see(&at("tuesday", 9), 1, false), Seen::Loss);
        assert_eq!(life.see(&at("tuesday", 9), 1, false), Seen::Nothing);
        assert_eq!(life.see(&at("tuesday", 8), 1, false), Seen::Loss);
        assert_eq!(life.see(&at("tuesday", 8), 1, false), Seen::Nothing);
    }

    #[test]
    fn another_epoch_of_the_database_is_a_loss_once() {
        let mut life = Life::default();
        life.see(&at("monday", 5), 1, false);
        assert_eq!(life.see(&at("monday", 6), 2, false), Seen::Loss);
        assert_eq!(life.see(&at("monday", 7), 2, false), Seen::Nothing);
    }

    #[test]
    fn entries_of_a_former_life_at_the_first_look_are_a_loss_once() {
        let mut life = Life::default();
        assert!(life.is_unknown());
        assert_eq!(life.see(&at("monday", 5), 2, true), Seen::Loss);
        assert!(!life.is_unknown());
        assert_eq!(life.see(&at("monday", 6), 2, true), Seen::Nothing);
    }
}
