//! Whether a bucket is the one that was seen before.

use roadstead_bus::bucket::Incarnation;

/// What was seen of the bucket.
#[derive(Debug, Default)]
pub(super) struct Life(Option<Incarnation>);

/// What a look at the bucket tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing is known to be lost.
    Nothing,
    /// It was made anew, or has less in it than before.
    Loss,
}

impl Life {
    /// Takes note of the bucket as it is now. The first look tells nothing.
    pub(super) fn see(&mut self, now: &Incarnation) -> Seen {
        let lost = self.0.as_ref().is_some_and(|before| before.created != now.created || before.last > now.last);
        self.0 = Some(now.clone());
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
            assert_eq!(life.see(&at("monday", last)), Seen::Nothing);
        }
    }

    #[test]
    fn a_bucket_made_anew_or_rolled_back_is_a_loss_once() {
        let mut life = Life::default();
        life.see(&at("monday", 5));
        assert_eq!(life.see(&at("tuesday", 9)), Seen::Loss);
        assert_eq!(life.see(&at("tuesday", 9)), Seen::Nothing);
        assert_eq!(life.see(&at("tuesday", 8)), Seen::Loss);
        assert_eq!(life.see(&at("tuesday", 8)), Seen::Nothing);
    }
}
