//! Records that are old enough. An unresolved claim or command is never one of them.

use std::time::Duration;

use roadstead_store::{Database, FlightError, StoreError};
use tokio_util::sync::CancellationToken;

use super::{Sweeps, pause};
use crate::metrics::Reason;

/// Rows that one statement removes. Small, so that nobody's commit waits for it.
const ROWS: u32 = 500;
/// The same of claims: each may be another caller's, whose count is locked with it.
const CLAIMS: u32 = 50;
/// The same of policies, which are large.
const POLICIES: u32 = 50;
/// Pause between two statements of a round.
const PAUSE: Duration = Duration::from_millis(50);

/// A table that retention is about.
#[derive(Clone, Copy, Debug)]
enum Table {
    Command,
    Claim,
    Process,
    SetAside,
    /// Policies of sandboxes that are gone.
    Forgotten,
}

impl Table {
    const ALL: [Self; 5] = [Self::Command, Self::Claim, Self::Process, Self::SetAside, Self::Forgotten];

    const fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Claim => "claim",
            Self::Process => "process",
            Self::SetAside => "set_aside",
            Self::Forgotten => "forgotten",
        }
    }

    const fn most(self) -> u32 {
        match self {
            Self::Claim => CLAIMS,
            Self::Forgotten => POLICIES,
            Self::Command | Self::Process | Self::SetAside => ROWS,
        }
    }

    async fn delete(self, database: &Database) -> Result<u64, FlightError> {
        let most = self.most();
        Ok(match self {
            Self::Command => database.delete_old_commands(most).await?,
            Self::Claim => database.delete_old_claims(most).await?,
            Self::Process => database.delete_old_processes(most).await?,
            Self::SetAside => database.delete_old_set_aside(most).await?,
            Self::Forgotten => database.delete_forgotten(most).await?,
        })
    }
}

/// Removes what is old, table by table, and counts what must not grow.
pub(super) async fn round(sweeps: &Sweeps, stop: &CancellationToken) {
    for table in Table::ALL {
        drain(sweeps, table, stop).await;
    }
    let Sweeps { metrics, database, .. } = sweeps;
    let (held, unresolved) = (database.claims_held().await, database.unresolved_claims().await);
    if let (Ok(held), Ok(unresolved)) = (&held, &unresolved) {
        gauge(&metrics.claims_completed, Ok(held.saturating_sub(*unresolved)));
    }
    gauge(&metrics.claims_unresolved, unresolved);
    gauge(&metrics.commands_unresolved, database.unresolved_count().await);
    gauge(&metrics.set_aside_kept, database.set_aside_count().await);
}

async fn drain(sweeps: &Sweeps, table: Table, stop: &CancellationToken) {
    let removed = sweeps.metrics.removed.get_or_create_owned(&Reason { reason: table.word() });
    loop {
        match table.delete(&sweeps.database).await {
            Ok(count) => {
                removed.inc_by(count);
                if count < u64::from(table.most()) || !pause(PAUSE, stop).await {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(table = table.word(), %error, "retention is put off");
                return;
            }
        }
    }
}

fn gauge(gauge: &prometheus_client::metrics::gauge::Gauge, counted: Result<u64, StoreError>) {
    if let Ok(count) = counted {
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
