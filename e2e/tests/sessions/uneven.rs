//! S1: builds that take very different times, of changes that come in pairs through two edges, never take anything back.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::sandbox::{NetworkBinary, SandboxPolicy};
use roadstead_proto::api::v1::{UpdateConfigRequest, UpdateProviderRequest};
use roadstead_supervisor::Frame;
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::soak;
use roadstead_testkit::stack::{Plan, Role};

use crate::world::{CROWD, World};

/// A soak has a thousand updates.
const PAIRS: u32 = 30;
/// By when the last commit has arrived.
const END: Duration = Duration::from_secs(2);
/// How much later what one of the two builders asks arrives at Postgres.
const SLOW: Duration = Duration::from_millis(300);
/// Every so many pairs the provider changes too.
const PROVIDER_EVERY: u32 = 5;

/// A policy of its own for each number; every other one is a hundred times as large.
fn policy(number: u32) -> SandboxPolicy {
    let mut policy = to_host(&format!("host-{number}.example"), Some("key"));
    if number.is_multiple_of(2) {
        let path = |at: u32| format!("/opt/{}/{number}/{at}", "long".repeat(50));
        let binaries = (0..800).map(|at| NetworkBinary { path: path(at) });
        policy.network_policies.get_mut("web").unwrap().binaries = binaries.collect();
    }
    policy
}

/// Changes the policy through one of the edges.
async fn commit(world: &World, edge: usize, number: u32) -> (u32, String) {
    let request = UpdateConfigRequest { policy: Some(policy(number)), ..world.update("uneven") };
    let changed = client(&world.stack.edge(edge)).update_config(request).await.unwrap().into_inner();
    (changed.version, changed.policy_hash)
}

/// Gives the provider one more value.
async fn grow(world: &World, number: u32) {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: "key".to_owned(), ..Default::default() }),
        config: BTreeMap::from([(format!("GROWN_{number}"), "1".to_owned())]),
        ..Default::default()
    };
    let workspace_scope = scope(&world.workspace);
    let request = UpdateProviderRequest {
        workspace_scope,
        provider: Some(provider),
        request_id: request_id(),
        ..Default::default()
    };
    client(&world.stack.edge(2)).update_provider(request).await.unwrap();
}

/// How many values the provider had by then.
fn grown(frame: &Frame) -> Option<usize> {
    let names = &frame.environment.as_ref()?.names;
    Some(names.iter().filter(|name| name.starts_with("GROWN_")).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn however_uneven_builds_are_no_component_goes_back_and_the_last_commit_arrives_last() {
    let world = World::start(Plan::pairs()).await;
    world.provider("key", "KEY_TOKEN").await;
    let supervised = world.ready_sandbox("uneven", &["key"]).await;
    world.stack.node(Role::ConfigSnapshot, 1).postgres.as_ref().unwrap().slow(Direction::ToServer, SLOW);

    let mut last = (0, String::new());
    for pair in 0..soak::count(PAIRS).min(500) {
        let second = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            commit(&world, 2, 2 * pair + 1).await
        };
        let provider = async {
            if pair.is_multiple_of(PROVIDER_EVERY) {
                grow(&world, pair).await;
            }
        };
        let (first, second, ()) = tokio::join!(commit(&world, 1, 2 * pair), second, provider);
        last = last.max(first).max(second);
    }
    let provider_changes = soak::count(PAIRS).min(500).div_ceil(PROVIDER_EVERY) as usize;
    let end = END + CROWD;
    supervised.frame(end, "the last commit", |frame| has_version(frame, last.0)).await;
    supervised.frame(end, "all of the provider", |frame| grown(frame) == Some(provider_changes)).await;

    // Whatever was still being built when the last commit arrived has come to its end as well.
    tokio::time::sleep(4 * SLOW).await;
    let frames = supervised.recorder.frames();
    let versions: Vec<u32> = frames.iter().filter_map(|frame| Some(frame.config.as_ref()?.policy_version)).collect();
    assert!(versions.is_sorted(), "the configuration went back: {versions:?}");
    assert_eq!(versions.last(), Some(&last.0));
    let environments: Vec<usize> = frames.iter().filter_map(grown).collect();
    assert!(environments.is_sorted(), "the environment went back: {environments:?}");
    let status = supervised.supervisor.status();
    let held = status.borrow().config.clone().unwrap();
    assert_eq!((held.policy_version, held.policy_hash), last);

    // They were uneven indeed, and both of them built.
    for number in 1..=2 {
        let metrics = world.stack.node(Role::ConfigSnapshot, number).metrics().await;
        let built = metrics.lines().any(|line| line.contains("outcome=\"Written\"") && !line.ends_with(" 0"));
        assert!(built, "config-snapshot {number} has built nothing");
    }
}

fn has_version(frame: &Frame, version: u32) -> bool {
    frame.config.as_ref().is_some_and(|config| config.policy_version == version)
}
