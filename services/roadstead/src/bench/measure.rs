//! Closed loops: each caller asks again as soon as it was answered.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

/// How long a loop runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    pub(crate) time: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) callers: usize,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Throughput as a part of the floor's, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of_floor: Option<f64>,
}

impl Measure {
    /// Runs `callers` loops of what `call` makes for each. The first failure ends it.
    pub(crate) async fn run<F, C>(&self, what: &'static str, callers: usize, call: C) -> anyhow::Result<Figure>
    where
        C: Fn(usize) -> F,
        F: AsyncCall,
    {
        let began = Instant::now();
        let until = began + self.time;
        let mut loops = JoinSet::new();
        for at in 0..callers {
            let mut call = call(at);
            loops.spawn(async move {
                let mut took = Vec::new();
                while Instant::now() < until {
                    let sent = Instant::now();
                    call.call().await?;
                    took.push(sent.elapsed());
                }
                anyhow::Ok(took)
            });
        }
        let mut took = Vec::new();
        while let Some(done) = loops.join_next().await {
            took.extend(done??);
        }
        Ok(Figure::of(what, callers, took, began.elapsed()))
    }
}

/// A call that can be made again and again.
pub(crate) trait AsyncCall: Send + 'static {
    fn call(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl Figure {
    /// Of these durations, taken within `time`.
    pub(crate) fn of(what: &'static str, callers: usize, mut took: Vec<Duration>, time: Duration) -> Self {
        took.sort_unstable();
        #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
        let per_second = took.len() as f64 / time.as_secs_f64();
        let (p50_ms, p99_ms) = (percentile(&took, 50), percentile(&took, 99));
        Self { what, callers, per_second, p50_ms, p99_ms, of_floor: None }
    }

    pub(crate) fn beside(mut self, floor: &Self) -> Self {
        self.of_floor = Some(self.per_second / floor.per_second);
        self
    }

    pub(crate) fn row(&self) -> Vec<String> {
        let Self { what, callers, per_second, p50_ms, p99_ms, of_floor } = self;
        vec![
            (*what).to_owned(),
            callers.to_string(),
            format!("{per_second:.0}"),
            format!("{p50_ms:.2}"),
            format!("{p99_ms:.2}"),
            of_floor.map_or(String::new(), |part| format!("{part:.2}")),
        ]
    }
}

/// The duration that `percent` of all do not exceed, in milliseconds. `sorted` is in order.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(f64::NAN, |duration| duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let took: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!((percentile(&took, 50), percentile(&took, 99)), (100.0, 198.0));
        assert_eq!(percentile(&took[..1], 99), 1.0);
        assert!(percentile(&[], 50).is_nan());
    }
}
