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

/// What is due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    late: bool,
    demanded: Option<Demanded>,
}

/// What was demanded of the entries, and for which pass.
#[derive(Clone, Copy, Debug)]
struct Demanded {
    pace: Pace,
    losses: u64,
    at_least: u64,
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

    /// The sequence that every entry must have at least after a pass; `losses`: how many were seen before it. None: a
    /// number is to be drawn now, and [told](Self::demands).
    ///
    /// A pass that did not come to its end demands the same again: what it has written stays as it is, however often
    /// another entry keeps it from its end.
    pub(crate) fn at_least(&self, pace: Pace, losses: u64) -> Option<u64> {
        match (pace, self.demanded) {
            (Pace::Slow, _) => Some(0),
            (_, Some(demanded)) if (demanded.pace, demanded.losses) == (pace, losses) => Some(demanded.at_least),
            _ => None,
        }
    }

    /// This was drawn for a pass, after so many losses were seen.
    pub(crate) fn demands(&mut self, pace: Pace, losses: u64, at_least: u64) {
        self.demanded = Some(Demanded { pace, losses, at_least });
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

    #[test]
    fn a_pass_that_is_tried_again_demands_the_same_until_something_else_is_lost() {
        let mut due = Due::default();
        let mut drawn = 0;
        let mut demanded = |pace, losses| {
            due.at_least(pace, losses).unwrap_or_else(|| {
                drawn += 1;
                due.demands(pace, losses, drawn);
                drawn
            })
        };
        let passes = [
            (Pace::Slow, 0),
            (Pace::Full, 1),
            (Pace::Full, 1),
            (Pace::Full, 2),
            (Pace::Late, 2),
            (Pace::Late, 2),
            (Pace::Slow, 2),
            (Pace::Full, 3),
        ];
        assert_eq!(passes.map(|(pace, losses)| demanded(pace, losses)), [0, 1, 1, 2, 3, 3, 0, 4]);
    }
}
