//! Tells the other bridges of this one, and hears of them. Only where sessions go is decided from that.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::SubscribeError;
use roadstead_proto::internal::BridgePresence;
use roadstead_proto::subject;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::bridge::Bridge;
use crate::config::Rebalance;
use crate::handover;

/// How often it is told, and looked whether sessions are to be evened out.
pub(crate) const EVERY: Duration = Duration::from_secs(2);

/// Tells and hears until `stop`.
///
/// # Errors
///
/// If the connection to the broker was closed.
pub(crate) async fn run(bridge: Arc<Bridge>, stop: CancellationToken) -> Result<(), SubscribeError> {
    let subscribing = bridge.bus.subscribe_effective(subject::PRESENCE);
    let Some(subscription) = stop.run_until_cancelled(subscribing).await else { return Ok(()) };
    let mut subscription = subscription?;
    // Not before it may have sessions.
    let mut alive = bridge.alive.subscribe();
    if stop.run_until_cancelled(alive.wait_for(|alive| *alive)).await.is_none() {
        return Ok(());
    }
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut left = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            message = subscription.next() => match message {
                Some(message) => hear(&bridge, message.payload),
                None => return Err(SubscribeError::Closed),
            },
            () = bridge.drain.cancelled(), if !left => {
                left = true;
                tell(&bridge, false).await;
            }
            _ = tick.tick(), if !left => {
                tell(&bridge, false).await;
                if bridge.rebalance == Rebalance::Auto {
                    handover::a_few(&bridge);
                }
            }
        }
    }
}

/// Tells of this process; with an operator's order, once, if there is one.
pub(crate) async fn tell(bridge: &Bridge, rebalance: bool) {
    // What the client would keep until the broker is back would be told too late.
    if (bridge.advertise.is_none() && !rebalance) || !bridge.bus.is_connected() {
        return;
    }
    let presence = BridgePresence {
        bridge_id: bridge.id.to_string(),
        endpoint: bridge.advertise.as_ref().map(|endpoint| endpoint.as_str().to_owned()).unwrap_or_default(),
        held: u32::try_from(bridge.sessions.staying()).unwrap_or(u32::MAX),
        leaves: bridge.drain.is_cancelled(),
        rebalance,
    };
    if let Err(error) = bridge.bus.publish(subject::PRESENCE, presence.encode_to_vec().into()).await {
        tracing::debug!(%error, "the other bridges were not told of this one");
    }
}

fn hear(bridge: &Bridge, payload: Bytes) {
    let Ok(presence) = BridgePresence::decode(payload) else {
        bridge.metrics.not_understood.inc();
        return;
    };
    // Its own words come back too.
    if presence.bridge_id == bridge.id.to_string() {
        return;
    }
    bridge.peers.lock().unwrap_or_else(PoisonError::into_inner).hear(&presence, Instant::now());
    if presence.rebalance {
        handover::surplus(bridge);
    }
}
