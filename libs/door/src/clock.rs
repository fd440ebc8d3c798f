//! Whether this process's clock agrees with Postgres's, by which deadlines are judged (D2).

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_proto::internal::ClockReading;
use roadstead_proto::subject;
use roadstead_service_kit::clock;
use roadstead_service_kit::readiness::Readiness;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A door whose clock is off by more is not ready.
const TOLERANCE: Duration = Duration::from_secs(30);
/// How often the clocks are compared …
const EVERY: Duration = Duration::from_secs(10);
/// … and how often while the first comparison is still to come.
const AT_FIRST: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(2);

/// The newest comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// None could be made: nobody answers, or nothing that can be read.
    NoAnswer,
    /// The clocks are at most this far apart, and the answer took that long.
    Within {
        /// Zero if they agree as far as can be told.
        off: Duration,
        /// How long the answer took.
        took: Duration,
    },
}

impl Compared {
    /// Compares by a reading that was taken at an unknown moment between `asked` and `answered`.
    fn by(asked: SystemTime, answered: SystemTime, reading: SystemTime) -> Self {
        let took = answered.duration_since(asked).unwrap_or_default();
        let distance = |from: SystemTime, to: SystemTime| to.duration_since(from).unwrap_or_default();
        // Zero if the reading lies between the two.
        let off = distance(reading, asked).max(distance(answered, reading));
        Self::Within { off, took }
    }

    const fn agrees(self) -> Option<bool> {
        match self {
            Self::NoAnswer => None,
            Self::Within { off, .. } => Some(off.as_millis() <= TOLERANCE.as_millis()),
        }
    }

    /// As `/readyz` shows it: the answer came from the database, by way of broker and admission.
    #[must_use]
    pub fn as_check(self) -> Value {
        match self {
            Self::NoAnswer => json!({"status": "error", "error": "no answer"}),
            Self::Within { took, .. } => json!({"status": "ok", "latency_ms": took.as_millis() as u64}),
        }
    }
}

/// Compares the clocks until it is told to stop. The door is not ready before they agreed once, nor while they do not.
pub async fn run(bus: Bus, readiness: Readiness, newest: watch::Sender<Compared>, stop: CancellationToken) {
    let mut agreed_once = Some(readiness.latch("clock"));
    let mut agrees = readiness.condition("clock agrees with the database's");
    loop {
        let compared = compare(&bus).await;
        newest.send_replace(compared);
        // An outage says nothing about the clock.
        if let Some(holds) = compared.agrees() {
            if holds && let Some(latch) = agreed_once.take() {
                latch.release();
            }
            agrees.set(holds);
        }
        let pause = if agreed_once.is_some() { AT_FIRST } else { EVERY };
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

async fn compare(bus: &Bus) -> Compared {
    let asked = clock::now();
    let Ok(answer) = bus.request(subject::CLOCK, Bytes::new(), PATIENCE).await else { return Compared::NoAnswer };
    let answered = clock::now();
    let Ok(ClockReading { now_micros }) = ClockReading::decode(answer) else { return Compared::NoAnswer };
    match u64::try_from(now_micros) {
        Ok(micros) => Compared::by(asked, answered, SystemTime::UNIX_EPOCH + Duration::from_micros(micros)),
        Err(_) => Compared::NoAnswer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_slow_answer_is_no_sign_of_a_wrong_clock() {
        let asked = SystemTime::UNIX_EPOCH + 1000 * SECOND;
        for reading in [asked, asked + SECOND, asked + 2 * SECOND] {
            let compared = Compared::by(asked, asked + 2 * SECOND, reading);
            assert_eq!(compared, Compared::Within { off: Duration::ZERO, took: 2 * SECOND });
        }
    }

    #[test]
    fn a_clock_is_wrong_when_it_is_off_by_more_than_the_tolerance_in_either_direction() {
        let asked = SystemTime::UNIX_EPOCH + 1000 * SECOND;
        let agrees = |reading| Compared::by(asked, asked + SECOND, reading).agrees();
        assert_eq!(agrees(asked - TOLERANCE), Some(true));
        assert_eq!(agrees(asked - TOLERANCE - SECOND), Some(false));
        assert_eq!(agrees(asked + SECOND + TOLERANCE), Some(true));
        assert_eq!(agrees(asked + 2 * SECOND + TOLERANCE), Some(false));
        assert_eq!(Compared::NoAnswer.agrees(), None);
    }
}
