//! A session is about its own sandbox and nothing else.

use std::time::Duration;

use roadstead_e2e::policy::to_host;
use roadstead_supervisor::Observation;
use roadstead_testkit::{soak, stack::Plan};

use crate::world::{SOON, Supervised, World};

const ROUNDS: u32 = 5;
/// How long a neighbour is looked at.
const QUIET: Duration = Duration::from_secs(1);

/// A sandbox and what only its own supervisor may see.
struct Own {
    name: &'static str,
    provider: &'static str,
    credential: &'static str,
    supervised: Supervised,
    hashes: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_never_sees_a_policy_or_a_credential_of_another_sandbox() {
    let world = World::start(Plan::single()).await;
    let mut all = Vec::new();
    for (name, provider, credential) in [
        ("left", "left-key", "LEFT_TOKEN"),
        ("right", "right-key", "RIGHT_TOKEN"),
        ("third", "third-key", "THIRD_TOKEN"),
    ] {
        world.provider(provider, credential).await;
        let supervised = world.ready_sandbox(name, &[provider]).await;
        all.push(Own { name, provider, credential, supervised, hashes: Vec::new() });
    }
    for round in 0..soak::count(ROUNDS) {
        for own in &mut all {
            let host = format!("{}-{round}.example", own.name);
            let (changed, _) = world.set_policy(own.name, to_host(&host, Some(own.provider))).await;
            own.hashes.push(changed.policy_hash);
        }
    }
    for own in &all {
        own.supervised.policy(SOON, own.hashes.last().unwrap()).await;
        own.supervised
            .frame(SOON, own.credential, |frame| {
                frame
                    .environment
                    .as_ref()
                    .is_some_and(|environment| environment.names.contains(&own.credential.to_owned()))
            })
            .await;
    }
    for own in &all {
        for frame in own.supervised.recorder.frames() {
            for other in all.iter().filter(|other| other.name != own.name) {
                let names = frame.environment.as_ref().map(|environment| environment.names.clone()).unwrap_or_default();
                assert!(!names.iter().any(|name| name == other.credential), "{} saw {names:?}", own.name);
                let hash = frame.config.as_ref().map(|config| config.policy_hash.clone()).unwrap_or_default();
                assert!(!other.hashes.contains(&hash), "{} saw a policy of {}", own.name, other.name);
            }
        }
    }
    // Quiet for all but one: a change of one sandbox is nobody else's news.
    let updates = |seen: &[Observation]| seen.iter().filter(|one| matches!(one, Observation::Received(_))).count();
    let before = updates(&all[1].supervised.recorder.observations());
    let (changed, _) = world.set_policy("left", to_host("last.example", Some("left-key"))).await;
    all[0].supervised.policy(SOON, &changed.policy_hash).await;
    let disturbed = |seen: &[Observation]| (updates(seen) > before).then_some(());
    let disturbed = all[1].supervised.recorder.wait_for(QUIET, disturbed).await;
    assert!(disturbed.is_none(), "a neighbour was sent something");
}
