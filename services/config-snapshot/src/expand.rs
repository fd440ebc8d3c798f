//! Expansion: a change that concerns many sandboxes becomes one mark in lane `fleet` for each of them (D4).

use std::str::FromStr as _;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use prost::Message as _;
use roadstead_bus::pull::{self, Delivery, PullError};
use roadstead_bus::{Bus, EnqueueError};
use roadstead_proto::internal::Mark;
use roadstead_proto::stream::Consumer;
use roadstead_proto::subject::{Changed, Dirty, Kind, Lane};
use roadstead_store::inputs::Place;
use roadstead_store::{Database, StoreError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::lane::traceparent;
use crate::metrics::Metrics;
use crate::pause;

/// Two at a time over all replicas (the consumer's limit); each replica may take them.
const SLOTS: usize = 2;
/// Sandboxes per page.
const PAGE: u32 = 1000;
/// Marks that are on their way to the broker at a time.
const IN_FLIGHT: usize = 128;

/// Why a change was not expanded to its end. It is expanded again from the start.
#[derive(Debug, thiserror::Error)]
enum ExpandError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a mark was not stored: {0}")]
    Enqueue(#[from] EnqueueError),
}

/// Expands changes of providers and of what is global, until `stop`.
///
/// # Errors
/// If the connection to the broker was closed.
pub(crate) async fn run(
    bus: Bus,
    database: Database,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), PullError> {
    let expansion = Expansion { bus: bus.clone(), database, metrics };
    pull::run(&bus, Consumer::Expansion, SLOTS, stop, |delivery| handle(expansion.clone(), delivery)).await
}

#[derive(Clone)]
struct Expansion {
    bus: Bus,
    database: Database,
    metrics: Metrics,
}

async fn handle(expansion: Expansion, delivery: Delivery) {
    let Ok(changed) = Changed::from_str(delivery.subject()) else {
        return delivery.not_understood("no known object").await;
    };
    let traceparent = traceparent(&delivery);
    match delivery.holding(expansion.expand(changed, traceparent)).await {
        Ok(()) => delivery.ack().await,
        Err(error) => {
            let pause = pause::after(delivery.attempt());
            tracing::warn!(
                kind = changed.kind.name(), object = %changed.object_id, ?pause, %error,
                "a change could not be expanded; its mark is put back"
            );
            delivery.put_back(pause).await;
        }
    }
}

impl Expansion {
    /// Marks every sandbox that the change concerns; returns when all marks are stored.
    async fn expand(&self, changed: Changed, traceparent: String) -> Result<(), ExpandError> {
        let payload = Bytes::from(Mark { transaction: 0, traceparent }.encode_to_vec());
        let mut after = Uuid::nil();
        loop {
            let page = self.page(changed, after).await?;
            stream::iter(page.clone())
                .map(|place| self.mark(place, payload.clone()))
                .buffer_unordered(IN_FLIGHT)
                .try_collect::<()>()
                .await?;
            self.metrics.expanded(page.len());
            match page.last() {
                Some(last) if page.len() >= PAGE as usize => after = last.sandbox_id,
                _ => return Ok(()),
            }
        }
    }

    /// The sandboxes that the change concerns, behind `after`.
    async fn page(&self, changed: Changed, after: Uuid) -> Result<Vec<Place>, StoreError> {
        match changed.kind {
            Kind::Provider => self.database.sandboxes_of_provider(changed.object_id, after, PAGE).await,
            Kind::Global => self.database.all_sandboxes(after, PAGE).await,
            // The consumer's filter lets no other kind through, and no configuration depends on one.
            Kind::Workspace | Kind::Member | Kind::Sandbox => Ok(Vec::new()),
        }
    }

    async fn mark(&self, place: Place, payload: Bytes) -> Result<(), EnqueueError> {
        let dirty = Dirty { lane: Lane::Fleet, workspace_id: place.workspace_id, sandbox_id: place.sandbox_id };
        self.bus.enqueue(dirty.to_string(), payload, None).await
    }
}
