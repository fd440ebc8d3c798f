//! Liveness of this process: one row, renewed through admission (D6). A renewal that fails says nothing about the
//! sessions; only an answer does.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::RequestError;
use roadstead_proto::api::v1::SessionRedirect;
use roadstead_proto::internal::renewal::Kind;
use roadstead_proto::internal::{Renewal, Renewed};
use roadstead_proto::subject;
use roadstead_service_kit::clock;
use roadstead_service_kit::readiness::{Condition, Latch};
use tokio_util::sync::CancellationToken;

use crate::bridge::Bridge;
use crate::end::End;

const EVERY: Duration = Duration::from_secs(5);
/// Until the next attempt after one without an answer.
const RETRY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);
/// The sessions of a process that was judged gone end within this time.
const SPREAD: Duration = Duration::from_secs(5);
/// How far this process's clock may be off the database's: deadlines are judged by that one (D2).
const CLOCK_TOLERANCE: Duration = Duration::from_secs(30);

/// What the answers have said so far.
#[derive(Debug, Default)]
pub(crate) struct Judgements {
    judged_gone: bool,
}

impl Judgements {
    /// Takes in an answer: whether the sessions have to be closed. The same judgement is told more than once, since an
    /// answer can be lost, and sessions that began after the first telling are not meant.
    pub(crate) const fn hear(&mut self, judged_gone: bool) -> bool {
        let news = judged_gone && !self.judged_gone;
        self.judged_gone = judged_gone;
        news
    }
}

/// Renews until told to stop. The latch is released by the first answer; the condition is about the clock.
pub(crate) async fn run(bridge: Arc<Bridge>, latch: Latch, mut agrees: Condition, stop: CancellationToken) {
    let request: Bytes =
        Renewal { kind: Kind::Bridge.into(), process_id: bridge.id.to_string() }.encode_to_vec().into();
    let (mut latch, mut judgements) = (Some(latch), Judgements::default());
    let here = bridge.advertise.as_ref().map(|own| {
        Arc::new(SessionRedirect { peer_endpoint: own.as_str().to_owned(), owner_replica_id: bridge.id.to_string() })
    });
    loop {
        let asked = clock::now();
        let pause = match ask(&bridge, request.clone()).await {
            Ok(renewed) => {
                bridge.metrics.renewals.inc();
                bridge.alive.send_replace(true);
                latch.take().into_iter().for_each(Latch::release);
                agrees.set(clocks_agree(asked, clock::now(), renewed.now_micros));
                if judgements.hear(renewed.judged_gone) {
                    tracing::warn!(sessions = bridge.sessions.len(), "judged gone; closing all sessions");
                    bridge.sessions.close_all(End::JudgedGone, SPREAD, Vec::new());
                }
                // Not while admission is away: then nobody could connect again.
                here.iter().for_each(|here| bridge.sessions.ask_over_age(clock::now(), here));
                EVERY
            }
            Err(error) => {
                bridge.metrics.renewals_failed.inc();
                tracing::debug!(%error, "not renewed; trying again");
                RETRY
            }
        };
        if stop
            .run_until_cancelled(tokio::time::sleep(pause.mul_f64(0.9 + rand::random::<f64>() / 10.0)))
            .await
            .is_none()
        {
            return;
        }
    }
}

async fn ask(bridge: &Bridge, request: Bytes) -> Result<Renewed, RequestError> {
    let reply = bridge.bus.request(subject::RENEW, request, PATIENCE).await?;
    Renewed::decode(reply)
        .map_err(|_| RequestError::Failed { code: 0, description: "the answer cannot be read".to_owned() })
}

/// Whether the reading, taken somewhere between two of ours, is close enough.
fn clocks_agree(asked: SystemTime, answered: SystemTime, reading_micros: i64) -> bool {
    let Ok(micros) = u64::try_from(reading_micros) else { return false };
    let reading = UNIX_EPOCH + Duration::from_micros(micros);
    reading + CLOCK_TOLERANCE >= asked && reading <= answered + CLOCK_TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgement_that_is_told_again_closes_nothing_more() {
        let mut judgements = Judgements::default();
        assert!(!judgements.hear(false));
        assert!(judgements.hear(true));
        assert!(!judgements.hear(true));
        assert!(!judgements.hear(false));
        assert!(judgements.hear(true));
    }

    #[test]
    fn clocks_agree_within_the_tolerance_whatever_the_answer_took() {
        let asked = UNIX_EPOCH + Duration::from_secs(1000);
        let answered = asked + Duration::from_secs(2);
        for (seconds, agree) in [(969, false), (970, true), (1001, true), (1032, true), (1033, false)] {
            assert_eq!(clocks_agree(asked, answered, seconds * 1_000_000), agree, "{seconds}");
        }
        assert!(!clocks_agree(asked, answered, -1));
    }
}
