//! B9: tokens run out while nobody is there to refresh them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use roadstead_e2e::Mint;
use roadstead_proto::api::v1::SandboxPhase;
use roadstead_supervisor::{Backoff, Observation, Settings, TokenSource};
use roadstead_testkit::sql::Session;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{eventually, soak};
use tokio::sync::Mutex;

use crate::world::{SOON, Supervised, World};

/// The shortest that there is. For another minute clocks are forgiven.
const LIFETIME: Duration = Duration::from_secs(60);
/// How long nobody is there: longer than a token counts in any way.
const OUTAGE: Duration = Duration::from_secs(180);
/// How much of it is waited for; by the rest the token is made older.
const WAITED: Duration = Duration::from_secs(9);
/// By when a supervisor has found the way back.
const BACK: Duration = Duration::from_secs(30);
/// How long after its end a token can be exchanged.
const GRACE: Duration = Duration::from_secs(24 * 3600);
/// Attempts in vain that are looked at.
const ATTEMPTS: usize = 5;
const DOORS: [Role; 2] = [Role::Edge, Role::SupervisorBridge];

/// Counts the rows that are written to each table, also by transactions that end in nothing. Processes say that they live.
const WRITES: &str = "
    create schema writes;
    create function writes.note() returns trigger language plpgsql security definer as $$
    begin
        perform nextval('writes.' || tg_table_name);
        return null;
    end $$;
    do $$ declare t text; begin
        for t in select tablename from pg_tables where schemaname = 'roadstead' and tablename <> 'process' loop
            execute format('create sequence writes.%I', t);
            execute format('create trigger note_write after insert or update or delete on roadstead.%I
                for each row execute function writes.note()', t);
        end loop;
    end $$";
const WRITTEN: &str = "select sequencename, last_value from pg_sequences where schemaname = 'writes' order by 1";

/// Where a supervisor's token is, and what is in it.
fn file(settings: &Settings) -> PathBuf {
    let TokenSource::File(file) = &settings.token else { panic!("a file") };
    file.clone()
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// All doors are told to stop, and have.
async fn stop_doors(world: &mut World) {
    for node in world.stack.nodes().iter().filter(|node| DOORS.contains(&node.role())) {
        node.victim().terminate();
    }
    for (role, number) in DOORS.into_iter().flat_map(|role| [(role, 1), (role, 2)]) {
        world.stack.node_mut(role, number).ended(SOON).await;
    }
}

async fn start_doors(world: &mut World) {
    for (role, number) in DOORS.into_iter().flat_map(|role| [(role, 1), (role, 2)]) {
        world.stack.node_mut(role, number).resume();
    }
    for (role, number) in DOORS.into_iter().flat_map(|role| [(role, 1), (role, 2)]) {
        world.stack.node_mut(role, number).ready().await;
    }
}

async fn phase(side: &Mutex<Session>, id: &str) -> String {
    side.lock().await.value(&format!("select phase from roadstead.sandbox where id = '{id}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_whose_token_ran_out_while_all_doors_were_shut_is_back_by_itself_and_not_ready_until_then() {
    let plan = Plan::pairs().flag(Role::Admission, format!("--token-lifetime-seconds={}", LIFETIME.as_secs()));
    let mut world = World::start(plan).await;
    let side = Mutex::new(world.stack.session().await);
    let mint = Mint::of(&world.stack);
    let id = world.sandbox("outlived", &[]).await;
    let settings = world.settings("outlived").await;
    let file = file(&settings);
    let supervised = Supervised::start(settings);
    world.until_phase("outlived", SandboxPhase::Ready).await;
    let ready = (SandboxPhase::Ready as i32).to_string();

    stop_doors(&mut world).await;
    let shut = Instant::now();
    eventually(SOON, "it is not READY without a session", async || phase(&side, &id).await != ready).await;
    let waited = soak::period(WAITED).min(OUTAGE);
    if waited < OUTAGE {
        std::fs::write(&file, mint.token(&id, SystemTime::now() - OUTAGE, LIFETIME)).unwrap();
    }
    tokio::time::sleep(waited.saturating_sub(shut.elapsed())).await;
    assert_ne!(phase(&side, &id).await, ready, "READY without a session");
    let expired = read(&file);
    let mut status = supervised.supervisor.status();
    let sessions = status.borrow().sessions;
    start_doors(&mut world).await;

    let back = status.wait_for(|status| status.sessions > sessions && status.connection.is_some());
    assert!(tokio::time::timeout(BACK, back).await.is_ok(), "{:?}", supervised.supervisor.status().borrow());
    world.until_phase("outlived", SandboxPhase::Ready).await;
    assert_ne!(read(&file), expired, "it goes on with the token that had run out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_beyond_its_grace_is_of_no_use_costs_no_write_and_is_tried_ever_less_often_until_there_is_another() {
    let world = World::start(Plan::pairs()).await;
    let side = Mutex::new(world.stack.session().await);
    let id = world.sandbox("forgotten", &[]).await;
    let settings = world.settings("forgotten").await;
    let file = file(&settings);
    let forgotten = Mint::of(&world.stack).token(&id, SystemTime::now() - GRACE - LIFETIME * 2, LIFETIME);
    std::fs::write(&file, forgotten).unwrap();
    side.lock().await.run(WRITES).await;
    // What the creation has left to do is over: nothing is written for a while.
    let last = Mutex::new((side.lock().await.run(WRITTEN).await, Instant::now()));
    eventually(SOON, "nothing is written", async || {
        let now = side.lock().await.run(WRITTEN).await;
        let mut last = last.lock().await;
        if now != last.0 {
            *last = (now, Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(1)
    })
    .await;

    let before = side.lock().await.run(WRITTEN).await;
    let supervised = Supervised::start(settings);
    let ends = |seen: &[Observation]| -> Vec<(String, Instant)> {
        let end = |one: &Observation| match one {
            Observation::Ended { reason, at, .. } => Some((reason.clone(), *at)),
            _ => None,
        };
        seen.iter().filter_map(end).collect()
    };
    let tried = supervised.recorder.wait_for(SOON, |seen| Some(ends(seen)).filter(|ends| ends.len() >= ATTEMPTS)).await;
    let tried = tried.expect("it goes on trying");
    assert!(tried.iter().all(|(reason, _)| reason.starts_with("Unauthenticated")), "{tried:?}");
    for (failures, pair) in tried.windows(2).enumerate() {
        let (gap, least) =
            (pair[1].1.duration_since(pair[0].1), Backoff::default().first * 2_u32.pow(failures as u32) / 2);
        assert!(gap >= least, "after {failures} failures it came again within {gap:?}");
    }
    assert_eq!(side.lock().await.run(WRITTEN).await, before, "attempts in vain were written down");
    assert_eq!(world.phase("forgotten").await, SandboxPhase::Provisioning);

    // An operator mints another one, and nobody restarts anything.
    world.stack.token(&world.workspace, "forgotten").await;
    supervised.session(SOON).await;
    world.until_phase("forgotten", SandboxPhase::Ready).await;
}
