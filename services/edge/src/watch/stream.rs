//! One `WatchSandbox` stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_door::Call;
use roadstead_door::deadline::Deadline;
use roadstead_door::status::{busy, unavailable};
use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::v1::WatchSandboxRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Status};
use uuid::Uuid;

use super::entries::Entries;
use super::following::{Following, Step};
use super::hub::{Hub, Watcher};
use super::metrics::{Counted, Metrics};
use super::rights::{Rights, RightsWatcher};
use crate::activity::{Activity, Follower};
use crate::read;

/// How long a stream waits for its first state.
const BEGIN: Duration = Duration::from_secs(10);
/// How long one attempt to authorize a caller again takes at most, and how long a caller may watch on without one that
/// succeeded.
const AUTHORIZE: Duration = Duration::from_secs(5);
/// Callers that are authorized again at the same time.
const AUTHORIZING: usize = 64;

/// Opens streams. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Watches {
    pub(crate) bus: Bus,
    pub(crate) hub: Hub,
    pub(crate) entries: Entries,
    pub(crate) rights: Rights,
    pub(crate) activity: Activity,
    pub(crate) metrics: Metrics,
    places: Arc<Semaphore>,
    authorizing: Arc<Semaphore>,
}

impl Watches {
    /// Opens at most `streams` at a time.
    pub(crate) fn new(
        bus: Bus,
        hub: Hub,
        entries: Entries,
        rights: Rights,
        activity: Activity,
        metrics: Metrics,
        streams: usize,
    ) -> Self {
        let places = Arc::new(Semaphore::new(streams.min(Semaphore::MAX_PERMITS)));
        Self {
            bus,
            hub,
            entries,
            rights,
            activity,
            metrics,
            places,
            authorizing: Arc::new(Semaphore::new(AUTHORIZING)),
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// As `GetSandbox`; `RESOURCE_EXHAUSTED` if too many are open; for a filter or cursor as [`Activity::follow`].
    pub(crate) async fn open(
        &self,
        call: &Call,
        request: Bytes,
    ) -> Result<impl Stream<Item = Result<Bytes, Status>> + Send + use<>, Status> {
        let request = WatchSandboxRequest::decode(request)
            .map_err(|_| Status::invalid_argument("the request is not a message of its type"))?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| busy("too many watches are open here"))?;
        let (scope, sandbox) = (request.workspace_scope.clone(), request.sandbox.clone());
        let caller = Caller { watches: self.clone(), call: call.clone(), scope, sandbox };

        let before = self.rights.now();
        let id = caller.resolve().await?;
        let mut watcher = self.hub.enter(id);
        // Read after entering: what changed since the name was resolved is either in what is read or comes by the feed.
        match tokio::time::timeout(BEGIN, self.entries.read(id)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(unavailable("the sandbox cannot be read now")),
        }
        let begun = watcher.newest().and_then(|newest| Some((Following::begin(&request, &newest)?, newest)));
        let (following, newest) = begun.ok_or_else(|| Status::not_found("the sandbox has just been deleted"))?;
        let user = call.user()?;
        // An administrator of the platform is no member, and keeps its rights as long as its credential.
        let rights = match Uuid::try_parse(&newest.workspace_id) {
            _ if user.platform_admin => None,
            Ok(workspace_id) => Some(self.rights.enter(workspace_id, &user.subject, before)),
            Err(_) => return Err(Status::internal("an answer could not be read")),
        };
        let lines = self.activity.follow(id, &request).await?;
        let counted = self.metrics.opened();
        let open = Open { caller, watcher, rights, following, lines, ended: false, _place: place, _counted: counted };
        Ok(stream::unfold(open, |mut open| async move { Some((open.next().await?, open)) }))
    }
}

/// Whose stream it is, and how to ask again what they may see.
struct Caller {
    watches: Watches,
    call: Call,
    scope: Option<WorkspaceSelector>,
    sandbox: String,
}

impl Caller {
    /// The id behind the name, if the caller may see it.
    async fn resolve(&self) -> Result<Uuid, Status> {
        read::sandbox_id(&self.watches.bus, &self.call, self.scope.clone(), self.sandbox.clone()).await
    }

    /// Whether the caller may watch on. Whether the name still denotes the same sandbox does not matter here.
    async fn authorize(&mut self) -> Result<(), Status> {
        let authorizing = Arc::clone(&self.watches.authorizing);
        let _turn = authorizing.acquire().await.map_err(|_| Status::internal("an internal error"))?;
        self.call.deadline = Deadline::after(AUTHORIZE);
        match self.resolve().await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) => {
                self.watches.metrics.denied();
                Err(status)
            }
            Err(_) => Err(unavailable("whether you may watch on cannot be told now; connect again")),
        }
    }
}

/// An open stream.
struct Open {
    caller: Caller,
    watcher: Watcher,
    rights: Option<RightsWatcher>,
    following: Following,
    lines: Option<Follower>,
    ended: bool,
    _place: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Open {
    /// The next event, or the error with which the stream ends; none at the end.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        if self.ended {
            return None;
        }
        loop {
            let in_doubt = async {
                match &mut self.rights {
                    Some(rights) => rights.in_doubt().await,
                    None => std::future::pending().await,
                }
            };
            let following = &mut self.following;
            let watcher = &mut self.watcher;
            let step = async {
                loop {
                    match watcher.newest().map(|newest| following.next(&newest)) {
                        Some(Step::Wait) | None => watcher.changed().await,
                        Some(step) => return step,
                    }
                }
            };
            let line = async {
                match &mut self.lines {
                    Some(lines) => lines.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // First: nothing is sent to somebody who may not see it.
                biased;
                () = in_doubt => {
                    if let Err(status) = self.caller.authorize().await {
                        self.ended = true;
                        return Some(Err(status));
                    }
                }
                step = step => match step {
                    Step::Send(event) => return Some(Ok(event)),
                    Step::End | Step::Wait => return None,
                },
                // Last: no number of lines holds back a state.
                line = line => return Some(Ok(line)),
            }
        }
    }
}
