//! The end of the main process, told in a session.

use tonic::Status;

use super::retry::Retry;
use super::{Done, Session};
use crate::calls;
use crate::client::Client;

impl Session {
    /// It has ended, if there is a code.
    pub(super) fn exited(&mut self, code: Option<i32>) {
        self.exit = if code.is_some() { Retry::now() } else { Retry::never() };
    }

    pub(super) fn tell_exit(&mut self, client: &Client) {
        self.exit.begun();
        let Some(code) = *client.exit.borrow() else { return };
        let call = calls::tell_exit(self.api.clone(), client.token.clone(), client.settings.instance_id, code);
        self.calls.spawn(async { Done::ExitTold(call.await) });
    }

    pub(super) fn exit_told(&mut self, told: Result<(), Status>) {
        match told {
            Ok(()) => self.over = true,
            Err(status) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the exit could not be reported");
                self.exit.failed();
            }
        }
    }
}
