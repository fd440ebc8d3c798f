//! Sends what a session owes admission; outlives the session until everything is answered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_door::auth::Principal;
use roadstead_door::commands::Command;
use roadstead_door::deadline::Deadline;
use roadstead_proto::internal::{EndSession, SandboxIdentity, SessionReadiness, SessionResult};
use roadstead_proto::subject::{self, Report as Name};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::bridge::Bridge;
use crate::end::End;
use crate::report::{END_NUMBER, Report, Reports, Step, Told};

/// How long one attempt waits for its answer. There is no limit on the number of attempts.
const ATTEMPT: Duration = Duration::from_secs(20);

/// What a session owes.
pub(crate) struct Reporter {
    session_id: Uuid,
    /// Without the token: session reports are fenced by the session, and the session outlives its token.
    principal: Principal,
    reports: Mutex<Reports>,
    changed: Notify,
    superseded: CancellationToken,
}

impl Reporter {
    pub(crate) fn new(session_id: Uuid, identity: &SandboxIdentity) -> Arc<Self> {
        let identity = SandboxIdentity { token: String::new(), ..identity.clone() };
        Arc::new(Self {
            session_id,
            principal: Principal::Sandbox(Arc::new(identity)),
            reports: Mutex::default(),
            changed: Notify::new(),
            superseded: CancellationToken::new(),
        })
    }

    pub(crate) const fn session_id(&self) -> Uuid {
        self.session_id
    }

    pub(crate) fn registration_settled(&self) {
        self.change(Reports::registration_settled);
    }

    pub(crate) fn registration_refused(&self) {
        self.change(Reports::registration_refused);
    }

    pub(crate) fn result(&self, result: SessionResult) {
        self.change(|reports| reports.result(result));
    }

    pub(crate) fn readiness(&self, readiness: SessionReadiness) {
        self.change(|reports| reports.readiness(readiness));
    }

    pub(crate) fn end(&self, end: End) {
        self.change(|reports| reports.end(end.word(), Instant::now() + end.patience()));
    }

    /// Waits until admission says that the session is not the sandbox's.
    pub(crate) async fn superseded(&self) {
        self.superseded.cancelled().await;
    }

    /// Sends until nothing is owed any more.
    pub(crate) async fn run(self: Arc<Self>, bridge: Arc<Bridge>) {
        loop {
            let step = self.lock().step(Instant::now());
            match step {
                Step::Finished => return,
                Step::Wait(None) => self.changed.notified().await,
                Step::Wait(Some(until)) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(until.into()) => {}
                },
                Step::Send(report) => {
                    // Boxed, so that a session that owes nothing is small.
                    let told = Box::pin(self.send(&bridge, report)).await;
                    if self.lock().told(told, Instant::now(), rand::random()) {
                        self.superseded.cancel();
                    }
                }
            }
        }
    }

    async fn send(&self, bridge: &Bridge, report: Report) -> Told {
        let session_id = self.session_id.to_string();
        let (name, request) = match report {
            Report::Result(result) => (Name::SessionResult, result.encode_to_vec()),
            Report::Readiness(readiness) => (Name::SessionReadiness, readiness.encode_to_vec()),
            Report::End { reason } => {
                let end = EndSession { session_id, number: END_NUMBER, reason: reason.to_owned() };
                (Name::EndSession, end.encode_to_vec())
            }
        };
        let command = Command {
            subject: subject::report(name),
            method: name.name(),
            principal: self.principal.clone(),
            request: request.into(),
            deadline: Deadline::after(ATTEMPT),
            traceparent: String::new(),
        };
        let told = match bridge.commands.call(command).await {
            Ok(_) => Told::Recorded,
            Err(status) => told(&status),
        };
        bridge.metrics.reported(name.name(), word(told));
        if told == Told::Refused {
            tracing::error!(session_id = %self.session_id, report = name.name(), "a report was refused");
        }
        told
    }

    fn change(&self, change: impl FnOnce(&mut Reports)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a status says of a report.
fn told(status: &Status) -> Told {
    match status.code() {
        // The session is another one's by now, or the sandbox is gone and its sessions with it.
        Code::Aborted | Code::NotFound => Told::NotTheSession,
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => Told::Refused,
        _ => Told::Again,
    }
}

const fn word(told: Told) -> &'static str {
    match told {
        Told::Recorded => "recorded",
        Told::NotTheSession => "not_the_session",
        Told::Refused => "refused",
        Told::Again => "again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_and_what_will_not_is_not() {
        let of = |code| told(&Status::new(code, ""));
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted, Code::Internal, Code::Unknown]
        {
            assert_eq!(of(code), Told::Again, "{code:?}");
        }
        assert_eq!(of(Code::Aborted), Told::NotTheSession);
        assert_eq!(of(Code::NotFound), Told::NotTheSession);
        assert_eq!(of(Code::InvalidArgument), Told::Refused);
    }
}
