//! A sandbox is READY only while a session stands, whatever holds its row while supervisors come and go.

use std::time::Duration;

use roadstead_proto::api::sandbox::{SettingValue, setting_value::Value};
use roadstead_proto::api::v1::SandboxPhase;
use roadstead_supervisor::{Behaviour, Settings};
use roadstead_testkit::sql::Session;
use roadstead_testkit::stack::Plan;
use roadstead_testkit::{eventually, soak};
use tokio::sync::Mutex;

use crate::world::{SOON, Supervised, World};

const ROUNDS: u32 = 3;
/// How long a supervisor stays that finds the row locked.
const VISIT: Duration = Duration::from_millis(700);

/// Counts, in Postgres itself, every time the row is READY without a session.
fn guard(id: &str) -> String {
    format!(
        "create schema guard;
        create table guard.fault (phase int, session uuid);
        create function guard.look() returns trigger language plpgsql security definer as $$
        begin
            insert into guard.fault values (new.phase, new.session_id);
            return null;
        end $$;
        create trigger look after update on roadstead.sandbox for each row
            when (new.id = '{id}' and new.phase = 2 and new.session_id is null) execute function guard.look()"
    )
}

async fn is_at_rest(session: &Mutex<Session>, id: &str) -> Result<(), String> {
    let sql = format!("select phase, session_id is null from roadstead.sandbox where id = '{id}'");
    let rows = session.lock().await.run(&sql).await;
    let [row] = rows.as_slice() else { return Err(format!("{rows:?}")) };
    if row == &["1", "t"] { Ok(()) } else { Err(format!("phase and absence of a session are {row:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_row_is_locked_while_its_supervisor_comes_and_dies_is_not_ready_without_one() {
    let world = World::start(Plan::single()).await;
    let id = world.sandbox("locked", &[]).await;
    let watched = world.watch("locked");
    let (mut side, looking) = (world.stack.session().await, Mutex::new(world.stack.session().await));
    looking.lock().await.run(&guard(&id)).await;
    let lock = format!("select 1 from roadstead.sandbox where id = '{id}' for update");

    for round in 0..soak::count(ROUNDS) {
        // It comes and dies while the row is locked: its registration waits, and may take effect after its death.
        side.hold(&lock).await;
        let visitor = world.supervise("locked").await;
        let accepted = visitor.recorder.wait_for(VISIT, |seen| (!seen.is_empty()).then_some(())).await;
        assert!(accepted.is_none(), "a session was accepted in round {round} though the row is locked");
        visitor.supervisor.kill();
        side.release().await;
        eventually(SOON, "the dead supervisor's sandbox is at rest", || is_at_rest(&looking, &id)).await;

        // It is accepted, and dies after its word that all is well, which waits for the row together with its end.
        let settings = Settings { behaviour: Behaviour::Silent, policy: None, ..world.settings("locked").await };
        let visitor = Supervised::start(settings);
        visitor.session(SOON).await;
        visitor.supervisor.behave(Behaviour::Apply);
        side.hold(&lock).await;
        let before = visitor.recorder.frames().len();
        let toggle = roadstead_proto::api::v1::UpdateConfigRequest {
            global: true,
            workspace_scope: None,
            sandbox: String::new(),
            setting_key: "ocsf_json_enabled".to_owned(),
            setting_value: Some(SettingValue { value: Some(Value::BoolValue(round % 2 == 0)) }),
            ..world.update("")
        };
        world.api().update_config(toggle).await.unwrap();
        visitor.frame(SOON, "the setting", |frame| frame.order > before as u64 && frame.config.is_some()).await;
        visitor.supervisor.kill();
        side.release().await;
        eventually(SOON, "the dead supervisor's sandbox is at rest", || is_at_rest(&looking, &id)).await;
    }

    let faults = looking.lock().await.run("select * from guard.fault").await;
    assert!(faults.is_empty(), "READY without a session: {faults:?}");
    // One that stays makes it READY, so nothing of the visits is in its way.
    let _stays = world.supervise("locked").await;
    world.until_phase("locked", SandboxPhase::Ready).await;
    let shown =
        watched.until(SOON, "READY", |seen| seen.current().is_some_and(|now| now.1 == SandboxPhase::Ready)).await;
    assert_eq!(shown.disorder(), None);
}
