//! The calls of supervisors.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use prost::Message as _;
use roadstead_door::auth::Principal;
use roadstead_door::commands::Command;
use roadstead_door::{Call, Door, Health, Reply};
use roadstead_proto::api::v1::{HealthResponse, RefreshSandboxTokenResponse, ServiceStatus};
use roadstead_proto::internal::SandboxIdentity;
use roadstead_proto::method::Method;
use roadstead_proto::subject::{self, ConfigCall, Report};
use roadstead_service_kit::readiness::Readiness;
use roadstead_service_kit::sandbox_token::NO_GENERATION;
use serde_json::{Map, json};
use tonic::Status;
use uuid::Uuid;

use crate::bridge::Bridge;
use crate::route::{self, Route};
use crate::{logs, observe, open, own, read};

/// The supervisors' door.
pub(crate) struct Entrance {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) readiness: Readiness,
}

impl Door for Entrance {
    async fn unary(&self, call: Call, request: Bytes) -> Result<Reply, Status> {
        match route::of(call.method) {
            Route::Health => Ok(Reply::new(health().encode_to_vec())),
            Route::Readiness => observe::observe(&self.bridge, &call, sandbox(&call)?, request).await,
            Route::Report(report) => self.report(report, call, request).await,
            Route::Config(asked) => self.config(asked, &call, request).await,
            Route::NotServed(why) => Err(not_served(call.method, why)),
            Route::Forbidden(why) => Err(Status::permission_denied(why)),
            Route::Session | Route::Logs => Err(Status::internal("an internal error")),
        }
    }

    async fn stream(
        &self,
        call: Call,
        request: Request<tonic::body::Body>,
    ) -> Result<Response<tonic::body::Body>, Status> {
        match route::of(call.method) {
            Route::Session => open::connect(&self.bridge, &call, request).await,
            Route::Logs => logs::push(&self.bridge, &call, request).await,
            Route::NotServed(why) => Err(not_served(call.method, why)),
            Route::Forbidden(why) => Err(Status::permission_denied(why)),
            Route::Health | Route::Readiness | Route::Report(_) | Route::Config(_) => {
                Err(Status::internal("an internal error"))
            }
        }
    }

    fn health(&self) -> Health {
        let waiting_for = self.readiness.waiting_for();
        let broker = if self.bridge.bus.is_connected() { "ok" } else { "error" };
        let checks = Map::from_iter([
            ("broker".to_owned(), json!({"status": broker})),
            ("sessions".to_owned(), json!({"status": "ok", "held": self.bridge.sessions.len()})),
        ]);
        Health { ready: waiting_for.is_empty() && !self.bridge.drain.is_cancelled(), checks }
    }
}

impl Entrance {
    /// A mutation of a sandbox: admission verifies its token again.
    async fn report(&self, report: Report, call: Call, request: Bytes) -> Result<Reply, Status> {
        let identity = sandbox(&call)?;
        // Recognised for this one call only.
        if report == Report::IssueSandboxToken && identity.generation != NO_GENERATION {
            return Err(Status::permission_denied("only the bootstrap identity of a platform may call this method"));
        }
        own::check(call.method, &request, identity)?;
        let principal = Principal::Sandbox(Arc::clone(identity));
        let sandbox_id = identity.sandbox_id.clone();
        let reply = self
            .bridge
            .commands
            .call(Command {
                subject: subject::report(report),
                method: report.name(),
                principal,
                request,
                deadline: call.deadline,
                traceparent: call.traceparent,
            })
            .await?;
        if report == Report::RefreshSandboxToken {
            self.refreshed(&sandbox_id, &reply.message);
        }
        Ok(reply)
    }

    /// The sandbox's sessions may go on until the new token expires.
    fn refreshed(&self, sandbox_id: &str, response: &Bytes) {
        let expires =
            RefreshSandboxTokenResponse::decode(response.clone()).ok().and_then(|refreshed| expiry(&refreshed));
        if let (Ok(sandbox_id), Some(expires)) = (Uuid::try_parse(sandbox_id), expires) {
            self.bridge.sessions.token_refreshed(sandbox_id, expires);
        }
    }

    async fn config(&self, asked: ConfigCall, call: &Call, request: Bytes) -> Result<Reply, Status> {
        let identity = sandbox(call)?;
        own::check(call.method, &request, identity)?;
        read::ask(&self.bridge, asked, identity, request, call.deadline, &call.traceparent).await.map(Reply::new)
    }
}

/// The caller, who is a sandbox: the chain of this door knows nobody else.
fn sandbox(call: &Call) -> Result<&Arc<SandboxIdentity>, Status> {
    match call.principal()? {
        Principal::Sandbox(identity) => Ok(identity),
        Principal::User(_) => Err(Status::permission_denied("only a sandbox may call this method here")),
    }
}

fn not_served(method: Method, why: &str) -> Status {
    Status::unimplemented(format!("{method} {why}"))
}

fn health() -> HealthResponse {
    HealthResponse { status: ServiceStatus::Healthy.into(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

fn expiry(refreshed: &RefreshSandboxTokenResponse) -> Option<SystemTime> {
    let time = refreshed.expiration_time?;
    let seconds = u64::try_from(time.seconds).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}
