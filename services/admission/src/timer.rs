//! When to look at the deadlines that lie in rows: at the nearest, and sooner if one that is nearer is committed here.
//! Others look for themselves, and everybody looks now and then, so that a replica's death delays what is due by seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use roadstead_store::deadline::Nearest;
use roadstead_store::mutation::{Conclusion, Write};
use tokio::sync::Notify;

/// Longest time between two looks: what may be due may have been committed by a replica that is gone, or by hand.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Wakes whoever waits for the nearest deadline. Clones share it.
#[derive(Clone, Debug)]
pub struct Timer(Arc<State>);

#[derive(Debug)]
struct State {
    /// When the next look is planned, in microseconds since 1970 by Postgres's clock. While one is taken, 0.
    planned: AtomicU64,
    /// The nearest deadline that was committed since the last look began, or the end of time.
    committed: AtomicU64,
    nearer: Notify,
}

impl Default for Timer {
    fn default() -> Self {
        let (planned, committed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self(Arc::new(State { planned, committed, nearer: Notify::new() }))
    }
}

impl Timer {
    /// Takes in the nearest deadline of a commit.
    pub fn committed(&self, deadline: Option<SystemTime>) {
        let Some(deadline) = deadline.map(micros) else { return };
        self.0.committed.fetch_min(deadline, Ordering::SeqCst);
        if deadline < self.0.planned.load(Ordering::SeqCst) {
            self.0.nearer.notify_one();
        }
    }

    /// A look begins: whatever is committed from now on may not be seen by it.
    pub fn looks(&self) {
        self.0.planned.store(0, Ordering::SeqCst);
        self.0.committed.store(u64::MAX, Ordering::SeqCst);
    }

    /// Waits for the next look, which is planned at that time by Postgres's clock, in `pause` from now.
    pub async fn wait(&self, at: SystemTime, pause: Duration) {
        self.0.planned.store(micros(at), Ordering::SeqCst);
        if self.0.committed.load(Ordering::SeqCst) >= micros(at) {
            _ = tokio::time::timeout(pause, self.0.nearer.notified()).await;
        }
    }
}

/// Time until the next look; zero if something is due.
#[must_use]
pub fn pause(nearest: Nearest) -> Duration {
    let until = nearest.deadline.map(|deadline| deadline.duration_since(nearest.now).unwrap_or_default());
    until.map_or(LOOK_EVERY, |until| until.min(LOOK_EVERY))
}

/// How long ago the earliest deadline has passed; zero if none has.
#[must_use]
pub fn overdue(nearest: Nearest) -> Duration {
    nearest.deadline.and_then(|deadline| nearest.now.duration_since(deadline).ok()).unwrap_or_default()
}

/// The nearest deadline that a conclusion writes at `now`, by Postgres's clock.
#[must_use]
pub fn of(conclusion: &Conclusion, now: SystemTime) -> Option<SystemTime> {
    match conclusion {
        Conclusion::Effect { writes, .. } => writes.iter().filter_map(|write| deadline(write, now)).min(),
        Conclusion::Refusal(_) | Conclusion::Replay(_) => None,
    }
}

fn deadline(write: &Write, now: SystemTime) -> Option<SystemTime> {
    match write {
        Write::InsertSandbox(row) | Write::UpdateSandbox(row) => row.deadline,
        Write::InsertProvider(row) | Write::UpdateProvider(row) => {
            // What has expired by now was left out when it did.
            row.credentials.iter().filter_map(|credential| credential.expires_at).filter(|at| *at > now).min()
        }
        _ => None,
    }
}

fn micros(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn at(seconds: u64) -> SystemTime {
        sample::NOW + Duration::from_secs(seconds)
    }

    #[test]
    fn the_next_look_is_at_the_nearest_deadline_and_never_far_away() {
        for (deadline, seconds, late) in [(None, 5, 0), (Some(102), 2, 0), (Some(400), 5, 0), (Some(93), 0, 7)] {
            let nearest = Nearest { now: at(100), deadline: deadline.map(at) };
            assert_eq!((pause(nearest).as_secs(), overdue(nearest).as_secs()), (seconds, late), "{deadline:?}");
        }
    }

    #[test]
    fn sandboxes_and_credentials_have_deadlines() {
        let mut provider = sample::provider("p", &["a", "b", "c"]);
        provider.credentials[0].expires_at = Some(at(9));
        provider.credentials[1].expires_at = Some(at(7));
        let provider = Write::UpdateProvider(provider);
        for (now, nearest) in [(0, Some(at(7))), (7, Some(at(9))), (9, None)] {
            assert_eq!(deadline(&provider, at(now)), nearest, "what has expired is no deadline any more");
        }
        assert_eq!(deadline(&Write::InsertSandbox(sample::sandbox("s")), at(0)), Some(at(300)));
        assert_eq!(deadline(&Write::UpdateSandbox(sample::ready_sandbox("s")), at(0)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_nearer_deadline_wakes_and_none_is_missed_while_looking() {
        let (timer, soon) = (Timer::default(), Duration::from_millis(50));
        let waits = async |timer: &Timer| {
            let begun = tokio::time::Instant::now();
            timer.wait(at(10), soon).await;
            begun.elapsed() >= soon
        };
        assert!(waits(&timer).await, "nothing was committed");
        timer.committed(Some(at(11)));
        timer.committed(None);
        assert!(waits(&timer).await, "what was committed is later than planned");
        timer.committed(Some(at(9)));
        assert!(!waits(&timer).await);
        timer.looks();
        assert!(!waits(&timer).await, "a word too many costs one look");
        timer.looks();
        timer.committed(Some(at(400)));
        assert!(waits(&timer).await, "a far one costs no look, however many are committed");
        timer.looks();
        timer.committed(Some(at(9)));
        assert!(!waits(&timer).await, "the look may have been before it");
    }
}
