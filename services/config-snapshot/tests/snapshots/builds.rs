//! From a change to the entry that shows it.

use std::time::Duration;

use roadstead_bus::feed::{KeyFollower, News};
use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{PolicySource, SandboxPolicy, SettingValue};
use roadstead_proto::bucket::Bucket;
use roadstead_proto::internal::SnapshotEntry;
use roadstead_proto::subject::Lane;
use roadstead_store::mutation::Write;
use roadstead_store::row;

use roadstead_testkit::eventually;

use crate::world::{LONG, World, binding};

fn version(entry: &SnapshotEntry) -> u32 {
    entry.config.as_ref().unwrap().version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_change_of_many_a_workspace_with_one_sandbox_does_not_wait_behind_one_with_hundreds() {
    const MANY: u64 = 200;
    let world = World::new().await;
    let (large, small) = (world.workspace("large").await, world.workspace("small").await);
    let mut many = Vec::new();
    for at in 0..MANY {
        many.push(world.sandbox(&large, &format!("box-{at}"), &[]).await);
    }
    let one = world.sandbox(&small, "box", &[]).await;
    world.idle().await;
    let (_, before_all) = world.entry(one.id).await.unwrap();

    // Every build waits for this lock, until all marks are in hand.
    let mut side = world.sql().await;
    side.hold("lock table roadstead.policy_revision in access exclusive mode").await;
    let value = SettingValue { value: Some(Value::BoolValue(true)) };
    world.write_silently(vec![Write::PutSetting { scope: None, key: "ocsf_json_enabled".into(), value }]).await;
    for sandbox in &many {
        world.mark_in(Lane::Fleet, large.id, sandbox.id).await;
    }
    world.mark_in(Lane::Fleet, small.id, one.id).await;
    eventually(LONG, "all marks are in hand", || async {
        let lane = world.told("CONSUMER.INFO.DIRTY.config-snapshot-fleet").await;
        (lane["num_ack_pending"].as_u64()? == MANY + 1).then_some(())
    })
    .await;
    side.release().await;
    world.idle().await;

    let (_, built) = world.entry(one.id).await.unwrap();
    let mut before = 0;
    for sandbox in &many {
        let (_, revision) = world.entry(sandbox.id).await.unwrap();
        assert!(revision > before_all, "each has changed");
        before += u64::from(revision < built);
    }
    assert!(before < MANY / 2, "it was built after {before} of {MANY}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_becomes_an_entry_and_a_mark_without_a_change_does_not() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let git = world.provider(&workspace, "git", "s3cret").await;
    let sandbox = world.sandbox(&workspace, "box", &[&git]).await;
    let (bare, _) = world.entry_where(sandbox.id, "an entry without a policy", |_| true).await;
    assert_eq!((version(&bare), bare.workspace_id.as_str()), (0, workspace.id.to_string().as_str()));

    world.policy(Some(sandbox.id), 1, binding(&[&git])).await;
    let (entry, revision) = world.entry_where(sandbox.id, "the policy", |entry| version(entry) == 1).await;
    assert!(entry.sequence > bare.sequence);
    let config = entry.config.clone().unwrap();
    assert!(config.configuration_admitted, "{}", config.configuration_error);
    assert_eq!((config.workspace.as_str(), config.policy_source()), ("w", PolicySource::Sandbox));
    let environment = world.environment(sandbox.id, &entry);
    let values = environment.values.iter().map(|value| (value.name.as_str(), value.value.as_str()));
    assert_eq!(values.collect::<Vec<_>>(), [("GIT_TOKEN", "s3cret"), ("GIT_URL", "https://git.example.com")]);
    assert_eq!(environment.provider_env_revision, config.provider_env_revision);
    assert!(!prost::Message::encode_to_vec(&entry).windows(6).any(|bytes| bytes == b"s3cret"));

    world.mark(workspace.id, sandbox.id).await;
    world.idle().await;
    assert_eq!(world.entry(sandbox.id).await.unwrap(), (entry, revision));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_provider_reaches_its_sandboxes_and_no_other() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let git = world.provider(&workspace, "git", "old").await;
    let mut bound = Vec::new();
    for name in ["a", "b", "c"] {
        let sandbox = world.sandbox(&workspace, name, &[&git]).await;
        world.policy(Some(sandbox.id), 1, binding(&[&git])).await;
        bound.push(sandbox);
    }
    let other = world.sandbox(&workspace, "other", &[]).await;
    let (_, untouched) = world.entry_where(other.id, "its entry", |_| true).await;
    world.idle().await;

    let credentials = vec![world.credential(git.id, "GIT_TOKEN", "new")];
    world.write(vec![Write::UpdateProvider(row::Provider { resource_version: 2, credentials, ..git })]).await;
    for sandbox in &bound {
        let shows = |entry: &SnapshotEntry| {
            world.environment(sandbox.id, entry).values.iter().any(|value| value.value == "new")
        };
        world.entry_where(sandbox.id, "the new value", shows).await;
    }
    world.idle().await;
    assert_eq!(world.entry(other.id).await.unwrap().1, untouched);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_global_reaches_every_sandbox_and_goes_again() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let mut sandboxes = Vec::new();
    for name in ["a", "b"] {
        let sandbox = world.sandbox(&workspace, name, &[]).await;
        world.policy(Some(sandbox.id), 1, SandboxPolicy::default()).await;
        sandboxes.push(sandbox);
    }
    world.global_setting("ocsf_json_enabled", true).await;
    world.policy(None, 1, SandboxPolicy { version: 7, ..Default::default() }).await;
    for sandbox in &sandboxes {
        let shows = |entry: &SnapshotEntry| {
            let config = entry.config.as_ref().unwrap();
            let set = config.settings["ocsf_json_enabled"].value.is_some();
            set && config.policy_source() == PolicySource::Global && config.global_policy_version == 1
        };
        world.entry_where(sandbox.id, "the global policy", shows).await;
    }
    let write = Write::DeleteSetting { scope: None, key: roadstead_policy::settings::POLICY_KEY.into() };
    world.write(vec![write]).await;
    for sandbox in &sandboxes {
        let restored = |entry: &SnapshotEntry| entry.config.as_ref().unwrap().policy_source() == PolicySource::Sandbox;
        world.entry_where(sandbox.id, "its own policy", restored).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_entry_of_a_sandbox_that_is_gone_goes_too() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    world.entry_where(sandbox.id, "its entry", |_| true).await;
    let key = sandbox.id.to_string();
    let mut follower = KeyFollower::follow(&world.bridge, Bucket::Snapshots, &key).await.unwrap();
    world.write(vec![Write::DeleteSandbox(sandbox.id)]).await;
    loop {
        match follower.next().await.unwrap() {
            News::Stored(stored) if stored.value.is_none() => break,
            News::Stored(_) | News::Gap => {}
        }
    }
    assert!(world.entry(sandbox.id).await.is_none());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_two_replicas_only_rise_and_end_at_the_last_commit() {
    const LAST: u32 = 40;
    let world = World::with_replicas(2).await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    let key = sandbox.id.to_string();
    let mut follower = KeyFollower::follow(&world.bridge, Bucket::Snapshots, &key).await.unwrap();
    for version in 1..=LAST {
        let policy = SandboxPolicy { version, ..Default::default() };
        world.policy(Some(sandbox.id), version, policy).await;
    }
    let mut before = (0, 0);
    while before.1 < LAST {
        let news = tokio::time::timeout(Duration::from_secs(20), follower.next()).await.expect("news").unwrap();
        let News::Stored(stored) = news else { continue };
        let entry = <SnapshotEntry as prost::Message>::decode(stored.value.unwrap()).unwrap();
        let now = (entry.sequence, version(&entry));
        assert!(now.0 > before.0 && now.1 >= before.1, "{now:?} after {before:?}");
        before = now;
    }
    world.idle().await;
    assert_eq!(version(&world.entry(sandbox.id).await.unwrap().0), LAST);
    world.stop().await;
}
