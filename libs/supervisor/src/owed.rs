//! What is owed to the gateway about what was asked for: the newest word, once, one after the other. Pure.

/// The newest word and how far it has been told. A word that is overtaken before it was told is never told.
#[derive(Debug)]
pub(crate) struct Owed<W> {
    /// None: there is nothing to say of what is newest.
    word: Option<W>,
    /// Rises with every word, and when one has to be told again.
    place: u64,
    /// Up to which place all is told.
    told: u64,
    telling: bool,
}

impl<W> Default for Owed<W> {
    fn default() -> Self {
        Self { word: None, place: 0, told: 0, telling: false }
    }
}

impl<W: Clone + PartialEq> Owed<W> {
    /// The newest word is this one.
    pub(crate) fn says(&mut self, word: Option<W>) {
        if word != self.word {
            self.word = word;
            self.repeat();
        }
    }

    /// What was told does not count any more.
    pub(crate) const fn repeat(&mut self) {
        self.place += 1;
    }

    /// Whether something can be told now: there is something, and no older word is on its way that could come later.
    pub(crate) const fn is_due(&self) -> bool {
        self.word.is_some() && self.told < self.place && !self.telling
    }

    /// What to tell now, and its place.
    pub(crate) fn take(&mut self) -> Option<(u64, W)> {
        let word = self.word.clone().filter(|_| self.is_due())?;
        self.telling = true;
        Some((self.place, word))
    }

    /// What was taken has been heard, or not.
    pub(crate) const fn heard(&mut self, place: u64, heard: bool) {
        self.telling = false;
        if heard {
            self.told = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_word_is_told_once_and_one_after_the_other() {
        let mut owed = Owed::default();
        assert_eq!(owed.take(), None, "nothing is said yet");
        owed.says(Some("a"));
        assert_eq!(owed.take(), Some((1, "a")));
        owed.says(Some("b"));
        owed.says(Some("c"));
        assert!(!owed.is_due(), "an older word is on its way");
        owed.heard(1, true);
        assert_eq!(owed.take(), Some((3, "c")));
        owed.heard(3, true);
        owed.says(Some("c"));
        assert_eq!(owed.take(), None, "it was told");
    }

    #[test]
    fn what_was_not_heard_or_counts_no_more_is_told_again() {
        let mut owed = Owed::default();
        owed.says(Some("a"));
        owed.take();
        owed.heard(1, false);
        assert_eq!(owed.take(), Some((1, "a")));
        owed.repeat();
        owed.heard(1, true);
        assert_eq!(owed.take(), Some((2, "a")), "it may have been heard before it ceased to count");
        owed.says(None);
        owed.heard(2, true);
        assert!(!owed.is_due());
        assert_eq!(owed.take(), None);
    }
}
