//! One `WatchSandbox` stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_door::Call;
use roadstead_door::status::{busy, unavailable};
use roadstead_proto::api::v1::{GetSandboxRequest, SandboxResponse, WatchSandboxRequest};
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use uuid::Uuid;

use super::entries::Entries;
use super::following::{Following, Step};
use super::hub::{Hub, Watcher};
use super::shown::State;
use crate::read;

/// How long a stream waits for its first state.
const BEGIN: Duration = Duration::from_secs(10);

/// Opens streams. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Watches {
    bus: Bus,
    hub: Hub,
    entries: Entries,
    places: Arc<Semaphore>,
}

impl Watches {
    /// Opens at most `streams` at a time.
    pub(crate) fn new(bus: Bus, hub: Hub, entries: Entries, streams: usize) -> Self {
        let places = Arc::new(Semaphore::new(streams.min(Semaphore::MAX_PERMITS)));
        Self { bus, hub, entries, places }
    }

    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// As `GetSandbox`; `RESOURCE_EXHAUSTED` if too many are open; `UNIMPLEMENTED` for a cursor.
    pub(crate) async fn open(
        &self,
        call: &Call,
        request: Bytes,
    ) -> Result<impl Stream<Item = Result<Bytes, Status>> + Send + use<>, Status> {
        let request = WatchSandboxRequest::decode(request)
            .map_err(|_| Status::invalid_argument("the request is not a message of its type"))?;
        if !request.resume_after_cursor.is_empty() {
            return Err(Status::unimplemented("resume_after_cursor is not served yet: there are no cursors yet"));
        }
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| busy("too many watches are open here"))?;
        let id = self.resolve(call, &request).await?;
        let mut watcher = self.hub.enter(id);
        // Read after entering: what changed since the name was resolved is either in what is read or comes by the feed.
        match tokio::time::timeout(BEGIN, self.entries.read(id)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(unavailable("the sandbox cannot be read now")),
        }
        if watcher.newest().is_none_or(|newest| newest.state == State::Gone) {
            return Err(Status::not_found("the sandbox has just been deleted"));
        }
        let open = Open { watcher, following: Following::new(&request), _place: place };
        Ok(futures_util::stream::unfold(open, |mut open| async move {
            let event = open.next().await?;
            Some((Ok(event), open))
        }))
    }

    /// The id behind the name, if the caller may see it.
    async fn resolve(&self, call: &Call, request: &WatchSandboxRequest) -> Result<Uuid, Status> {
        let get = GetSandboxRequest { name: request.sandbox.clone(), workspace_scope: request.workspace_scope.clone() };
        let reply = read::ask(&self.bus, &subject::read(Method::GetSandbox), call, get.encode_to_vec().into()).await?;
        let metadata = SandboxResponse::decode(reply.message).ok().and_then(|response| response.sandbox?.metadata);
        metadata
            .and_then(|metadata| Uuid::try_parse(&metadata.id).ok())
            .ok_or_else(|| Status::internal("an answer could not be read"))
    }
}

/// An open stream.
struct Open {
    watcher: Watcher,
    following: Following,
    _place: OwnedSemaphorePermit,
}

impl Open {
    /// The next event; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.watcher.newest().map(|newest| self.following.next(&newest)) {
                Some(Step::Send(event)) => return Some(event),
                Some(Step::End) => return None,
                Some(Step::Wait) | None => self.watcher.changed().await,
            }
        }
    }
}
