//! Builds that race each other, and changes that race a build. Each order is forced: a proxy stops a builder just before
//! a chosen message, a side session holds what it wants to read.

use prost::Message as _;
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{PolicyStatus, SandboxSpec};
use roadstead_proto::internal::{BootstrapReply, SnapshotEntry};
use roadstead_proto::role::Role;
use roadstead_store::migrate;
use roadstead_store::mutation::Write;
use roadstead_store::row;
use roadstead_testkit::proxy::Direction::ToServer;
use roadstead_testkit::{Proxy, eventually};
use uuid::Uuid;

use crate::world::{LONG, World, now, response};

/// A builder reads an entry, and writes it.
const READS: &str = "$JS.API.STREAM.MSG.GET.KV_snapshots";
const WRITES: &str = "$KV.snapshots.";
/// How the statement begins with which a builder reads what it builds from. No other of the role does.
const BUILD: &str = "SELECT asked.n, e.value,";
const ALL: usize = 1_000_000;

/// Two replicas: one has the marks and hears no questions, the other hears questions and has no marks.
struct Pair {
    world: World,
    of_marks: Proxy,
    of_questions: Proxy,
    sandbox: row::Sandbox,
}

impl Pair {
    async fn new() -> Self {
        let mut world = World::bare().await;
        let of_marks = Proxy::before_broker(world.broker.port()).await;
        of_marks.drop_messages(ToServer, "roadstead.config.", ALL);
        let of_questions = Proxy::before_broker(world.broker.port()).await;
        of_questions.drop_messages(ToServer, "$JS.API.CONSUMER.MSG.NEXT.DIRTY.", ALL);
        world.start_replica(of_marks.nats_url());
        world.start_replica(of_questions.nats_url());
        world.serves().await;
        let workspace = world.workspace("w").await;
        let sandbox = world.sandbox(&workspace, "box", &[]).await;
        world.entry_where(sandbox.id, "an entry without a policy", |_| true).await;
        world.idle().await;
        Self { world, of_marks, of_questions, sandbox }
    }

    async fn policy(&self, version: u32) {
        self.world.policy(Some(self.sandbox.id), version, policy(version)).await;
    }

    /// A policy that no mark tells of.
    async fn silent_policy(&self, version: u32) {
        let revision = revision(self.sandbox.id, version, PolicyStatus::Pending);
        self.world.write_silently(vec![Write::InsertPolicyRevision(revision)]).await;
    }

    async fn bootstrap(&self) -> SnapshotEntry {
        let answer = response(self.world.bootstrap(&self.sandbox).await);
        BootstrapReply::decode(answer).unwrap().entry.unwrap()
    }

    async fn standing(&self) -> SnapshotEntry {
        self.world.entry(self.sandbox.id).await.unwrap().0
    }
}

fn policy(version: u32) -> SandboxPolicy {
    SandboxPolicy { version, ..Default::default() }
}

fn revision(sandbox_id: Uuid, version: u32, status: PolicyStatus) -> row::PolicyRevision {
    let policy = policy(version);
    row::PolicyRevision {
        scope: Some(sandbox_id),
        version,
        hash: roadstead_policy::canonical::hash(&policy),
        policy,
        status,
        load_error: String::new(),
        created_at: now(),
        loaded_at: None,
        provenance: row::Pairs::new(),
    }
}

fn version(entry: &SnapshotEntry) -> u32 {
    entry.config.as_ref().unwrap().version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_builders_of_one_entry_the_one_that_writes_last_takes_nothing_back() {
    for stops_before in [READS, WRITES] {
        let pair = Pair::new().await;
        pair.of_marks.halt_at(ToServer, stops_before);
        pair.policy(1).await;
        pair.of_marks.halted(1).await;
        pair.silent_policy(2).await;
        let newest = pair.bootstrap().await;
        assert_eq!(version(&newest), 2);
        pair.of_marks.heal();
        pair.world.idle().await;
        assert_eq!(pair.standing().await, newest, "the builder that stopped before {stops_before} wrote over it");
        pair.world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_was_overtaken_hands_out_what_overtook_it() {
    let pair = Pair::new().await;
    pair.silent_policy(1).await;
    pair.of_questions.halt_at(ToServer, WRITES);
    let overtake = async {
        pair.of_questions.halted(1).await;
        pair.policy(2).await;
        let written = pair.world.entry_where(pair.sandbox.id, "the newest policy", |entry| version(entry) == 2).await;
        pair.of_questions.heal();
        written.0
    };
    let (handed_out, written) = tokio::join!(pair.bootstrap(), overtake);
    assert_eq!(handed_out, written);
    pair.world.idle().await;
    assert_eq!(pair.standing().await, written);
    pair.world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_comes_while_its_sandbox_is_built_is_not_lost() {
    for stops_before in [READS, WRITES] {
        let pair = Pair::new().await;
        pair.of_marks.halt_at(ToServer, stops_before);
        pair.policy(1).await;
        pair.of_marks.halted(1).await;
        pair.policy(2).await;
        pair.of_marks.heal();
        pair.world.entry_where(pair.sandbox.id, "the newest policy", |entry| version(entry) == 2).await;
        pair.world.idle().await;
        pair.world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_attached_while_a_build_waits_for_any_table_is_in_both_halves_or_in_neither() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    world.policy(Some(sandbox.id), 1, policy(1)).await;
    let (mut holder, watcher) = (world.sql().await, tokio::sync::Mutex::new(world.sql().await));
    let waiting = format!(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and usename = '{}' \
         and datname = current_database() and query like '{BUILD}%'",
        migrate::user(Role::ConfigSnapshot).unwrap()
    );
    let tables = ["sandbox", "attachment", "provider", "policy_revision", "setting", "settings_revision", "epoch"];
    for (number, table) in tables.into_iter().enumerate() {
        world.idle().await;
        let provider = world.provider(&workspace, &format!("p{number}"), "s3cret").await;
        holder.hold(&format!("lock table roadstead.{table} in access exclusive mode")).await;
        let attach = async {
            eventually(LONG, "the build waits", async || {
                (watcher.lock().await.value(&waiting).await != "0").then_some(())
            })
            .await;
            holder
                .run(&format!(
                    "update roadstead.sandbox set attachment_epoch = gen_random_uuid() where id = '{id}';
                     insert into roadstead.attachment (sandbox_id, provider_id) values ('{id}', '{}');
                     commit",
                    provider.id,
                    id = sandbox.id
                ))
                .await;
        };
        let (answer, ()) = tokio::join!(world.bootstrap(&sandbox), attach);
        let entry = BootstrapReply::decode(response(answer)).unwrap().entry.unwrap();
        let attached = agreed(&world, sandbox.id, &entry);

        let sql = format!("select attachment_epoch from roadstead.sandbox where id = '{}'", sandbox.id);
        let current = watcher.lock().await.value(&sql).await;
        let has_it = entry.config.as_ref().unwrap().provider_attachment_epoch == current;
        assert_eq!(attached.contains(&format!("P{number}_URL")), has_it, "waiting for {table}: {attached:?}");

        world.mark(workspace.id, sandbox.id).await;
        world.idle().await;
        let last = world.entry(sandbox.id).await.unwrap().0;
        assert!(agreed(&world, sandbox.id, &last).contains(&format!("P{number}_URL")), "the last build lacks it");
        assert_eq!(last.config.unwrap().provider_attachment_epoch, current);
    }
    world.stop().await;
}

/// The halves say of each other what they are; the names that the environment sets.
fn agreed(world: &World, sandbox_id: Uuid, entry: &SnapshotEntry) -> Vec<String> {
    let (config, environment) = (entry.config.as_ref().unwrap(), world.environment(sandbox_id, entry));
    let pair = (&config.provider_attachment_epoch, config.provider_env_revision, &config.policy_hash);
    let other = (&environment.provider_attachment_epoch, environment.provider_env_revision, &environment.policy_hash);
    assert_eq!(pair, other);
    environment.values.into_iter().map(|value| value.name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_of_the_policy_of_the_creation_waits_for_no_apply_result_and_takes_none_back() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let spec = SandboxSpec { policy: Some(policy(1)), ..Default::default() };
    let sandbox = world.sandbox_of(&workspace, "box", spec, &[]).await;
    let build = async || BootstrapReply::decode(response(world.bootstrap(&sandbox).await)).unwrap().entry.unwrap();
    let first = build().await;
    assert_eq!(version(&first), 1, "what it was created with is revision 1 before anybody has written it");
    let mut sql = world.sql().await;
    assert_eq!(sql.value("select count(*) from roadstead.policy_revision").await, "0", "a build wrote a revision");

    // It is written, and while an apply result is being recorded on it, it is built.
    let written = Write::InsertPolicyRevision(revision(sandbox.id, 1, PolicyStatus::Pending));
    world.write_silently(vec![written]).await;
    sql.hold("update roadstead.policy_revision set status = 3, load_error = 'no'").await;
    assert_eq!(build().await, first);
    sql.run("commit").await;

    // The apply result came first.
    assert_eq!(build().await, first);
    let stands = sql.run("select version, status, load_error from roadstead.policy_revision").await;
    assert_eq!(stands, [["1", "3", "no"]]);
    world.stop().await;
}
