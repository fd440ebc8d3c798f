//! The lanes of marks: each mark becomes a build, and goes when the entry stands.

use std::str::FromStr as _;

use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::pull::{self, Delivery, PullError};
use roadstead_proto::internal::Mark;
use roadstead_proto::stream::Consumer;
use roadstead_proto::subject::{Dirty, Lane};
use tokio_util::sync::CancellationToken;

use crate::build::Builder;
use crate::pause;

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
    let consumer = match lane {
        Lane::One => Consumer::DirtyOne,
        Lane::Fleet => Consumer::DirtyFleet,
    };
    pull::run(&bus, consumer, slots, stop, |delivery| handle(builder.clone(), lane, delivery)).await
}

async fn handle(builder: Builder, lane: Lane, delivery: Delivery) {
    builder.metrics().waiting(lane, delivery.pending());
    let Ok(dirty) = Dirty::from_str(delivery.subject()) else {
        return delivery.not_understood("no known sandbox").await;
    };
    let traceparent = traceparent(&delivery);
    let built = delivery.holding(builder.refresh(dirty.sandbox_id, &traceparent)).await;
    match built {
        Ok(_) => delivery.ack().await,
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

/// The trace that the mark belongs to. A mark that does not decode is still a mark.
pub(crate) fn traceparent(delivery: &Delivery) -> String {
    Mark::decode(delivery.payload().clone()).map(|mark| mark.traceparent).unwrap_or_default()
}
