//! One `WatchSandbox` stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream, stream};
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_door::Call;
use roadstead_door::auth::Standing;
use roadstead_door::status::{busy, unavailable};
use roadstead_proto::api::v1::WatchSandboxRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tonic::Status;
use uuid::Uuid;

use super::authorize::{Member, Questions, is_refusal};
use super::entries::Entries;
use super::following::{Following, Step};
use super::hub::{Hub, Watcher};
use super::metrics::{Counted, Metrics};
use super::rights::{Rights, RightsWatcher};
use crate::activity::{Activity, Follower};
use crate::read;

/// How long a stream waits for its first state.
const BEGIN: Duration = Duration::from_secs(10);

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
    questions: Questions,
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
        Self { bus, hub, entries, rights, activity, metrics, places, questions: Questions::new() }
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

        let before = self.rights.now();
        let id = read::sandbox_id(&self.bus, call, scope.clone(), sandbox.clone()).await?;
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
        let membership = match Uuid::try_parse(&newest.workspace_id) {
            _ if user.platform_admin => None,
            Ok(workspace_id) => {
                let rights = self.rights.enter(workspace_id, &user.subject, before);
                let (questions, bus, call) = (self.questions.clone(), self.bus.clone(), call.clone());
                let who = (workspace_id, user.subject.clone());
                Some(Membership::of(Member { questions, bus, call, scope, sandbox, who }, rights))
            }
            Err(_) => return Err(Status::internal("an answer could not be read")),
        };
        let lines = self.activity.follow(id, &request).await?;
        let counted = self.metrics.opened();
        let (metrics, standing) = (self.metrics.clone(), call.standing.clone());
        let open = Open {
            metrics,
            standing,
            watcher,
            membership,
            following,
            lines,
            ended: false,
            _place: place,
            _counted: counted,
        };
        Ok(stream::unfold(open, |mut open| async move { Some((open.next().await?, open)) }))
    }
}

/// That the caller is a member, and how it is found out that it is none any more.
struct Membership {
    member: Arc<Member>,
    rights: RightsWatcher,
    lapses: BoxFuture<'static, Status>,
}

impl Membership {
    fn of(member: Member, rights: RightsWatcher) -> Self {
        let member = Arc::new(member);
        let looking = Arc::clone(&member);
        Self { member, rights, lapses: async move { looking.lapses().await }.boxed() }
    }

    /// Waits until the caller has to be authorized again, and says by when.
    ///
    /// # Errors
    ///
    /// Why the caller may not watch on.
    async fn in_doubt(&mut self) -> Result<Instant, Status> {
        tokio::select! {
            by = self.rights.in_doubt() => Ok(by),
            status = &mut self.lapses => Err(status),
        }
    }
}

/// An open stream.
struct Open {
    metrics: Metrics,
    standing: Option<Standing>,
    watcher: Watcher,
    membership: Option<Membership>,
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
            let lapses = async {
                match &mut self.standing {
                    Some(standing) => standing.lapses().await,
                    None => std::future::pending().await,
                }
            };
            let in_doubt = async {
                match &mut self.membership {
                    Some(membership) => membership.in_doubt().await.map(|by| (by, Arc::clone(&membership.member))),
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
                status = lapses => return Some(Err(self.lost(status))),
                in_doubt = in_doubt => {
                    let settled = match in_doubt {
                        Ok((by, member)) => member.authorize(by).await,
                        Err(status) => Err(status),
                    };
                    if let Err(status) = settled {
                        return Some(Err(self.lost(status)));
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

    /// Ends it.
    fn lost(&mut self, status: Status) -> Status {
        self.ended = true;
        self.metrics.lost(is_refusal(&status));
        status
    }
}
