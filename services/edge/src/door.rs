//! The edge as a door: each call goes where the route says.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Request, Response};
use roadstead_bus::Bus;
use roadstead_door::auth::Principal;
use roadstead_door::clock::Compared;
use roadstead_door::commands::{Command, Commands};
use roadstead_door::status::unavailable;
use roadstead_door::{Call, Door, Health, Reply, drain, frame};
use roadstead_proto::method::{AuthMode, Method};
use roadstead_proto::subject;
use roadstead_service_kit::readiness::Readiness;
use serde_json::{Map, json};
use tokio::sync::watch;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::activity::Activity;
use crate::route::{self, Route};
use crate::watch::Watches;
use crate::{local, read, shape};

/// What calls need.
pub(crate) struct EdgeDoor {
    pub(crate) bus: Bus,
    /// Set once the broker was reached.
    pub(crate) commands: Arc<OnceLock<Commands>>,
    pub(crate) watches: Watches,
    pub(crate) activity: Activity,
    pub(crate) readiness: Readiness,
    pub(crate) clock: watch::Receiver<Compared>,
    pub(crate) drain: CancellationToken,
    /// Largest request message, in bytes.
    pub(crate) limit: usize,
    pub(crate) bridge_address: Option<String>,
}

impl Door for EdgeDoor {
    async fn unary(&self, call: Call, request: Bytes) -> Result<Reply, Status> {
        match self.route(&call) {
            Route::Local(local) => local::answer(local, &call),
            Route::Command => {
                shape::check(call.method, &request)?;
                self.command(call, request).await
            }
            Route::Read => {
                shape::check(call.method, &request)?;
                read::ask(&self.bus, &subject::read(call.method), &call, request).await
            }
            Route::Config(config) => {
                shape::check(call.method, &request)?;
                read::ask(&self.bus, &subject::config(subject::Door::User, config), &call, request).await
            }
            Route::Logs => {
                shape::check(call.method, &request)?;
                self.activity.get_logs(&call, request).await
            }
            Route::Supervisor => Err(self.at_the_bridge(call.method)),
            Route::Watch => Err(Status::internal("this method streams")),
            Route::NotServed(why) => Err(Status::unimplemented(format!("{} {why}", call.method))),
        }
    }

    async fn stream(
        &self,
        call: Call,
        request: Request<tonic::body::Body>,
    ) -> Result<Response<tonic::body::Body>, Status> {
        match self.route(&call) {
            Route::Watch => {}
            Route::Supervisor => return Err(self.at_the_bridge(call.method)),
            Route::NotServed(why) => return Err(Status::unimplemented(format!("{} {why}", call.method))),
            Route::Local(_) | Route::Command | Route::Read | Route::Config(_) | Route::Logs => {
                return Err(Status::internal("this method does not stream"));
            }
        }
        let end = roadstead_door::deadline::of(request.headers())
            .ok()
            .flatten()
            .map(|timeout| tokio::time::Instant::now() + timeout);
        let opening = async {
            let message = frame::read_message(request.into_body(), self.limit).await?;
            shape::check(call.method, &message)?;
            self.watches.open(&call, message).await
        };
        let events = timeout_at(call.deadline.instant, opening)
            .await
            .map_err(|_| Status::deadline_exceeded("the stream could not be opened in time"))??;
        Ok(drain::until(frame::stream_response(events), self.drain.clone(), end))
    }

    fn health(&self) -> Health {
        let broker = if self.bus.is_connected() {
            json!({"status": "ok"})
        } else {
            json!({"status": "error", "error": "not connected"})
        };
        let checks = [("broker".to_owned(), broker), ("database".to_owned(), self.clock.borrow().as_check())];
        Health { ready: self.readiness.is_ready() && !self.drain.is_cancelled(), checks: Map::from_iter(checks) }
    }
}

impl EdgeDoor {
    /// A sandbox that got past the rule may call the method, but not here; unless it is one that nobody may.
    fn route(&self, call: &Call) -> Route {
        match call.principal {
            Some(Principal::Sandbox(_)) if call.method.rule().auth != AuthMode::Peer => Route::Supervisor,
            _ => route::of(call.method),
        }
    }

    async fn command(&self, call: Call, request: Bytes) -> Result<Reply, Status> {
        let commands = self.commands.get().ok_or_else(|| unavailable("this process is starting; nothing was done"))?;
        let principal = call.principal()?.clone();
        let Call { method, deadline, traceparent, .. } = call;
        let command = Command {
            subject: subject::command(method),
            method: method.name(),
            principal,
            request,
            deadline,
            traceparent,
        };
        commands.call(command).await
    }

    fn at_the_bridge(&self, method: Method) -> Status {
        let place = self.bridge_address.as_deref().map(|address| format!(": {address}")).unwrap_or_default();
        Status::unimplemented(format!("{method} is served to supervisors at the supervisor-bridge's address{place}"))
    }
}
