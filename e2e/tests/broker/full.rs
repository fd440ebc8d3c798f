//! Streams at their limits, consumers that are slow or frozen, and more changes than fit.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use roadstead_bus::{Bus, bucket::Bucket};
use roadstead_e2e::{
    Fleet, Load,
    api::{client, request_id},
    connection::{connect_as, limit},
    convergence, effect,
    effect::{Mutation, Told},
};
use roadstead_proto::{
    api::v1::CreateWorkspaceRequest,
    bucket::{Bucket as Name, SandboxKey},
    internal::SandboxEntry,
    role::Role as KeysOf,
    stream::{Consumer, Stream},
};
use roadstead_testkit::{
    Stack, eventually, generate,
    proxy::Direction,
    soak,
    sql::Session,
    stack::{Plan, Role},
};
use tokio::sync::Mutex;

/// Supervised sandboxes.
const SUPERVISED: usize = 4;
/// Others, which are changed all at once.
const OTHERS: u32 = 200;
/// How often each of them is changed.
const CHANGES: u32 = 3;
/// By when all is delivered after a burst.
const DELIVERED: Duration = Duration::from_secs(30);
/// How much later each byte comes to who is slow.
const SLOW: Duration = Duration::from_millis(20);
/// Entries that are read at a time.
const READS: usize = 32;

/// Room that is far too small for what comes.
const ROOM: [(Stream, i64); 5] =
    [(Stream::Changes, 150), (Stream::Dirty, 50), (Stream::Commands, 3), (Stream::Reports, 2), (Stream::Activity, 5)];

#[tokio::test(flavor = "multi_thread")]
async fn more_changes_than_fit_are_refused_up_front_or_wait_and_all_are_delivered_when_there_is_room() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, SUPERVISED).await;
    let (admission, edge) =
        (connect_as(&mut stack, KeysOf::Admission).await, connect_as(&mut stack, KeysOf::Edge).await);
    let mut session = stack.session().await;
    let others = others(&stack, &mut session).await;
    for role in [Role::Watch, Role::ConfigSnapshot] {
        let slow = stack.node(role, 1);
        slow.nats.slow(Direction::ToClient, SLOW);
        slow.postgres.as_ref().unwrap().slow(Direction::ToClient, SLOW);
    }

    let mut mutations = Vec::new();
    for _ in 0..soak::factor() {
        mutations.extend(burst(&stack, &fleet, &mut session, &admission, &others).await);
        // There is room again: admission puts right what it finds after a reconnect.
        stack.broker().restart().await;
        let rows = Mutex::new(&mut session);
        eventually(DELIVERED, "the last revision of all is delivered", async || {
            undelivered(&edge, *rows.lock().await, &others).await
        })
        .await;
        eventually(DELIVERED, "nothing waits", async || waits(&stack).await).await;
    }
    let refused = mutations.iter().filter(|mutation| !mutation.told.is_done());
    let refused: Vec<_> = refused.map(|mutation| &mutation.told).collect();
    assert!(refused.iter().all(|told| is_refused_up_front(told)), "{refused:?}");
    assert!(!refused.is_empty(), "the queue of commands was never full");
    convergence::assert_converges(&stack, &fleet).await;
    effect::assert_sound(&mut session, fleet.workspace(), &mutations).await;
    fleet.assert_never_unready(&mut session).await;
    fleet.assert_ordered();
    assert_eq!(fleet.sessions(), [1; SUPERVISED], "a session was lost");
}

/// A workspace with many sandboxes, made past admission.
async fn others(stack: &Stack, session: &mut Session) -> String {
    let workspace = generate::unique("others");
    let request = CreateWorkspaceRequest { name: workspace.clone(), request_id: request_id(), ..Default::default() };
    client(&stack.edge(1)).create_workspace(request).await.unwrap();
    session
        .run(&format!(
            "insert into roadstead.sandbox (id, workspace_id, workspace_name, name, phase, attachment_epoch) \
             select gen_random_uuid(), w.id, w.name, 'other-' || n, 1, gen_random_uuid() \
             from roadstead.workspace w, generate_series(1, {OTHERS}) n where w.name = '{workspace}'"
        ))
        .await;
    workspace
}

/// Changes everything, with load on, while there is next to no room and half of the consumers stand still.
async fn burst(stack: &Stack, fleet: &Fleet, session: &mut Session, admission: &Bus, others: &str) -> Vec<Mutation> {
    for (stream, messages) in ROOM {
        limit(admission, stream, messages).await;
    }
    for role in [Role::Watch, Role::ConfigSnapshot] {
        stack.node(role, 2).victim().freeze();
    }
    let load = Load::start(&Fleet::edges(stack), fleet.workspace(), &fleet.names());
    for _ in 0..CHANGES {
        let change = "update roadstead.sandbox set resource_version = resource_version + 1";
        session.run(&format!("{change} where workspace_name = '{others}'")).await;
        load.progress(10).await;
    }
    // An operator sees it.
    eventually(DELIVERED, "marks wait", async || {
        stack.node(Role::Admission, 1).metric("roadstead_marks_waiting{role=\"admission\"}").await > 0.0
    })
    .await;
    for role in [Role::Watch, Role::ConfigSnapshot] {
        stack.node(role, 2).victim().thaw();
    }
    load.stop().await
}

fn is_refused_up_front(told: &Told) -> bool {
    matches!(told, Told::Refused(why) if why.starts_with("ResourceExhausted") && why.contains("nothing was done"))
}

/// Whether the projection shows the version that Postgres has, for each of them.
async fn undelivered(edge: &Bus, session: &mut Session, workspace: &str) -> Result<(), String> {
    let sql = format!(
        "select id, workspace_id, resource_version from roadstead.sandbox where workspace_name = '{workspace}'"
    );
    let bucket = Bucket::new(edge, Name::Sandboxes);
    let late = stream::iter(session.run(&sql).await).map(|row| {
        let bucket = bucket.clone();
        async move {
            let (sandbox_id, workspace_id) = (row[0].parse().unwrap(), row[1].parse().unwrap());
            let key = SandboxKey::Sandbox { workspace_id, sandbox_id }.to_string();
            let entry = bucket.read_from_leader(&key).await.ok()?.value?;
            (SandboxEntry::decode(entry).unwrap().version.to_string() == row[2]).then_some(())
        }
    });
    let shown: Vec<Option<()>> = late.buffer_unordered(READS).collect().await;
    let late = shown.iter().filter(|shown| shown.is_none()).count();
    if late == 0 && shown.len() == OTHERS as usize {
        Ok(())
    } else {
        Err(format!("{late} of {} are late", shown.len()))
    }
}

/// Whether each lag is back at zero, as an operator sees it.
async fn waits(stack: &Stack) -> Result<(), String> {
    let metrics = stack.node(Role::Admission, 1).metrics().await;
    let mut lags = BTreeMap::new();
    for line in metrics.lines() {
        let is_lag = ["roadstead_marks_waiting{", "roadstead_consumer_pending{", "roadstead_consumer_unacked{"]
            .iter()
            .any(|name| line.starts_with(name));
        if is_lag && let Some((series, value)) = line.rsplit_once(' ') {
            lags.insert(series, value);
        }
    }
    let consumers: BTreeSet<_> = Consumer::ALL.iter().map(|consumer| consumer.config().name).collect();
    let are_shown =
        |name: &str| consumers.iter().all(|of| lags.keys().any(|lag| lag.starts_with(name) && lag.contains(of)));
    assert!(are_shown("roadstead_consumer_pending") && are_shown("roadstead_consumer_unacked"), "{lags:?}");
    lags.retain(|_, value| *value != "0");
    if lags.is_empty() { Ok(()) } else { Err(format!("{lags:?}")) }
}
