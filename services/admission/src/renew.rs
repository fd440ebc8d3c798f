//! Liveness of processes (D6): one row each, renewed by a core request that no queue ever delays, judged by Postgres's
//! clock. And that clock itself, for doors to compare theirs with.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::service::Endpoint;
use roadstead_proto::internal::renewal::Kind;
use roadstead_proto::internal::{ClockReading, Renewal, Renewed};
use roadstead_proto::subject;
use roadstead_store::Database;
use roadstead_store::liveness::ProcessKind;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const EVERY: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);

/// What is answered when Postgres cannot be asked: no message at all, so that nobody reads it as one. "Cannot renew" says
/// nothing about anybody.
const CANNOT_TELL: Bytes = Bytes::from_static(b"\xff");

/// The endpoints of renewals and of the clock.
pub(crate) fn endpoints(database: &Database) -> Vec<Endpoint> {
    let (renewals, clock) = (Arc::new(database.clone()), Arc::new(database.clone()));
    vec![
        Endpoint::new(subject::RENEW, move |request| {
            let database = Arc::clone(&renewals);
            async move { renew(&database, request).await.unwrap_or(CANNOT_TELL) }
        }),
        Endpoint::new(subject::CLOCK, move |_| {
            let database = Arc::clone(&clock);
            async move {
                let now = database.now().await.ok().and_then(micros);
                now.map_or(CANNOT_TELL, |now_micros| ClockReading { now_micros }.encode_to_vec().into())
            }
        }),
    ]
}

async fn renew(database: &Database, request: Bytes) -> Option<Bytes> {
    let renewal = Renewal::decode(request).ok()?;
    let kind = match renewal.kind() {
        Kind::Bridge => ProcessKind::Bridge,
        Kind::Admission => ProcessKind::Admission,
        Kind::Unspecified => return None,
    };
    let id = Uuid::try_parse(&renewal.process_id).ok()?;
    match database.renew(kind, id).await {
        Ok(renewed) => {
            let renewed = Renewed { judged_gone: renewed.judged_gone, now_micros: micros(renewed.now)? };
            Some(renewed.encode_to_vec().into())
        }
        Err(error) => {
            tracing::debug!(%error, %id, "a process could not be renewed");
            None
        }
    }
}

fn micros(at: std::time::SystemTime) -> Option<i64> {
    i64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

/// Renews this process's own row, through the same subject as everybody, until `stop`: who cannot be heard there must
/// not judge others by it.
pub(crate) async fn run(bus: Bus, process_id: Uuid, stop: CancellationToken) {
    let renewal = Renewal { kind: Kind::Admission.into(), process_id: process_id.to_string() };
    let request: Bytes = renewal.encode_to_vec().into();
    loop {
        let renewed = bus.request(subject::RENEW, request.clone(), PATIENCE).await;
        let pause = match renewed.map(Renewed::decode) {
            Ok(Ok(_)) => EVERY,
            Ok(Err(_)) => RETRY,
            Err(error) => {
                tracing::debug!(%error, "not renewed; trying again");
                RETRY
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_told_is_read_as_no_message() {
        assert!(Renewed::decode(CANNOT_TELL).is_err());
        assert!(ClockReading::decode(CANNOT_TELL).is_err());
    }
}
