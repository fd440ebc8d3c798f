//! What a [`Supervisor`](crate::Supervisor) makes of updates, without its connection and its folder: for models of those
//! who speak with it.

use roadstead_proto::api::v1::{ConfigUpdate, ConfigUpdateResult};

use crate::applied::Applied;
use crate::behaviour::Answer;
use crate::verdict::{Ending, answer};

/// One supervisor's mind, over all its sessions.
#[derive(Debug, Default)]
pub struct Judge {
    applied: Applied,
}

/// What became of an update.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What the supervisor answers.
    pub answer: ConfigUpdateResult,
    /// Its halves are in effect now, or were before.
    pub installed: bool,
    /// No configuration is in effect any more.
    pub closed: bool,
}

impl Judge {
    /// Another session begins.
    pub fn begin_session(&mut self) {
        self.applied.begin_session();
    }

    /// Takes in an update and puts it into effect, or answers as a script says.
    pub fn take(&mut self, update: &ConfigUpdate, script: Option<Answer>) -> Judged {
        let ending = script.map_or_else(|| self.apply(update), Ending::Scripted);
        Judged {
            answer: answer(update, &ending, ""),
            installed: matches!(ending, Ending::Installed | Ending::Duplicate),
            closed: ending == Ending::Closed,
        }
    }

    fn apply(&mut self, update: &ConfigUpdate) -> Ending {
        match self.applied.plan(update) {
            Ok(plan) => self.applied.done(plan, update),
            Err(ending) => ending,
        }
    }
}
