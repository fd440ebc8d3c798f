//! What the supervisor says.

use std::time::Instant;

use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{ConfigUpdateResult, SupervisorMessage};
use tonic::{Code, Status};

use super::{MISSING_HEARTBEATS, Session};
use crate::end::End;

impl Session {
    pub(super) fn heard(&mut self, message: Result<Option<SupervisorMessage>, Status>) -> Option<End> {
        let now = Instant::now();
        let message = match message {
            Ok(Some(message)) => message,
            Ok(None) => return Some(End::Closed),
            Err(status) => {
                let unreadable = matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted | Code::Internal);
                return Some(if unreadable { End::Unreadable } else { End::Lost });
            }
        };
        self.silent_at = now + self.bridge.times.heartbeat * MISSING_HEARTBEATS;
        match message.payload {
            Some(Payload::Hello(hello)) => {
                Some(if hello.sandbox_id == self.sandbox_id.to_string() { End::Repeated } else { End::Foreign })
            }
            Some(Payload::ConfigUpdateResult(answer)) => {
                self.answered(&answer, now);
                None
            }
            Some(Payload::Heartbeat(_)) => None,
            // Relays are not served yet; anything else is from a later version.
            _ => {
                self.bridge.metrics.not_understood.inc();
                tracing::debug!(sandbox_id = %self.sandbox_id, "a message of a kind that is not served; left out");
                None
            }
        }
    }

    fn answered(&mut self, answer: &ConfigUpdateResult, now: Instant) {
        let metrics = &self.bridge.metrics;
        metrics.answered(answer.outcome());
        match self.outbox.hear(answer, now) {
            Some((reaction, result)) if !reaction.unknown => {
                if reaction.report {
                    self.reporter.result(result);
                }
                if reaction.reread {
                    self.reread_at = now;
                }
            }
            _ => {
                metrics.unknown_results.inc();
                tracing::debug!(sandbox_id = %self.sandbox_id, "an answer to an unknown update");
            }
        }
    }
}
