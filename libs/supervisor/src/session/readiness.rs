//! What is said of the sandbox's providers while a session lasts.

use std::time::Duration;

use tonic::{Code, Status};

use super::{Done, Session};
use crate::calls;
use crate::client::Client;

/// Between reports, when the bridge does not say how often.
const REPORT: Duration = Duration::from_secs(5);

impl Session {
    /// Says what is in effect; the next time when that was heard.
    pub(super) fn report_readiness(&mut self, client: &Client) {
        let status = client.status.borrow();
        // Nothing yet: the first update brings it.
        self.readiness.begun();
        if let Some(observation) = self.said.next(status.config.as_ref(), status.environment.as_ref()) {
            let call = calls::report_readiness(self.api.clone(), client.token.clone(), observation);
            self.saying = true;
            self.calls.spawn(async { Done::ReadinessHeard(call.await) });
        }
    }

    /// Says it at once if something else is in effect than was said.
    pub(super) fn readiness_changed(&mut self, client: &Client) {
        let status = client.status.borrow();
        let current = self.said.is_current(status.config.as_ref(), status.environment.as_ref());
        if client.settings.reports_readiness && !self.saying && !current {
            self.readiness.hurry();
        }
    }

    pub(super) fn readiness_heard(&mut self, client: &Client, heard: Result<Option<Duration>, Status>) {
        self.saying = false;
        match heard {
            Ok(interval) => self.readiness.again_in(interval.unwrap_or(REPORT)),
            // This bridge does not take it: no repeats, only what is new after the next update.
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "readiness was not taken");
                self.readiness.failed();
            }
        }
        if self.readiness.is_set() {
            self.readiness_changed(client);
        }
    }
}
