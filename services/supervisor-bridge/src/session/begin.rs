//! The beginning of a session: its turn, its registration, its place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roadstead_proto::api::v1::SupervisorHello;
use uuid::Uuid;

use super::{Boxed, MISSING_HEARTBEATS, Opened, Session, refuse};
use crate::bootstrap;
use crate::end::End;
use crate::entries;
use crate::open::{Registration, register};
use crate::outbox::Outbox;
use crate::over::Known;
use crate::reporter::Reporter;
use crate::sessions::Entering;

/// How long a session that is to be opened waits for its turn.
const TURN: Duration = Duration::from_secs(20);
/// A session whose first update takes longer is ended.
const FIRST_UPDATE: Duration = Duration::from_secs(30);

impl Session {
    /// Registers the session and subscribes. None: it is over already, and everybody was told.
    pub(super) async fn register(opened: Opened, reporter: Arc<Reporter>) -> Option<Self> {
        let Opened { bridge, identity, sandbox_id, token_expires, hello, inbound, established, traceparent } = opened;
        let session_id = reporter.session_id();
        let opening = Arc::clone(&bridge.opening);
        let turn = tokio::time::timeout(TURN, opening.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            reporter.registration_refused();
            refuse(established, roadstead_door::status::busy("too many sessions are being opened"));
            return None;
        };
        let registered = match register(&bridge, session_id, &identity, &hello, traceparent.clone()).await {
            Registration::Registered(registered) => registered,
            Registration::Refused(status) => {
                reporter.registration_refused();
                refuse(established, status);
                return None;
            }
            Registration::Unknown(status) => {
                reporter.registration_settled();
                reporter.end(End::Lost);
                refuse(established, status);
                return None;
            }
        };
        reporter.registration_settled();
        if established.is_closed() {
            reporter.end(End::Lost);
            return None;
        }

        let (push, generation) = (hello.supports_config_push, identity.generation);
        let workspace_id = Uuid::try_parse(&registered.workspace_id).ok();
        let following = async {
            match push {
                true => entries::follow(&bridge, sandbox_id).await.map(Some),
                false => Some(None),
            }
        };
        let Some((workspace_id, snapshots)) = workspace_id.zip(following.await) else {
            reporter.end(End::NoConfiguration);
            refuse(established, End::NoConfiguration.status());
            return None;
        };
        let heartbeat = bridge.times.heartbeat;
        let (keys, metrics) = (Arc::clone(&bridge.keys), Arc::clone(&bridge.metrics));
        let outbox = Outbox::new(session_id, sandbox_id, push, heartbeat, keys, metrics);
        let place = bridge.sessions.enter(Entering {
            sandbox_id,
            generation,
            token_expires,
            redirected: hello.redirected,
            readiness_announced: hello.supports_provider_readiness,
            movable_at: movable_at(&hello, bridge.times.settle),
            known: Known::registered(registered.resource_version),
            outbox: &outbox,
            reporter: &reporter,
        });
        // After entering: whoever ends all sessions has either seen this one or been seen here.
        if bridge.drain.is_cancelled() {
            reporter.end(End::Draining);
            refuse(established, End::Draining.status());
            return None;
        }
        let now = Instant::now();
        let first: Option<Boxed<_>> = push.then(|| {
            let bootstrap = bootstrap::entry(Arc::clone(&bridge), identity, traceparent, now + FIRST_UPDATE);
            Box::pin(bootstrap) as Boxed<_>
        });
        tracing::info!(%session_id, %sandbox_id, push, "session registered");
        Some(Self {
            workspace_id,
            sandbox_id,
            inbound,
            place,
            outbox,
            reporter,
            snapshots,
            established: Some(established),
            began: now,
            first,
            reread: None,
            // What the projection shows now was not heard of.
            reread_at: now,
            heartbeat_at: now + heartbeat,
            silent_at: now + heartbeat * MISSING_HEARTBEATS,
            bridge,
        })
    }
}

/// From when on a session may be handed over for the sake of balance: whoever was handed over has had its share of that
/// for some time, so that no supervisor is sent round and round.
fn movable_at(hello: &SupervisorHello, settle: Duration) -> Option<Instant> {
    let settles = if hello.redirected { settle } else { Duration::ZERO };
    hello.supports_session_redirect.then(|| Instant::now() + settles)
}
