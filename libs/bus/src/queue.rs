//! How queues and their consumers are doing.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost_types::Timestamp;
use roadstead_proto::stream::{Consumer, Stream};
use serde::Deserialize;

use crate::Bus;
use crate::jetstream::read;
use crate::topology::Part;

/// Why a queue could not be looked at.
#[derive(Debug, thiserror::Error)]
#[error("the broker does not show it: {0}")]
pub struct LookError(String);

#[derive(Deserialize)]
struct Info {
    /// The broker's clock.
    ts: String,
    state: State,
}

#[derive(Deserialize)]
struct State {
    messages: u64,
    first_ts: String,
}

/// Age of the oldest message that waits or is at work, by the broker's clock; zero if there is none.
///
/// # Errors
///
/// If the broker does not answer, or does not have the stream.
pub async fn oldest(bus: &Bus, stream: Stream) -> Result<Duration, LookError> {
    let reply = bus.api(format!("STREAM.INFO.{}", stream.config().name), Bytes::new()).await;
    let reply = reply.map_err(|error| LookError(error.to_string()))?;
    let info = read::<Info>(&reply).map_err(|error| LookError(error.to_string()))?;
    age(&info).ok_or_else(|| LookError("its times cannot be read".to_owned()))
}

/// What a consumer has before it and in hand, over all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Backlog {
    /// Messages that were not delivered yet.
    #[serde(rename = "num_pending")]
    pub pending: u64,
    /// Messages that were delivered and neither acked nor set aside: at work, or put back for a while.
    #[serde(rename = "num_ack_pending")]
    pub unacked: u64,
}

/// How much waits for a consumer.
///
/// # Errors
///
/// If the broker does not answer, or does not have the consumer.
pub async fn backlog(bus: &Bus, consumer: Consumer) -> Result<Backlog, LookError> {
    let reply = bus.api(Part::Consumer(consumer).info(), Bytes::new()).await;
    let reply = reply.map_err(|error| LookError(error.to_string()))?;
    read::<Backlog>(&reply).map_err(|error| LookError(error.to_string()))
}

fn age(info: &Info) -> Option<Duration> {
    if info.state.messages == 0 {
        return Some(Duration::ZERO);
    }
    let [now, first] = [&info.ts, &info.state.first_ts].map(|text| time(text));
    Some(now?.duration_since(first?).unwrap_or_default())
}

fn time(text: &str) -> Option<SystemTime> {
    SystemTime::try_from(text.parse::<Timestamp>().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(messages: u64) -> Info {
        let state = State { messages, first_ts: "2026-01-02T03:04:05.5Z".into() };
        Info { ts: "2026-01-02T03:05:05.75Z".into(), state }
    }

    #[test]
    fn the_oldest_is_as_old_as_the_broker_says_and_an_empty_queue_has_none() {
        assert_eq!(age(&info(1)), Some(Duration::from_millis(60_250)));
        assert_eq!(age(&info(0)), Some(Duration::ZERO));
    }
}
