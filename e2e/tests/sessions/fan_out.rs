//! S7: the whole fleet is changed far more often than it can follow.

use std::time::{Duration, Instant, SystemTime};

use roadstead_e2e::api::request_id;
use roadstead_e2e::policy::to_host;
use roadstead_e2e::{Held, Mint};
use roadstead_proto::api::sandbox::{SettingValue, setting_value::Value};
use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{SupervisorHeartbeat, SupervisorMessage, UpdateConfigRequest};
use roadstead_supervisor::{Behaviour, default_policy};
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::soak;
use roadstead_testkit::sql::Session;
use roadstead_testkit::stack::{Node, Plan, Role};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use crate::crowd::{Reader, median, readers, sandboxes};
use crate::world::{SOON, World};

/// Supervisors that read and answer; a tenth as many reads and never answers, and a tenth reads nothing.
const READERS: u32 = 30;
const ONE_IN: u32 = 10;
/// Changes of the whole deployment, a hundred in a soak, and the time from one to the next.
const CHANGES: u32 = 50;
const EVERY: Duration = Duration::from_millis(50);
/// From one change of a single sandbox to the next.
const SINGLE: Duration = Duration::from_millis(200);
/// Changes whose answers are measured, and what is forgiven to those that concern many, on a loaded machine.
const MEASURED: u32 = 10;
const TIMES: u32 = 3;
const CROWD: Duration = Duration::from_millis(500);
/// Until all have a session.
const ALL: Duration = Duration::from_secs(60);
/// Until all that read have the last change: ten seconds, and as long again for a loaded machine.
const CONVERGED: Duration = Duration::from_secs(20);
/// How long half of the changes of a single sandbox may take, on a loaded machine.
const WAIT: Duration = Duration::from_secs(2);
/// How much later each byte of the database comes to those who build, so that building is what takes its time.
const SLOW: Duration = Duration::from_millis(20);
/// A supervisor that does not answer is sent what is newest once in this time, and the fleet is built once in no less.
const WINDOW: Duration = Duration::from_millis(500);
/// Bytes that may be on their way to one that reads nothing, and updates that these are at most, with the one that waits
/// for room and the one that is newest.
const UNREAD: u32 = 4096;
const BUFFERED: u32 = 12;
/// By how much a process may grow meanwhile, in bytes.
const GROWTH: u64 = 48 * 1024 * 1024;
const HOUR: Duration = Duration::from_secs(3600);

/// Notes each row that is written to by a transaction that ends well, but for those that say that a process lives.
const WRITES: &str = "
    create schema writes;
    create table writes.row (transaction bigint, name text, operation text);
    create function writes.note() returns trigger language plpgsql security definer as $$
    begin
        insert into writes.row values (txid_current(), tg_table_name, tg_op);
        return null;
    end $$;
    do $$ declare t text; begin
        for t in select tablename from pg_tables where schemaname = 'roadstead' and tablename <> 'process' loop
            execute format('create trigger note_write after insert or update or delete on roadstead.%I
                for each row execute function writes.note()', t);
        end loop;
    end $$";

/// The most rows that one change of the whole deployment has written since the last question.
async fn rows_of_a_change(side: &mut Session) -> u64 {
    const MOST: &str = "select max(rows) from (select count(*) as rows from writes.row group by transaction
        having bool_or(name = 'policy_revision' and operation = 'INSERT')) as change";
    let most = side.value(MOST).await.parse().unwrap();
    side.run("truncate writes.row").await;
    most
}

/// Gives the whole deployment another policy; its version, and how long the answer took.
async fn change(mut api: roadstead_e2e::api::Client, number: u32) -> (u32, Duration) {
    let request = UpdateConfigRequest {
        global: true,
        policy: Some(to_host(&format!("change-{number}.example"), None)),
        request_id: request_id(),
        ..Default::default()
    };
    let asked = Instant::now();
    let changed = api.update_config(request).await.unwrap().into_inner();
    (changed.version, asked.elapsed())
}

/// How long the answer takes to half of some changes that are made one after the other.
async fn answers(world: &World, from: u32) -> Duration {
    let mut took = Vec::new();
    for number in from..from + MEASURED {
        took.push(change(world.api(), number).await.1);
    }
    median(took)
}

/// So many changes, at their times whatever the answers take; the newest version.
async fn changes(world: &World, from: u32, count: u32) -> u32 {
    let mut pace = tokio::time::interval(EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut calls = JoinSet::new();
    for number in from..from + count {
        pace.tick().await;
        calls.spawn(change(world.api(), number));
    }
    calls.join_all().await.into_iter().map(|(version, _)| version).max().unwrap()
}

/// Changes one sandbox's own setting again and again until it is told to stop: how long its supervisor waited each time.
async fn change_one(world: &World, reader: &Reader, stop: watch::Receiver<bool>) -> Vec<Duration> {
    let (mut on, mut waits) = (false, Vec::new());
    while !*stop.borrow() {
        on = !on;
        let request = UpdateConfigRequest {
            setting_key: "ocsf_json_enabled".to_owned(),
            setting_value: Some(SettingValue { value: Some(Value::BoolValue(on)) }),
            ..world.update(&reader.name)
        };
        let revision = world.api().update_config(request).await.unwrap().into_inner().settings_revision;
        let answered = Instant::now();
        let seen = reader.until(SOON, "has its own change", |seen| seen.settings.0 >= revision).await;
        waits.push(seen.settings.1.unwrap().saturating_duration_since(answered));
        tokio::time::sleep(SINGLE).await;
    }
    waits
}

/// The processes through which changes fan out.
fn processes(world: &World) -> impl Iterator<Item = &Node> {
    let roles = [Role::ConfigSnapshot, Role::SupervisorBridge];
    world.stack.nodes().iter().filter(move |node| roles.contains(&node.role()))
}

/// Looks until it is told to stop: the most marks that waited, and by how much a process grew.
async fn look(world: &World, stop: watch::Receiver<bool>) -> (f64, u64) {
    let before: Vec<u64> = processes(world).map(|node| node.victim().memory()).collect();
    let (mut waiting, mut growth): (f64, u64) = (0.0, 0);
    while !*stop.borrow() {
        for (node, before) in processes(world).zip(&before) {
            growth = growth.max(node.victim().memory().saturating_sub(*before));
            let metrics = node.metrics().await;
            let depths = metrics.lines().filter(|line| line.starts_with("roadstead_snapshot_lane_depth{"));
            waiting = depths.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).fold(waiting, f64::max);
        }
        tokio::time::sleep(EVERY).await;
    }
    (waiting, growth)
}

/// Sessions that read nothing, but say that they live.
async fn stuck(world: &World, count: u32) -> Vec<Held> {
    let mint = Mint::of(&world.stack);
    let mut held = Vec::new();
    for (number, (_, id)) in sandboxes(world, "stuck", count, &default_policy()).await.into_iter().enumerate() {
        let token = mint.token(&id, SystemTime::now(), HOUR);
        let bridge = world.stack.bridge(1 + number % 2);
        let one = Held::open_narrow(&bridge, &token, &id, Uuid::new_v4(), 1, UNREAD).await.unwrap();
        let to_bridge = one.to_bridge.clone();
        tokio::spawn(async move {
            let beat = || SupervisorMessage { payload: Some(Payload::Heartbeat(SupervisorHeartbeat {})) };
            while to_bridge.send(beat()).await.is_ok() {
                tokio::time::sleep(SOON / 2).await;
            }
        });
        held.push(one);
    }
    held
}

/// Reads until it has that policy of the whole deployment; how many updates came.
async fn read_again(held: &mut Held, version: u32) -> u32 {
    let mut updates = 0;
    loop {
        let message = held.from_bridge.message().await.unwrap().expect("the session stands");
        let Some(FromBridge::ConfigUpdate(update)) = message.payload else { continue };
        updates += 1;
        if update.sandbox_config.is_some_and(|config| config.global_policy_version == version) {
            return updates;
        }
    }
}

fn most_frames(readers: &[Reader], before: &[u32]) -> u32 {
    readers.iter().zip(before).map(|(reader, before)| reader.newest().frames - before).max().unwrap()
}

fn frames(readers: &[Reader]) -> Vec<u32> {
    readers.iter().map(|reader| reader.newest().frames).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_the_whole_fleet_is_changed_what_waits_and_is_sent_is_bounded_and_nobody_else_waits_for_it() {
    // Few slots, so that the fleet cannot follow.
    let slots = format!("--build-slots={}", soak::count(4).min(256));
    let world = World::start(Plan::pairs().flag(Role::ConfigSnapshot, slots)).await;
    let mut side = world.stack.session().await;
    side.run(WRITES).await;
    let alone = answers(&world, 0).await;
    let rows_alone = rows_of_a_change(&mut side).await;

    let count = soak::count(READERS);
    let crowd = readers(&world, "reader", count, &default_policy(), ALL).await;
    let silent = readers(&world, "silent", count / ONE_IN, &default_policy(), ALL).await;
    let single = readers(&world, "single", 1, &default_policy(), ALL).await.remove(0);
    let mut stuck = stuck(&world, count / ONE_IN).await;
    let sandboxes = count + 2 * (count / ONE_IN) + 1;
    silent.iter().for_each(|reader| reader.behave(Behaviour::Silent));
    let before = (frames(&crowd), frames(&silent));
    side.run("truncate writes.row").await;

    let builders: Vec<&Node> = world.stack.nodes().iter().filter(|node| node.role() == Role::ConfigSnapshot).collect();
    // With nobody who could fan them out, changes are answered all the same.
    builders.iter().for_each(|builder| builder.victim().freeze());
    let with_all = answers(&world, MEASURED).await;
    builders.iter().for_each(|builder| builder.victim().thaw());
    builders.iter().for_each(|builder| builder.postgres.as_ref().unwrap().slow(Direction::ToClient, SLOW));

    let (stop, stopping) = watch::channel(false);
    let begun = Instant::now();
    let changing = async {
        let changed = changes(&world, 2 * MEASURED, soak::count(CHANGES).min(100)).await;
        let last = Instant::now();
        for reader in crowd.iter().chain(&silent) {
            let left = CONVERGED.saturating_sub(last.elapsed());
            reader.until(left, "has the last change", |seen| seen.global.0 == changed).await;
        }
        stop.send_replace(true);
        (changed, last.elapsed())
    };
    let ((version, converged), waits, (waiting, growth)) =
        tokio::join!(changing, change_one(&world, &single, stopping.clone()), look(&world, stopping));
    let windows = u32::try_from(begun.elapsed().as_millis() / WINDOW.as_millis()).unwrap() + 1;
    let rows = rows_of_a_change(&mut side).await;
    let sent = (most_frames(&crowd, &before.0), most_frames(&silent, &before.1));
    let one = median(waits);
    let figures = format!(
        "{sandboxes} sandboxes; answers after {alone:?} without and {with_all:?} with them, {rows_alone} and {rows} rows; \
         {sent:?} updates in {windows} windows, all have the last {converged:?} after it; {waiting} marks waited at most; \
         a single sandbox waited {one:?}; {growth} bytes more"
    );
    eprintln!("{figures}");

    assert!(rows <= rows_alone + 1, "a change writes for everybody whom it concerns: {figures}");
    // One of each at the broker, and one in a builder's hand.
    assert!(waiting <= f64::from(2 * sandboxes), "more marks than sandboxes: {figures}");
    assert!(with_all <= TIMES * alone + CROWD, "a change takes longer the more it concerns: {figures}");
    assert!(sent.0.max(sent.1) <= 2 * windows, "every change is sent to everybody: {figures}");
    assert!(one <= WAIT && one <= converged + CROWD, "a single sandbox waits for the fleet: {figures}");
    assert!(growth <= GROWTH, "a process grows with the changes: {figures}");

    // Those who read nothing had nothing kept for them but the newest.
    for held in &mut stuck {
        let read = tokio::time::timeout(SOON, read_again(held, version)).await.expect("the newest arrives");
        assert!(read <= BUFFERED, "{read} updates were kept for one that reads nothing");
    }
}
