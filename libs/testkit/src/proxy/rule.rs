//! What is done to single messages.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Direction;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Drop,
    Halt,
}

#[derive(Debug)]
struct Rule {
    direction: Direction,
    prefix: String,
    action: Action,
    left: usize,
}

/// The rules in force, in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<Vec<Rule>>);

impl Rules {
    pub(crate) fn add(&self, direction: Direction, prefix: &str, action: Action, left: usize) {
        self.lock().push(Rule { direction, prefix: prefix.to_owned(), action, left });
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// What is to be done to a message on `subject`; counts it.
    pub(crate) fn take(&self, direction: Direction, subject: &str) -> Option<Action> {
        let mut rules = self.lock();
        let at = rules.iter().position(|rule| rule.direction == direction && subject.starts_with(&rule.prefix))?;
        let action = rules[at].action;
        rules[at].left -= 1;
        if rules[at].left == 0 {
            rules.remove(at);
        }
        Some(action)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_counts_down_and_is_gone() {
        let rules = Rules::default();
        rules.add(Direction::ToClient, "a.", Action::Drop, 2);
        assert_eq!(rules.take(Direction::ToServer, "a.b"), None);
        assert_eq!(rules.take(Direction::ToClient, "b"), None);
        assert_eq!(rules.take(Direction::ToClient, "a.b"), Some(Action::Drop));
        assert_eq!(rules.take(Direction::ToClient, "a.c"), Some(Action::Drop));
        assert_eq!(rules.take(Direction::ToClient, "a.b"), None);
    }
}
