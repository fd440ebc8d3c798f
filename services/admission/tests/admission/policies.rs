//! Changes to one policy by many, at the same time and one after the other.

use std::collections::BTreeSet;

use prost::Message as _;
use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_proto::api::v1::policy_merge_operation::Operation;
use roadstead_proto::api::v1::{self, AddNetworkRule, PolicyMergeOperation, RemoveNetworkRule};
use roadstead_proto::method::Method;
use tonic::Code;

use crate::world::{DoorOf, World, fresh_id, reason, root, scope};

fn rule(host: &str) -> NetworkPolicyRule {
    let endpoint = NetworkEndpoint { host: host.into(), port: 443, ..Default::default() };
    NetworkPolicyRule { endpoints: vec![endpoint], ..Default::default() }
}

fn adding(rule_name: &str) -> PolicyMergeOperation {
    let rule = Some(rule(&format!("{rule_name}.example.com")));
    PolicyMergeOperation { operation: Some(Operation::AddRule(AddNetworkRule { rule_name: rule_name.into(), rule })) }
}

fn removing(rule_name: &str) -> PolicyMergeOperation {
    PolicyMergeOperation { operation: Some(Operation::RemoveRule(RemoveNetworkRule { rule_name: rule_name.into() })) }
}

fn request() -> v1::UpdateConfigRequest {
    v1::UpdateConfigRequest { workspace_scope: scope("w"), sandbox: "box".into(), ..Default::default() }
}

fn merging(operations: &[PolicyMergeOperation]) -> v1::UpdateConfigRequest {
    v1::UpdateConfigRequest { merge_operations: operations.to_vec(), ..request() }
}

fn setting(names: &[&str]) -> v1::UpdateConfigRequest {
    let network_policies = names.iter().map(|name| ((*name).to_owned(), rule(&format!("{name}.example.com"))));
    let policy = SandboxPolicy { version: 1, network_policies: network_policies.collect(), ..Default::default() };
    v1::UpdateConfigRequest { policy: Some(policy), ..request() }
}

async fn update(
    edge: &DoorOf,
    request: &v1::UpdateConfigRequest,
) -> Result<(v1::UpdateConfigResponse, bool), tonic::Status> {
    let (body, replayed) = edge.user_call(&root(), Method::UpdateConfig, request).await?;
    Ok((v1::UpdateConfigResponse::decode(body).unwrap(), replayed))
}

/// Names of the rules of one version, the newest without one.
async fn rules(world: &mut World, version: Option<u32>) -> BTreeSet<String> {
    let version =
        version.map_or("(select max(version) from roadstead.policy_revision)".to_owned(), |at| at.to_string());
    let sql = format!("select encode(policy, 'hex') from roadstead.policy_revision where version = {version}");
    let hex = world.sql.value(&sql).await;
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    SandboxPolicy::decode(bytes.as_slice()).unwrap().network_policies.into_keys().collect()
}

fn named(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merges_that_overlap_all_survive() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    update(&world.edge, &setting(&["base"])).await.unwrap();
    // So that all overlap: nobody gets past the sandbox's row for a while.
    let mut holder = world.session().await;
    holder.hold("select * from roadstead.sandbox for update").await;
    let calls = (0..8).map(|at| {
        let (edge, request) = (world.edge.clone(), merging(&[adding(&format!("r{at}"))]));
        tokio::spawn(async move { update(&edge, &request).await })
    });
    let calls = calls.collect::<Vec<_>>();
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    while world.sql.value(waiting).await == "0" {
        tokio::task::yield_now().await;
    }
    holder.release().await;
    let mut versions = BTreeSet::new();
    for call in calls {
        versions.insert(call.await.unwrap().unwrap().0.version);
    }
    assert_eq!(versions, (2..=9).collect());
    let all = ["base", "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"];
    assert_eq!(rules(&mut world, None).await, named(&all));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_that_races_a_whole_policy_is_before_it_or_after_it() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let mut version = 0;
    for round in 0..6 {
        update(&world.edge, &setting(&["old"])).await.unwrap();
        version += 1;
        let (whole, merge) = (setting(&["new"]), merging(&[adding("more")]));
        let other = world.edge.clone();
        // Each goes first in turn, as far as a caller can say.
        let (first, second) = if round % 2 == 0 { (whole.clone(), merge) } else { (merge, whole.clone()) };
        let first_is_whole = first == whole;
        let first = tokio::spawn(async move { update(&other, &first).await.unwrap().0 });
        let second = update(&world.edge, &second).await.unwrap().0;
        let first = first.await.unwrap();
        let (whole, merge) = if first_is_whole { (first, second) } else { (second, first) };
        version += 2;
        assert_eq!(BTreeSet::from([whole.version, merge.version]), BTreeSet::from([version - 1, version]));
        assert_eq!(rules(&mut world, Some(whole.version)).await, named(&["new"]));
        let built_on = if whole.version < merge.version { "new" } else { "old" };
        assert_eq!(rules(&mut world, Some(merge.version)).await, named(&[built_on, "more"]));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_is_all_or_nothing_and_says_what_it_came_to() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let refused = update(&world.edge, &merging(&[adding("web")])).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("no policy yet"), "{}", refused.message());
    update(&world.edge, &setting(&["base"])).await.unwrap();

    let half = merging(&[adding("web"), removing("none")]);
    let refused = update(&world.edge, &half).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with("merge_operations[1].remove_rule.rule_name: "), "{}", refused.message());
    let refused = update(&world.edge, &merging(&[adding("web"), removing("")])).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(world.sql.value("select count(*) from roadstead.policy_revision").await, "1");

    // What it came to, with the annotations merged in the same write.
    let annotations = [("by".to_owned(), "ann".to_owned())].into();
    let current = world.sql.value("select resource_version from roadstead.sandbox").await.parse().unwrap();
    let annotated =
        v1::UpdateConfigRequest { annotations, expected_resource_version: current, ..merging(&[adding("web")]) };
    let (told, _) = update(&world.edge, &annotated).await.unwrap();
    assert_eq!((told.version, told.annotations["by"].as_str()), (2, "ann"));
    assert_eq!(rules(&mut world, Some(2)).await, named(&["base", "web"]));
    let kept = "select hash || ' ' || provenance::text from roadstead.policy_revision where version = 2";
    assert_eq!(world.sql.value(kept).await, format!("{} {{\"by\":\"ann\"}}", told.policy_hash));

    // The version that it expected is gone, whoever asks.
    let stale = update(&world.edge, &annotated).await.unwrap_err();
    assert_eq!((stale.code(), reason(&stale)), (Code::Aborted, Some("RESOURCE_VERSION_CONFLICT")));
    // The same again is the same version.
    let again = v1::UpdateConfigRequest { expected_resource_version: 0, ..annotated };
    assert_eq!(update(&world.edge, &again).await.unwrap().0, told);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_is_replayed_by_its_request_id_and_other_operations_are_another_request() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    update(&world.edge, &setting(&["base"])).await.unwrap();
    let with_id = |operations: &[PolicyMergeOperation], request_id: &str| v1::UpdateConfigRequest {
        request_id: request_id.into(),
        ..merging(operations)
    };
    let id = fresh_id();
    let merge = with_id(&[adding("one"), adding("two")], &id);
    let (told, replayed) = update(&world.edge, &merge).await.unwrap();
    assert!(!replayed);
    // What was recorded is shown, not what came after it.
    update(&world.edge, &merging(&[removing("one")])).await.unwrap();
    assert_eq!(update(&world.edge, &merge).await.unwrap(), (told, true));
    assert_eq!(rules(&mut world, None).await, named(&["base", "two"]));
    for other in [&[adding("one")][..], &[adding("two"), adding("one")], &[adding("one"), adding("three")]] {
        let mismatch = update(&world.edge, &with_id(other, &id)).await.unwrap_err();
        assert_eq!(reason(&mismatch), Some("REQUEST_ID_PAYLOAD_MISMATCH"));
    }
    // A refusal frees the id.
    let id = fresh_id();
    let early = with_id(&[removing("later")], &id);
    assert_eq!(update(&world.edge, &early).await.unwrap_err().code(), Code::FailedPrecondition);
    update(&world.edge, &merging(&[adding("later")])).await.unwrap();
    assert!(!update(&world.edge, &early).await.unwrap().1);
    world.stop().await;
}
