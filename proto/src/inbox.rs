//! Inboxes: where a process receives answers. All of a role's begin with its prefix, then the process's id; the broker
//! lets only that role read there (D9).

use uuid::Uuid;

use crate::role::Role;
use crate::subject::{Malformed, tokens_after, uuid};

/// The inboxes of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inbox {
    pub role: Role,
    pub process_id: Uuid,
}

impl Inbox {
    /// Everything that begins here belongs to this process.
    #[must_use]
    pub fn prefix(self) -> String {
        format!("{}.{}", self.role.inbox_prefix(), self.process_id)
    }

    /// Where the answer to a command is wanted.
    #[must_use]
    pub fn answer(self, command_id: Uuid) -> String {
        format!("{}.answer.{command_id}", self.prefix())
    }

    /// Every answer to this process.
    #[must_use]
    pub fn answers(self) -> String {
        format!("{}.answer.*", self.prefix())
    }

    /// Every answer to any process of the role: what admission may publish to.
    #[must_use]
    pub fn all_answers(role: Role) -> String {
        format!("{}.*.answer.*", role.inbox_prefix())
    }

    /// Where the reply to a request is wanted.
    #[must_use]
    pub fn reply(self, number: u64) -> String {
        format!("{}.reply.{number}", self.prefix())
    }

    /// Every reply to this process.
    #[must_use]
    pub fn replies(self) -> String {
        format!("{}.reply.*", self.prefix())
    }

    /// Where a pull loop receives messages of a stream and what the broker says of its requests.
    #[must_use]
    pub fn pull(self, number: u64) -> String {
        format!("{}.pull.{number}", self.prefix())
    }

    /// Where a process sends itself a message to learn that what it asked for before has taken effect.
    #[must_use]
    pub fn barrier(self, number: u64) -> String {
        format!("{}.barrier.{number}", self.prefix())
    }

    /// Every barrier of this process.
    #[must_use]
    pub fn barriers(self) -> String {
        format!("{}.barrier.*", self.prefix())
    }

    /// Every barrier of any process of the role: what the role may publish to.
    #[must_use]
    pub fn all_barriers(role: Role) -> String {
        format!("{}.*.barrier.*", role.inbox_prefix())
    }

    /// Reads an answer's subject: the inbox and the command it answers.
    ///
    /// # Errors
    ///
    /// If it is not an answer inbox of that role. Whoever answers checks this, so that a command from one door cannot
    /// direct its answer elsewhere.
    pub fn parse_answer(role: Role, subject: &str) -> Result<(Self, Uuid), Malformed> {
        let [process_id, kind, command_id] = tokens_after(subject, &format!("{}.", role.inbox_prefix()))?;
        if kind != "answer" {
            return Err(Malformed);
        }
        Ok((Self { role, process_id: uuid(process_id)? }, uuid(command_id)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn answers_survive_a_round_trip(
            role in proptest::sample::select(&Role::ALL[..]), process in any::<u128>(), command in any::<u128>(),
        ) {
            let inbox = Inbox { role, process_id: Uuid::from_u128(process) };
            let command = Uuid::from_u128(command);
            prop_assert_eq!(Inbox::parse_answer(role, &inbox.answer(command)), Ok((inbox, command)));
        }

        #[test]
        fn other_text_is_refused(text in ".*") {
            prop_assert!(Inbox::parse_answer(Role::Edge, &text).is_err());
        }
    }

    #[test]
    fn an_inbox_of_another_role_is_refused() {
        let inbox = Inbox { role: Role::SupervisorBridge, process_id: Uuid::nil() };
        assert_eq!(Inbox::parse_answer(Role::Edge, &inbox.answer(Uuid::nil())), Err(Malformed));
        assert_eq!(Inbox::parse_answer(Role::SupervisorBridge, &inbox.barrier(1)), Err(Malformed));
    }
}
