//! Streams, consumers and buckets: made by admission, awaited by everybody else.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Republish, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, context::ContextBuilder};
use bytes::Bytes;
use roadstead_proto::bucket::Bucket;
use roadstead_proto::stream::{Consumer, Retention, Stream, StreamConfig};
use tokio_util::sync::CancellationToken;

use crate::jetstream::{StoreError, read};
use crate::request::RequestError;
use crate::{BROKER_TIMEOUT, Bus};

/// Everything is looked at again after this time, asked for or not.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// Part of the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Stream(Stream),
    Consumer(Consumer),
    Bucket(Bucket),
}

/// Why a part could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The stream could not be created or updated.
    #[error("cannot create or update stream {name}")]
    Stream {
        name: String,
        #[source]
        source: jetstream::context::CreateStreamError,
    },
    /// The consumer could not be created or updated.
    #[error("cannot create or update consumer {name}")]
    Consumer {
        name: &'static str,
        #[source]
        source: jetstream::stream::ConsumerError,
    },
}

/// Makes all parts exist as they should be: creates what is missing, updates what differs, leaves the rest alone. Any
/// number of admissions may do this at once. `replicas` is the number of copies the broker keeps of each stream.
///
/// # Errors
///
/// If the broker is away or refuses; what was made stays.
pub async fn ensure(bus: &Bus, replicas: usize) -> Result<(), TopologyError> {
    let context = ContextBuilder::new().timeout(BROKER_TIMEOUT).build(bus.client().clone());
    let streams = Stream::ALL.into_iter().map(|stream| stream_config(&stream.config(), replicas));
    let buckets = Bucket::ALL.into_iter().map(|bucket| bucket_config(bucket, replicas));
    for config in streams.chain(buckets) {
        let name = config.name.clone();
        let made = context.create_or_update_stream(config).await;
        made.map_err(|source| TopologyError::Stream { name, source })?;
    }
    for consumer in Consumer::ALL {
        let config = consumer.config();
        let stream = config.stream.config().name;
        let made = context.create_consumer_on_stream(consumer_config(consumer), stream).await;
        made.map_err(|source| TopologyError::Consumer { name: config.name, source })?;
    }
    Ok(())
}

/// Ensures the topology now, after each reconnect, when a part is reported missing, and every 30 s, until `stop`. While
/// it cannot, it says so and tries again.
pub async fn keep(bus: &Bus, replicas: usize, stop: CancellationToken) {
    let (mut reconnects, mut missing) = (bus.reconnects(), bus.missing());
    let mut retry = FIRST_RETRY;
    loop {
        reconnects.mark_unchanged();
        missing.mark_unchanged();
        let pause = match ensure(bus, replicas).await {
            Ok(()) => {
                retry = FIRST_RETRY;
                LOOK_EVERY
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot ensure streams and buckets; trying again"
                );
                let pause = retry;
                retry = (retry * 2).min(LONGEST_RETRY);
                pause
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            Ok(()) = reconnects.changed() => {}
            Ok(()) = missing.changed() => {
                // Many may find the same part missing; one look a moment later serves them all.
                tokio::time::sleep(FIRST_RETRY).await;
            }
        }
    }
}

/// Waits until all `parts` exist. Says once what it waits for.
pub async fn wait(bus: &Bus, parts: &[Part]) {
    for part in parts {
        let (mut retry, mut said) = (FIRST_RETRY, false);
        while let Err(error) = part.exists(bus).await {
            if !said {
                said = true;
                tracing::info!(part = part.name(), reason = %describe(&error), "waiting for admission to make it");
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(LONGEST_RETRY);
        }
        if said {
            tracing::info!(part = part.name(), "found");
        }
    }
}

fn describe(error: &StoreError) -> String {
    match error {
        StoreError::Request(RequestError::TimedOut) => "the broker does not answer".to_owned(),
        other => other.to_string(),
    }
}

impl Part {
    fn name(self) -> String {
        match self {
            Self::Stream(stream) => stream.config().name.to_owned(),
            Self::Consumer(consumer) => consumer.config().name.to_owned(),
            Self::Bucket(bucket) => bucket.stream(),
        }
    }

    async fn exists(self, bus: &Bus) -> Result<(), StoreError> {
        let reply = bus.api(self.info(), Bytes::new()).await?;
        read::<serde::de::IgnoredAny>(&reply).map(|_info| ())
    }

    /// The call that tells whether it exists; it follows `$JS.API.`.
    pub(crate) fn info(self) -> String {
        match self {
            Self::Consumer(consumer) => {
                let config = consumer.config();
                format!("CONSUMER.INFO.{}.{}", config.stream.config().name, config.name)
            }
            Self::Stream(_) | Self::Bucket(_) => format!("STREAM.INFO.{}", self.name()),
        }
    }
}

fn stream_config(config: &StreamConfig, replicas: usize) -> Config {
    let StreamConfig { name, subjects, retention, max_messages, max_age, max_bytes, max_message, feed } = *config;
    Config {
        name: name.to_owned(),
        subjects: vec![subjects.to_owned()],
        retention: match retention {
            Retention::Queue | Retention::LatestQueue => RetentionPolicy::WorkQueue,
            Retention::Latest | Retention::Newest(_) => RetentionPolicy::Limits,
        },
        discard: match retention {
            // What has no room is refused, and its publisher keeps it: a mark never pushes out another object's.
            Retention::Queue | Retention::LatestQueue | Retention::Latest => DiscardPolicy::New,
            Retention::Newest(_) => DiscardPolicy::Old,
        },
        max_messages: max_messages.unwrap_or(-1),
        max_messages_per_subject: match retention {
            Retention::Queue => -1,
            Retention::LatestQueue | Retention::Latest => 1,
            Retention::Newest(count) => count.into(),
        },
        max_bytes: max_bytes.unwrap_or(-1),
        max_message_size: max_message.unwrap_or(-1),
        max_age: max_age.unwrap_or_default(),
        storage: StorageType::File,
        num_replicas: replicas,
        // Whoever could send a roll-up or a purge could empty a queue.
        allow_rollup: false,
        deny_delete: true,
        // Pages are read from any replica; whether there is more is asked of the leader.
        allow_direct: matches!(retention, Retention::Newest(_)),
        republish: feed.map(|(source, destination)| Republish {
            source: source.to_owned(),
            destination: destination.to_owned(),
            headers_only: false,
        }),
        ..Config::default()
    }
}

fn bucket_config(bucket: Bucket, replicas: usize) -> Config {
    let subjects = format!("$KV.{}.>", bucket.name());
    Config {
        name: bucket.stream(),
        subjects: vec![subjects.clone()],
        max_messages: -1,
        max_messages_per_subject: 1,
        max_bytes: -1,
        max_message_size: bucket.max_value(),
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: replicas,
        // A purge of a key is a roll-up of its subject.
        allow_rollup: true,
        deny_delete: true,
        // Without it every read goes to the leader.
        allow_direct: false,
        allow_message_ttl: true,
        subject_delete_marker_ttl: Some(Bucket::MARKER_AGE),
        republish: Some(Republish { source: subjects, destination: bucket.whole_feed(), headers_only: false }),
        ..Config::default()
    }
}

fn consumer_config(consumer: Consumer) -> pull::Config {
    let config = consumer.config();
    pull::Config {
        durable_name: Some(config.name.to_owned()),
        filter_subjects: config.filters.iter().map(|&filter| filter.to_owned()).collect(),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: config.ack_wait,
        max_deliver: -1,
        max_ack_pending: config.max_ack_pending,
        ..pull::Config::default()
    }
}
