//! Whether bucket and database are the ones that were seen before.

use roadstead_bus::bucket::Incarnation;

/// What was seen of the bucket.
#[derive(Debug, Default)]
pub(super) struct Life(Option<(Incarnation, u64)>);

/// What a look at the bucket tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing is known to be lost.
    Nothing,
    /// It was made anew or has less in it than before, or the database is in another epoch: no entry is to be trusted.
    Loss,
}

impl Life {
    /// Takes note of the bucket and of the database's epoch as they are now. The first look tells nothing.
    pub(super) fn see(&mut self, now: &Incarnation, epoch: u64) -> Seen {
        let lost = self
            .0
            .as_ref()
            .is_some_and(|(before, of)| before.created != now.created || before.last > now.last || *of != epoch);
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
            assert_eq!(life.see(&at("monday", last), 1), Seen::Nothing);
        }
    }

    #[test]
    fn a_bucket_made_anew_or_rolled_back_is_a_loss_once() {
        let mut life = Life::default();
        life.see(&at("monday", 5), 1);
        assert_eq!(life.see(&at("tuesday", 9), 1), Seen::Loss);
        assert_eq!(life.see(&at("tuesday", 9), 1), Seen::Nothing);
        assert_eq!(life.see(&at("tuesday", 8), 1), Seen::Loss);
        assert_eq!(life.see(&at("tuesday", 8), 1), Seen::Nothing);
    }
    #[test]
    fn another_epoch_of_the_database_is_a_loss_once() {
        let mut life = Life::default();
        life.see(&at("monday", 5), 1);
        assert_eq!(life.see(&at("monday", 6), 2), Seen::Loss);
        assert_eq!(life.see(&at("monday", 7), 2), Seen::Nothing);
    }
}
