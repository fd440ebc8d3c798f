//! What each role may do on the broker, and that it may do nothing else (D9). A denied publish is silence, so each
//! attempt is checked by the count of violations, and all together by the store's unchanged state.

use async_nats::jetstream;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use nkeys::KeyPair;
use roadstead_bus::door::CommandClient;
use roadstead_bus::feed::{KeyFollower, News};
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::pull::{self, Delivery};
use roadstead_bus::service::{Endpoint, serve};
use roadstead_bus::topology::{self, Part};
use roadstead_bus::{Bus, ConnectSettings, bucket};
use roadstead_proto::bucket::Bucket;
use roadstead_proto::role::Role;
use roadstead_proto::stream::{Consumer, Stream};
use roadstead_proto::subject;
use roadstead_testkit::{Broker, eventually};
use secrecy::SecretString;
use tokio::time::Instant;
use uuid::Uuid;

use crate::world::{LONG, Running};

const ID: &str = "00000000-0000-0000-0000-000000000000";

/// Something to attempt, and who may.
struct Attempt {
    kind: Kind,
    subject: String,
    allowed: &'static [Role],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Publish,
    Subscribe,
}

use Kind::{Publish, Subscribe};
use Role::{Admission, ConfigSnapshot, Edge, Operator, SupervisorBridge, Watch};

const DOORS: &[Role] = &[Edge, SupervisorBridge];
const SERVERS: &[Role] = &[Admission, ConfigSnapshot, SupervisorBridge, Watch];
const NOBODY: &[Role] = &[];

/// Every subject there is, by the roles that need it.
fn attempts() -> Vec<Attempt> {
    let table: &[(Kind, &str, &[Role])] = &[
        // Queues: who may put in.
        (Publish, "roadstead.command.CreateSandbox", &[Edge]),
        (Publish, "roadstead.report.RegisterSession", &[SupervisorBridge]),
        (Publish, "roadstead.change.sandbox.W.S", &[Admission]),
        (Publish, "roadstead.dirty.one.W.S", &[Admission]),
        (Publish, "roadstead.dirty.fleet.W.S", &[Admission, ConfigSnapshot]),
        // Queues: who may take out.
        (Publish, "$JS.API.CONSUMER.MSG.NEXT.COMMANDS.admission-commands", &[Admission]),
        (Publish, "$JS.API.CONSUMER.MSG.NEXT.REPORTS.admission-reports", &[Admission]),
        (Publish, "$JS.API.CONSUMER.MSG.NEXT.CHANGES.watch-projection", &[Watch]),
        (Publish, "$JS.API.CONSUMER.MSG.NEXT.CHANGES.config-snapshot-expansion", &[ConfigSnapshot]),
        (Publish, "$JS.API.CONSUMER.MSG.NEXT.DIRTY.config-snapshot-one", &[ConfigSnapshot]),
        (Publish, "$JS.API.CONSUMER.MSG.NEXT.DIRTY.config-snapshot-fleet", &[ConfigSnapshot]),
        (Publish, "$JS.ACK.COMMANDS.admission-commands.1.1.1.1.0", &[Admission]),
        (Publish, "$JS.ACK.REPORTS.admission-reports.1.1.1.1.0", &[Admission]),
        (Publish, "$JS.ACK.CHANGES.watch-projection.1.1.1.1.0", &[Watch]),
        (Publish, "$JS.ACK.CHANGES.config-snapshot-expansion.1.1.1.1.0", &[ConfigSnapshot]),
        (Publish, "$JS.ACK.DIRTY.config-snapshot-one.1.1.1.1.0", &[ConfigSnapshot]),
        (Publish, "$JS.ACK.DIRTY.config-snapshot-fleet.1.1.1.1.0", &[ConfigSnapshot]),
        // One consumer's name where another's ack has numbers.
        (Publish, "$JS.ACK.COMMANDS.admission-commands.CHANGES.watch-projection.1.1.1", &[Admission]),
        (Publish, "$JS.ACK.COMMANDS.admission-commands.DIRTY.config-snapshot-one.1.1.1", &[Admission]),
        (Publish, "$JS.API.STREAM.MSG.GET.COMMANDS", NOBODY),
        (Publish, "$JS.API.STREAM.MSG.GET.REPORTS", NOBODY),
        (Publish, "$JS.API.DIRECT.GET.COMMANDS", NOBODY),
        (Subscribe, "roadstead.command.>", NOBODY),
        (Subscribe, "roadstead.report.>", NOBODY),
        (Subscribe, "roadstead.change.>", NOBODY),
        (Subscribe, "roadstead.dirty.>", NOBODY),
        (Subscribe, "$JS.ACK.>", NOBODY),
        // Activity: bridges write lines, admission events, edges read.
        (Publish, "roadstead.activity.S.log", &[SupervisorBridge]),
        (Publish, "roadstead.activity.S.event", &[Admission]),
        (Publish, "roadstead.activity.S.other", NOBODY),
        (Publish, "roadstead.feed.activity.S.log", NOBODY),
        (Publish, "$JS.API.DIRECT.GET.ACTIVITY", &[Edge]),
        (Publish, "$JS.API.STREAM.MSG.GET.ACTIVITY", &[Edge]),
        (Publish, "$JS.API.STREAM.INFO.ACTIVITY", &[Admission, Edge]),
        (Publish, "$JS.API.STREAM.PURGE.ACTIVITY", NOBODY),
        (Subscribe, "roadstead.activity.>", NOBODY),
        (Subscribe, "roadstead.feed.activity.>", &[Edge]),
        // Buckets.
        (Publish, "$KV.snapshots.S", &[ConfigSnapshot]),
        (Publish, "$KV.sandboxes.W.S", &[Watch]),
        (Publish, "$KV.rights.W", &[Watch]),
        (Publish, "$JS.API.STREAM.MSG.GET.KV_snapshots", &[ConfigSnapshot, SupervisorBridge]),
        (Publish, "$JS.API.STREAM.MSG.GET.KV_sandboxes", &[Watch, Edge, SupervisorBridge]),
        (Publish, "$JS.API.STREAM.MSG.GET.KV_rights", &[Watch, Edge]),
        (Publish, "$JS.API.DIRECT.GET.KV_snapshots.$KV.snapshots.S", NOBODY),
        (Subscribe, "$KV.>", NOBODY),
        (Subscribe, "$KV.snapshots.S", NOBODY),
        // Feeds: only the broker speaks there.
        (Publish, "roadstead.feed.snapshots.S", NOBODY),
        (Publish, "roadstead.feed.sandboxes.W.S", NOBODY),
        (Publish, "roadstead.feed.rights.W", NOBODY),
        (Subscribe, "roadstead.feed.snapshots.S", &[SupervisorBridge]),
        (Subscribe, "roadstead.feed.sandboxes.W.S", DOORS),
        (Subscribe, "roadstead.feed.sandboxes.>", DOORS),
        (Subscribe, "roadstead.feed.rights.>", &[Edge]),
        (Subscribe, "roadstead.feed.>", NOBODY),
        // Topology: admission's, and nobody may destroy.
        (Publish, "$JS.API.STREAM.CREATE.OTHER", &[Admission]),
        (Publish, "$JS.API.STREAM.UPDATE.COMMANDS", &[Admission]),
        (Publish, "$JS.API.STREAM.DELETE.COMMANDS", NOBODY),
        (Publish, "$JS.API.STREAM.PURGE.COMMANDS", NOBODY),
        (Publish, "$JS.API.STREAM.MSG.DELETE.COMMANDS", NOBODY),
        (Publish, "$JS.API.STREAM.RESTORE.COMMANDS", NOBODY),
        (Publish, "$JS.API.STREAM.SNAPSHOT.KV_snapshots", NOBODY),
        (Publish, "$JS.API.STREAM.NAMES", NOBODY),
        (Publish, "$JS.API.STREAM.INFO.COMMANDS", &[Admission, Edge]),
        (Publish, "$JS.API.STREAM.INFO.REPORTS", &[Admission, SupervisorBridge]),
        (Publish, "$JS.API.STREAM.INFO.CHANGES", &[Admission, Watch, ConfigSnapshot]),
        (Publish, "$JS.API.STREAM.INFO.DIRTY", &[Admission, ConfigSnapshot]),
        (Publish, "$JS.API.STREAM.INFO.KV_snapshots", &[Admission, ConfigSnapshot, SupervisorBridge]),
        (Publish, "$JS.API.STREAM.INFO.KV_sandboxes", &[Admission, Watch, Edge, SupervisorBridge]),
        (Publish, "$JS.API.STREAM.INFO.KV_rights", &[Admission, Watch, Edge]),
        (Publish, "$JS.API.CONSUMER.CREATE.KV_sandboxes", &[Admission]),
        (Publish, "$JS.API.CONSUMER.CREATE.KV_sandboxes.mine", &[Admission]),
        (Publish, "$JS.API.CONSUMER.CREATE.COMMANDS.mine.roadstead.command.>", &[Admission]),
        (Publish, "$JS.API.CONSUMER.DURABLE.CREATE.COMMANDS.mine", NOBODY),
        (Publish, "$JS.API.CONSUMER.DELETE.COMMANDS.admission-commands", NOBODY),
        (Publish, "$JS.API.CONSUMER.PAUSE.COMMANDS.admission-commands", NOBODY),
        (Publish, "$JS.API.CONSUMER.INFO.COMMANDS.admission-commands", &[Admission]),
        (Publish, "$JS.API.CONSUMER.INFO.CHANGES.watch-projection", &[Admission, Watch]),
        (Publish, "$JS.API.CONSUMER.INFO.DIRTY.config-snapshot-one", &[Admission, ConfigSnapshot]),
        (Subscribe, "$JS.API.>", NOBODY),
        (Subscribe, "$JS.EVENT.>", NOBODY),
        // Requests.
        (Publish, "roadstead.read.GetSandbox", &[Edge]),
        (Publish, "roadstead.read.GetSandbox.all", &[Edge]),
        (Publish, "roadstead.read.GetSandbox.other.all", NOBODY),
        (Publish, "roadstead.config.user.GetSandboxConfig", &[Edge]),
        (Publish, "roadstead.config.user.GetSandboxConfig.all", &[Edge]),
        (Publish, "roadstead.config.sandbox.Bootstrap", &[SupervisorBridge]),
        (Publish, "roadstead.config.sandbox.Bootstrap.all", &[SupervisorBridge]),
        (Publish, "roadstead.admin.MintSandboxToken", &[Operator]),
        (Publish, "roadstead.admin.MintSandboxToken.all", NOBODY),
        (Publish, "roadstead.admin.SettleCommand", &[Operator]),
        (Publish, "roadstead.admin.Another", NOBODY),
        (Publish, "roadstead.admission.renew", &[Admission, SupervisorBridge]),
        (Publish, "roadstead.admission.clock", DOORS),
        (Subscribe, "roadstead.admission.clock", &[Admission]),
        (Subscribe, "roadstead.read.GetSandbox", &[Watch]),
        (Subscribe, "roadstead.read.GetSandbox.all", &[Watch]),
        (Subscribe, "roadstead.config.user.GetSandboxConfig", &[ConfigSnapshot]),
        (Subscribe, "roadstead.config.sandbox.Bootstrap.all", &[ConfigSnapshot]),
        (Subscribe, "roadstead.config.sandbox.Bootstrap", &[ConfigSnapshot]),
        (Publish, "roadstead.bridge.1.ReportProviderReadiness", &[SupervisorBridge]),
        (Subscribe, "roadstead.bridge.1.ReportProviderReadiness", &[SupervisorBridge]),
        (Publish, "roadstead.bridge.1.Another", NOBODY),
        (Subscribe, "roadstead.admin.MintSandboxToken", &[Admission]),
        (Subscribe, "roadstead.admission.renew", &[Admission]),
        (Publish, "$SRV.PING", &[Operator]),
        (Subscribe, "$SRV.PING", SERVERS),
        // The broker itself, and everything at once.
        (Publish, "$SYS.REQ.SERVER.PING", NOBODY),
        (Subscribe, "$SYS.>", NOBODY),
        (Subscribe, ">", NOBODY),
        (Subscribe, "roadstead.>", NOBODY),
        (Subscribe, "_INBOX.>", NOBODY),
        (Publish, "_INBOX.x", NOBODY),
    ];
    let mut attempts: Vec<_> = table
        .iter()
        .map(|&(kind, subject, allowed)| {
            let subject = subject.replace("W.S", &format!("{ID}.{ID}")).replace(".W", &format!(".{ID}"));
            let subject = if subject.ends_with(".S") { subject.replace(".S", &format!(".{ID}")) } else { subject };
            Attempt { kind, subject, allowed }
        })
        .collect();
    // Inboxes: a role reads its own, admission answers at doors, and a role may wake itself.
    for role in Role::ALL {
        let prefix = role.inbox_prefix();
        let own: &'static [Role] = Box::leak(Box::new([role]));
        let answered = if DOORS.contains(&role) { &[Admission][..] } else { NOBODY };
        attempts.extend([
            Attempt { kind: Subscribe, subject: format!("{prefix}.{ID}.reply.*"), allowed: own },
            Attempt { kind: Publish, subject: format!("{prefix}.{ID}.reply.1"), allowed: NOBODY },
            Attempt { kind: Publish, subject: format!("{prefix}.{ID}.answer.{ID}"), allowed: answered },
            Attempt { kind: Publish, subject: format!("{prefix}.{ID}.barrier.1"), allowed: own },
        ]);
    }
    attempts
}

struct Deployment {
    broker: Broker,
    seeds: Vec<(Role, String)>,
    observer: String,
}

impl Deployment {
    async fn new() -> Self {
        let seeds: Vec<_> = Role::ALL.map(|role| (role, KeyPair::new_user())).into_iter().collect();
        let observer = KeyPair::new_user();
        let users = seeds.iter().map(|(role, pair)| (*role, pair.public_key())).collect();
        let config = limits_and_users(&Auth::Nkeys(users));
        // The observer may do everything.
        let config = config.replace("users: [", &format!("users: [ {{ nkey: {} }}", observer.public_key()));
        let broker = Broker::start(&config).await;
        let seeds = seeds.into_iter().map(|(role, pair)| (role, pair.seed().unwrap())).collect();
        Self { broker, seeds, observer: observer.seed().unwrap() }
    }

    async fn bus(&self, role: Role) -> Bus {
        let seed = &self.seeds.iter().find(|(of, _)| *of == role).unwrap().1;
        let settings = ConnectSettings {
            url: self.broker.url(),
            name: role.name().into(),
            role,
            nkey_seed: Some(SecretString::from(seed.clone())),
            ca: None,
        };
        let bus = Bus::connect(settings).await.unwrap();
        tokio::time::timeout(LONG, bus.connected()).await.unwrap();
        bus
    }

    async fn observer(&self) -> async_nats::Client {
        async_nats::ConnectOptions::with_nkey(self.observer.clone()).connect(self.broker.url()).await.unwrap()
    }
}

/// Makes one attempt and returns when the broker has judged it.
async fn attempt(bus: &Bus, kind: Kind, subject: &str) {
    match kind {
        Publish => bus.publish(subject, Bytes::from("attempt")).await.unwrap(),
        Subscribe => drop(bus.subscribe_effective(subject).await.unwrap()),
    }
    // The broker judges in order, and this is made effective after it.
    drop(bus.subscribe_effective(format!("{}.probe", bus.inbox().prefix())).await.unwrap());
}

/// All streams' counts and all consumers' positions.
async fn state(store: &jetstream::Context) -> Vec<String> {
    let mut lines = Vec::new();
    let mut streams = store.streams();
    while let Some(info) = streams.try_next().await.unwrap() {
        lines.push(format!("{} {} {}", info.config.name, info.state.messages, info.state.last_sequence));
        let stream = store.get_stream(&info.config.name).await.unwrap();
        let mut consumers = stream.consumers();
        while let Some(info) = consumers.try_next().await.unwrap() {
            lines.push(format!("{} {} {}", info.name, info.num_waiting, info.delivered.consumer_sequence));
        }
    }
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn no_role_can_do_what_it_does_not_need_and_each_attempt_is_noticed() {
    let deployment = Deployment::new().await;
    topology::ensure(&deployment.bus(Admission).await, 1).await.unwrap();
    let client = deployment.observer().await;
    let store = jetstream::new(client.clone());
    let before = state(&store).await;
    let mut everything = client.subscribe(">").await.unwrap();
    store.query_account().await.unwrap();

    let attempts = attempts();
    for role in Role::ALL {
        let bus = deployment.bus(role).await;
        for Attempt { kind, subject, .. } in attempts.iter().filter(|attempt| !attempt.allowed.contains(&role)) {
            let count = bus.violations();
            attempt(&bus, *kind, subject).await;
            eventually(LONG, &format!("{role}: {kind:?} {subject} is a violation"), || async {
                bus.violations() > count
            })
            .await;
        }
    }
    assert_eq!(state(&store).await, before);
    client.publish("test.end", Bytes::new()).await.unwrap();
    while let Some(message) = everything.next().await {
        assert_ne!(message.payload, "attempt", "{} got through", message.subject);
        if message.subject.as_str() == "test.end" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_can_do_what_it_needs() {
    let deployment = Deployment::new().await;
    topology::ensure(&deployment.bus(Admission).await, 1).await.unwrap();
    for role in Role::ALL {
        let bus = deployment.bus(role).await;
        for Attempt { kind, subject, .. } in attempts().iter().filter(|attempt| attempt.allowed.contains(&role)) {
            attempt(&bus, *kind, subject).await;
            assert_eq!(bus.violations(), 0, "{role}: {kind:?} {subject}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_can_work_together() {
    let deployment = Deployment::new().await;
    let admission = deployment.bus(Admission).await;
    let (edge, watch, bridge) =
        (deployment.bus(Edge).await, deployment.bus(Watch).await, deployment.bus(SupervisorBridge).await);
    let (snapshot, operator) = (deployment.bus(ConfigSnapshot).await, deployment.bus(Operator).await);
    topology::ensure(&admission, 1).await.unwrap();
    let parts = [Part::Stream(Stream::Commands), Part::Bucket(Bucket::Sandboxes), Part::Bucket(Bucket::Rights)];
    tokio::time::timeout(LONG, topology::wait(&edge, &parts)).await.unwrap();

    // Commands and reports, with their answers.
    let mut loops = Vec::new();
    for consumer in [Consumer::Commands, Consumer::Reports] {
        let bus = admission.clone();
        loops.push(Running::start(move |stop| async move {
            let handler = |delivery: Delivery| {
                let bus = bus.clone();
                async move {
                    delivery.progress().await;
                    bus.publish(delivery.reply().unwrap(), delivery.payload().clone()).await.unwrap();
                    delivery.ack().await;
                }
            };
            pull::run(&bus, consumer, 2, stop, handler).await.unwrap();
        }));
    }
    let deadline = Instant::now() + LONG;
    for (bus, subject) in [(&edge, "roadstead.command.CreateSandbox"), (&bridge, "roadstead.report.EndSession")] {
        let client = CommandClient::new(bus, 8).await.unwrap();
        let answer = client.call(subject, Uuid::now_v7(), "command".into(), deadline).await;
        assert_eq!(answer.unwrap(), "command");
    }

    // Requests, with their answers.
    let observe = subject::observe(Uuid::nil());
    let served: [(&Bus, &[&str]); 4] = [
        (&bridge, &[&observe]),
        (&watch, &["roadstead.read.GetSandbox"]),
        (&snapshot, &["roadstead.config.user.GetSandboxConfig", "roadstead.config.sandbox.Bootstrap"]),
        (&admission, &[subject::RENEW, subject::CLOCK, "roadstead.admin.MintSandboxToken"]),
    ];
    for (bus, subjects) in served {
        let bus = bus.clone();
        let endpoints =
            subjects.iter().map(|&subject| Endpoint::new(subject, |request| async move { request })).collect();
        loops.push(Running::start(move |stop| async move {
            serve(&bus, bus.role().name(), endpoints, 4, stop).await.unwrap();
        }));
    }
    let asked: [(&Bus, &[&str]); 4] = [
        (&edge, &["roadstead.read.GetSandbox", "roadstead.config.user.GetSandboxConfig", subject::CLOCK]),
        (&bridge, &["roadstead.config.sandbox.Bootstrap", subject::RENEW, subject::CLOCK, &observe]),
        (&admission, &[subject::RENEW]),
        (&operator, &["roadstead.admin.MintSandboxToken", "$SRV.PING"]),
    ];
    for (bus, subjects) in asked {
        for &subject in subjects {
            eventually(LONG, subject, || bus.request(subject, "?".into(), LONG)).await;
        }
    }

    // Entries, read by those who follow them.
    let followed = [
        (&watch, Bucket::Sandboxes, &edge),
        (&watch, Bucket::Rights, &edge),
        (&snapshot, Bucket::Snapshots, &bridge),
        (&watch, Bucket::Sandboxes, &bridge),
    ];
    for (writer, name, reader) in followed {
        let key = if name == Bucket::Sandboxes { format!("{ID}.{ID}") } else { ID.to_owned() };
        let mut follower = KeyFollower::follow(reader, name, &key).await.unwrap();
        let (bucket, reading) = (bucket::Bucket::new(writer, name), bucket::Bucket::new(reader, name));
        let before = bucket.read_from_leader(&key).await.unwrap().revision;
        let revision = bucket.update(&key, "value".into(), before).await.unwrap();
        let news = tokio::time::timeout(LONG, follower.next()).await.unwrap();
        assert!(matches!(news, Some(News::Stored(stored)) if stored.revision == revision));
        assert_eq!(reading.read_from_leader(&key).await.unwrap().revision, revision);
        bucket.keys(0).await.unwrap();
        bucket.purge(&key, revision).await.unwrap();
    }

    for running in loops {
        running.stop().await;
    }
    for bus in [edge, admission, snapshot, watch, bridge, operator] {
        assert_eq!(bus.violations(), 0, "{}", bus.role());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_listed_and_no_key_at_all_are_not_let_in() {
    let deployment = Deployment::new().await;
    let stranger = KeyPair::new_user().seed().unwrap();
    for seed in [Some(SecretString::from(stranger)), None] {
        let settings = ConnectSettings {
            url: deployment.broker.url(),
            name: "stranger".into(),
            role: Edge,
            nkey_seed: seed,
            ca: None,
        };
        let bus = Bus::connect(settings).await.unwrap();
        assert!(tokio::time::timeout(std::time::Duration::from_secs(1), bus.connected()).await.is_err());
        assert_eq!(bus.connects(), 0);
    }
}
