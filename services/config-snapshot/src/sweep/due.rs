//! How the next pass goes, and what it demands of entries. Pure.

/// How a pass goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Slowly; an entry that says the same stays.
    Slow,
    /// At full speed, after a loss: every entry is to be newer than the pass, also one that says the same.
    Full,
    /// The one that comes after that and a rest: slowly, and it demands the same once more.
    ///
    /// A builder that read an entry before a loss may write after it, even behind the pass at full speed: a broker that
    /// was rolled back hands out the same revisions again, so the write may fit by chance. What it writes is of a lower
    /// sequence than what followers have, and if that comes to be what the database says, nobody writes it again. By the
    /// time of this pass no build of before the loss is under way any more.
    Late,
}

impl Pace {
    /// Whether every entry must have a higher sequence afterwards than any that was drawn before the pass.
    pub(crate) fn demands_newer(self) -> bool {
        self != Self::Slow
    }
}

/// What is due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    late: bool,
}

impl Due {
    /// The next pass; `lost`: something was lost, and was not swept after yet.
    pub(crate) fn next(&self, lost: bool) -> Pace {
        match (lost, self.late) {
            (true, _) => Pace::Full,
            (false, true) => Pace::Late,
            (false, false) => Pace::Slow,
        }
    }

    /// A pass has come to its end, or has not.
    pub(crate) fn ended(&mut self, pace: Pace, whole: bool) {
        match pace {
            Pace::Full if whole => self.late = true,
            Pace::Late if whole => self.late = false,
            Pace::Slow | Pace::Full | Pace::Late => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_swept_after_at_once_and_once_more_after_a_rest() {
        let mut due = Due::default();
        let mut turn = |lost, whole| {
            let pace = due.next(lost);
            due.ended(pace, whole);
            pace
        };
        let passes = [(false, true), (true, false), (true, true), (false, false), (false, true), (false, true)];
        let paces = passes.map(|(lost, whole)| turn(lost, whole));
        assert_eq!(paces, [Pace::Slow, Pace::Full, Pace::Full, Pace::Late, Pace::Late, Pace::Slow]);
    }
}
