//! The token file, read again while the edge runs: a token that was taken out, or that expired, opens nothing and ends
//! the streams that were opened with it.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use roadstead_door::auth::{Chain, TokenFile};
use tokio_util::sync::CancellationToken;

/// How often it is read.
const EVERY: Duration = Duration::from_secs(1);

/// How the file is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    unreadable: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "token_file_unreadable",
            "1 while the token file cannot be used, and the tokens that it had last count",
            metrics.unreadable.clone(),
        );
        metrics
    }
}

/// Reads it until told to stop.
pub(crate) async fn follow(mut file: TokenFile, chain: Arc<Chain>, metrics: Metrics, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        // A file system may be slow, and nothing else is to wait for it.
        let reading = tokio::task::spawn_blocking(move || {
            let read = file.read_again();
            (file, read)
        });
        let Ok((same, read)) = reading.await else { return };
        file = same;
        match &read {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!("the token file has changed");
                chain.changed();
            }
            // Only the first of a series is worth a line.
            Err(error) if metrics.unreadable.get() == 0 => {
                tracing::error!(%error, "the token file cannot be used; the tokens that it had last count");
            }
            Err(_) => {}
        }
        metrics.unreadable.set(read.is_err().into());
    }
}
