//! What is done to single messages.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Direction;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Drop,
    Halt,
    Lose {
        /// No more are to be lost.
        last: bool,
    },
}

#[derive(Debug)]
struct Rule {
    direction: Direction,
    prefix: String,
    action: Action,
    /// Messages to let pass before.
    skip: usize,
    left: usize,
}

/// The rules in force, in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<Vec<Rule>>);

impl Rules {
    pub(crate) fn add(&self, direction: Direction, prefix: &str, action: Action, left: usize) {
        self.add_after(0, direction, prefix, action, left);
    }

    pub(crate) fn add_after(&self, skip: usize, direction: Direction, prefix: &str, action: Action, left: usize) {
        self.lock().push(Rule { direction, prefix: prefix.to_owned(), action, skip, left });
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// What is to be done to a message on `subject`; counts it.
    pub(crate) fn take(&self, direction: Direction, subject: &str) -> Option<Action> {
        let mut rules = self.lock();
        let at = rules.iter().position(|rule| rule.direction == direction && begins_with(subject, &rule.prefix))?;
        let rule = &mut rules[at];
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.left -= 1;
        let (last, mut action) = (rule.left == 0, rule.action);
        if let Action::Lose { last: is_last } = &mut action {
            *is_last = last;
        }
        if last {
            rules.remove(at);
        }
        Some(action)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `subject` begins with `prefix`, in which `*` stands for any token.
fn begins_with(subject: &str, prefix: &str) -> bool {
    let mut tokens = subject.split('.');
    let mut wanted = prefix.split('.').peekable();
    while let Some(want) = wanted.next() {
        let Some(token) = tokens.next() else { return false };
        let is_last = wanted.peek().is_none();
        if want != "*" && want != token && !(is_last && token.starts_with(want)) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_may_end_within_a_token_and_leave_tokens_open() {
        for (prefix, subject, so) in [
            ("a.b", "a.b.c", true),
            ("a.", "a.b", true),
            ("a.", "a", false),
            ("_IN", "_INBOX.x", true),
            ("a.b", "a.x", false),
            ("_INBOX.*.answer", "_INBOX.7.answer.9", true),
            ("_INBOX.*.answer", "_INBOX.7.reply.9", false),
            ("a.b.c", "a.b", false),
        ] {
            assert_eq!(begins_with(subject, prefix), so, "{prefix} {subject}");
        }
    }

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
