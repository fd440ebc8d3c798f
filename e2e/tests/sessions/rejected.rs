//! S4: a rejected revision is not sent again and again, and is not in the way of the next.

use std::time::Duration;

use roadstead_e2e::policy::to_host;
use roadstead_proto::api::v1::{ConfigApplyOutcome, PolicyStatus, SandboxPhase};
use roadstead_supervisor::{Answer, Behaviour, Settings};
use roadstead_testkit::{eventually, soak, stack::Plan};

use crate::world::{CROWD, SOON, Supervised, World};

/// How long it is looked at whether a rejected revision comes again.
const LOOK: Duration = Duration::from_secs(4);
/// By when a change arrives.
const WINDOW: Duration = Duration::from_secs(1);
/// How often a revision that is rejected each time may come in that time: the gaps begin with 30 s.
const A_FEW: usize = 2;

async fn is_left_alone(supervised: &Supervised, hash: &str, before: usize) {
    let looking = soak::period(LOOK);
    let too_many = supervised.recorder.wait_for(looking, |seen| (seen.len() > before + 40).then_some(())).await;
    assert!(too_many.is_none(), "a loop");
    let times = supervised.times_sent(hash);
    assert!(times <= A_FEW, "sent {times} times within {looking:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_revision_is_not_sent_in_a_loop_and_the_next_valid_one_is_sent_at_once() {
    let world = World::start(Plan::single()).await;
    world.sandbox("picky", &[]).await;
    let settings = world.settings("picky").await;
    let supervised = Supervised::start(settings.clone());
    let neighbour = world.ready_sandbox("neighbour", &[]).await;
    world.until_phase("picky", SandboxPhase::Ready).await;

    let reason = format!("line one\nline two\u{7}{}", "x".repeat(20_000));
    for retryable in [false, true] {
        supervised.supervisor.behave(Behaviour::Answer(Answer {
            outcome: ConfigApplyOutcome::FailedRetainedLastKnownGood,
            code: "NO".to_owned(),
            message: reason.clone(),
            retryable,
        }));
        let before = supervised.recorder.observations().len();
        let host = format!("refused-{retryable}.example");
        let (refused, _) = world.set_policy("picky", to_host(&host, None)).await;
        supervised.policy(SOON, &refused.policy_hash).await;
        let (change, committed) = world.set_policy("neighbour", to_host(&host, None)).await;
        let arrived = neighbour.policy(SOON, &change.policy_hash).await.at.saturating_duration_since(committed);
        assert!(arrived <= WINDOW + CROWD, "the neighbour waited {arrived:?}");
        is_left_alone(&supervised, &refused.policy_hash, before).await;
        if !retryable {
            let failed = eventually(SOON, "the revision has failed", async || {
                let revision = world.revision("picky", refused.version).await;
                (revision.status() == PolicyStatus::Failed).then_some(revision)
            })
            .await;
            let error = failed.load_error;
            assert!(error.starts_with("line one line two") && error.len() <= 1024, "{} bytes: {error}", error.len());
            assert!(!error.chars().any(char::is_control), "{error:?}");
        }

        supervised.supervisor.behave(Behaviour::Apply);
        let (valid, committed) = world.set_policy("picky", to_host(&format!("valid-{retryable}.example"), None)).await;
        let arrived = supervised.policy(SOON, &valid.policy_hash).await.at.saturating_duration_since(committed);
        assert!(arrived <= WINDOW + CROWD, "the next revision took {arrived:?}");
        eventually(SOON, "the next revision is loaded", async || {
            let status = world.revision("picky", valid.version).await.status();
            if status == PolicyStatus::Loaded { Ok(()) } else { Err(format!("it is {status:?}")) }
        })
        .await;
    }

    // Nor does a new session of the same supervisor turn it into a loop.
    let (refused, _) = world.set_policy("picky", to_host("refused-again.example", None)).await;
    supervised.policy(SOON, &refused.policy_hash).await;
    supervised.supervisor.stop().await;
    let again = Supervised::start(Settings { behaviour: Behaviour::reject("no"), ..settings });
    again.policy(SOON, &refused.policy_hash).await;
    is_left_alone(&again, &refused.policy_hash, 0).await;
}
