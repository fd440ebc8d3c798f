//! The lanes of marks: each mark becomes a build, and goes when the entry stands. Of the marks that a replica has in hand,
//! workspaces have theirs built in turn.

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::pull::{self, Delivery, PullError};
use roadstead_proto::internal::Mark;
use roadstead_proto::stream::Consumer;
use roadstead_proto::subject::{Dirty, Lane};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::build::{BuildError, Builder};
use crate::coming::Coming;
use crate::pause;
use crate::turns::Turns;

/// Marks of the fleet that a replica has in hand. Beyond these the order is that of the stream.
const IN_HAND: usize = 1024;

/// Builds what `lane` marks, `slots` at a time, until `stop`.
///
/// # Errors
/// If the connection to the broker was closed.
pub(crate) async fn run(
    bus: Bus,
    builder: Builder,
    lane: Lane,
    slots: usize,
    stop: CancellationToken,
) -> Result<(), PullError> {
    let (consumer, in_hand) = match lane {
        Lane::One => (Consumer::DirtyOne, slots),
        Lane::Fleet => (Consumer::DirtyFleet, IN_HAND),
    };
    let lane = Work {
        lane,
        builder,
        pending: Arc::default(),
        turns: Turns::new(slots),
        coming: Coming::default(),
        stop: stop.clone(),
    };
    pull::run(&bus, consumer, in_hand, stop, |delivery| lane.clone().handle(delivery)).await
}

#[derive(Clone)]
struct Work {
    lane: Lane,
    builder: Builder,
    /// Marks that no replica has in hand, as the broker last told.
    pending: Arc<AtomicU64>,
    turns: Turns,
    coming: Coming<Uuid, Result<(), Arc<BuildError>>>,
    stop: CancellationToken,
}

impl Work {
    async fn handle(self, delivery: Delivery) {
        self.pending.store(delivery.pending(), Ordering::Relaxed);
        self.tell_depth();
        let Ok(dirty) = Dirty::from_str(delivery.subject()) else {
            return delivery.not_understood("no known sandbox").await;
        };
        let built = delivery.holding(self.build(dirty, traceparent(&delivery))).await;
        self.tell_depth();
        match built {
            Ok(()) => delivery.ack().await,
            Err(error) if matches!(*error, BuildError::Stopping) => delivery.put_back(Duration::ZERO).await,
            Err(error) => {
                let pause = pause::after(delivery.attempt());
                tracing::warn!(
                    sandbox = %dirty.sandbox_id, attempt = delivery.attempt(), ?pause, %error,
                    "a snapshot could not be built; its mark is put back"
                );
                delivery.put_back(pause).await;
            }
        }
    }

    fn tell_depth(&self) {
        let without_turn = u64::try_from(self.turns.waiting()).unwrap_or(u64::MAX);
        self.builder.metrics().waiting(self.lane, self.pending.load(Ordering::Relaxed).saturating_add(without_turn));
    }

    /// Builds when it is the workspace's turn, if that comes before the stop. Marks of one sandbox that wait for it have one
    /// build.
    fn build(&self, dirty: Dirty, traceparent: String) -> impl Future<Output = Result<(), Arc<BuildError>>> + use<> {
        let Self { turns, builder, stop, .. } = self.clone();
        let turn = async move { stop.run_until_cancelled(turns.next(dirty.workspace_id)).await };
        self.coming.join(dirty.sandbox_id, turn, move |turn| async move {
            let Some(_turn) = turn else { return Err(Arc::new(BuildError::Stopping)) };
            builder.refresh(dirty.sandbox_id, &traceparent).await.map(drop).map_err(Arc::new)
        })
    }
}

/// The trace that the mark belongs to. A mark that does not decode is still a mark.
pub(crate) fn traceparent(delivery: &Delivery) -> String {
    Mark::decode(delivery.payload().clone()).map(|mark| mark.traceparent).unwrap_or_default()
}
