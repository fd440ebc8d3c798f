//! Hands sessions over to other bridges: all of them when this process stops, what it holds above its share when an
//! operator says so, and a few at a time by itself. The takeover is the supervisor's (D6): a later connection of the same
//! instance has the sandbox at once, so that it stays READY.

use std::iter;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::service::Endpoint;
use roadstead_proto::api::v1::SessionRedirect;
use roadstead_proto::internal::{Rebalanced, rebalanced};
use roadstead_proto::subject;
use uuid::Uuid;

use crate::balance::{self, Load, Move};
use crate::bridge::Bridge;
use crate::end::End;
use crate::presence::{EVERY, tell};

/// Sessions that go together go within this time, or longer if there are many.
const SPREAD: Duration = Duration::from_secs(3);
/// Each makes it so much longer: a session is registered, read and bootstrapped anew elsewhere.
const EACH: Duration = Duration::from_millis(2);
/// By itself a process hands over one in so many at a time.
const FEW: usize = 50;

/// Ends all sessions within this time: a stop cannot wait.
pub(crate) fn leave(bridge: &Bridge, within: Duration) {
    let targets = Fleet::of(bridge, true).targets(bridge.id);
    let (sessions, redirected) = (bridge.sessions.len(), targets.len());
    tracing::info!(sessions, redirected, "handing sessions over");
    bridge.sessions.close_all(End::Draining, spread(sessions).min(within), targets);
}

/// Hands over what is above this process's share.
pub(crate) fn surplus(bridge: &Bridge) {
    let targets = Fleet::of(bridge, false).targets(bridge.id);
    let spread = spread(targets.len());
    even_out(bridge, targets, spread);
}

/// Hands over a part of that if bridges hold very different numbers.
pub(crate) fn a_few(bridge: &Bridge) {
    let fleet = Fleet::of(bridge, false);
    if balance::is_uneven(&fleet.loads) {
        let mut targets = fleet.targets(bridge.id);
        targets.truncate((bridge.sessions.staying() / FEW).max(1));
        even_out(bridge, targets, EVERY / 2);
    }
}

/// For operators, who ask any bridge: all of them even out.
pub(crate) fn endpoint(bridge: &Arc<Bridge>) -> Endpoint {
    let bridge = Arc::clone(bridge);
    Endpoint::new(subject::REBALANCE, move |_: Bytes| {
        let bridge = Arc::clone(&bridge);
        async move {
            let answer = Fleet::of(&bridge, false).shown();
            tell(&bridge, true).await;
            surplus(&bridge);
            answer.encode_to_vec().into()
        }
    })
}

fn even_out(bridge: &Bridge, targets: Vec<Arc<SessionRedirect>>, spread: Duration) {
    if !bridge.drain.is_cancelled() && !targets.is_empty() {
        let (surplus, moved) = (targets.len(), bridge.sessions.hand_over(targets, spread));
        tracing::info!(surplus, moved, "handing sessions over to bridges that hold fewer");
    }
}

fn spread(sessions: usize) -> Duration {
    SPREAD.max(EACH.saturating_mul(u32::try_from(sessions).unwrap_or(u32::MAX)))
}

/// The bridges that sessions may be handed over to, and this one.
struct Fleet {
    loads: Vec<Load>,
    /// In the same order.
    endpoints: Vec<String>,
}

impl Fleet {
    fn of(bridge: &Bridge, leaves: bool) -> Self {
        let (mut loads, mut endpoints) = (Vec::new(), Vec::new());
        for (id, peer) in bridge.peers.lock().unwrap_or_else(PoisonError::into_inner).present(Instant::now()) {
            loads.push(Load { id, held: peer.held.into(), leaves: false });
            endpoints.push(peer.endpoint.as_str().to_owned());
        }
        if leaves || bridge.advertise.is_some() {
            loads.push(Load { id: bridge.id, held: bridge.sessions.staying() as u64, leaves });
            endpoints.push(bridge.advertise.as_ref().map(|own| own.as_str().to_owned()).unwrap_or_default());
        }
        Self { loads, endpoints }
    }

    /// Where sessions of this bridge go, one by one.
    fn targets(&self, from: Uuid) -> Vec<Arc<SessionRedirect>> {
        let moves = balance::plan(&self.loads).into_iter().filter(|step| step.from == from);
        moves.flat_map(|Move { to, count, .. }| self.target(to, count)).collect()
    }

    fn target(&self, to: Uuid, count: u64) -> Vec<Arc<SessionRedirect>> {
        let found = self.loads.iter().zip(&self.endpoints).find(|(load, _)| load.id == to);
        found.map_or_else(Vec::new, |(_, endpoint)| {
            let redirect = SessionRedirect { peer_endpoint: endpoint.clone(), owner_replica_id: to.to_string() };
            iter::repeat_n(Arc::new(redirect), usize::try_from(count).unwrap_or(usize::MAX)).collect()
        })
    }

    fn shown(&self) -> Rebalanced {
        let plan = balance::plan(&self.loads);
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let bridge = |(load, endpoint): (&Load, &String)| rebalanced::Bridge {
            bridge_id: load.id.to_string(),
            endpoint: endpoint.clone(),
            held: number(load.held),
            moves: number(plan.iter().filter(|step| step.from == load.id).map(|step| step.count).sum()),
        };
        Rebalanced { bridges: self.loads.iter().zip(&self.endpoints).map(bridge).collect() }
    }
}
