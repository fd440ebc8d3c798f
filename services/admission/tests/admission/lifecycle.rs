//! Ends of main processes, restarts, and deadlines, with several replicas that all see to them.

use std::time::{Duration, SystemTime};

use prost::Message as _;
use roadstead_proto::api::v1::{self, SandboxPhase, SandboxRestartPolicy};
use roadstead_proto::internal::Principal;
use roadstead_proto::method::Method;
use roadstead_proto::subject::Report;
use tonic::Code;
use uuid::Uuid;

use crate::sessions::{applied, register};
use crate::sweeps::becomes;
use crate::world::{Told, World, create_sandbox, root, sandbox_of, scope};

/// A sandbox with a supervisor, both known by a number.
struct Running {
    number: u128,
    name: String,
    id: String,
    supervisor: Principal,
}

impl Running {
    async fn start(world: &World, number: u128, policy: SandboxRestartPolicy) -> Self {
        let name = format!("box-{number}");
        let mut request = create_sandbox("w", &name, "");
        request.spec.as_mut().unwrap().set_restart_policy(policy);
        let created = sandbox_of(world.edge.user_call(&root(), Method::CreateSandbox, &request).await);
        let id = created.metadata.unwrap().id;
        let running = Self { supervisor: world.supervisor(&id, 1), number, name, id };
        running.connect(world, 0).await;
        // Its bridge, which nobody plays, is not missed in this test.
        let renewed = "update roadstead.process set renewed_at = clock_timestamp() + interval '1 hour' where kind = 1";
        world.session().await.run(renewed).await;
        running
    }

    fn instance(&self, incarnation: u128) -> String {
        Uuid::from_u128(self.number * 100 + incarnation).to_string()
    }

    /// An instance connects and runs.
    async fn connect(&self, world: &World, incarnation: u128) {
        let session = self.number * 100 + incarnation;
        let hello = register(session, session, 1);
        world.bridge.report(&self.supervisor, Report::RegisterSession, &hello).await.unwrap();
        world.bridge.report(&self.supervisor, Report::SessionResult, &applied(session, 1, 0)).await.unwrap();
    }

    async fn exits(&self, world: &World, incarnation: u128, exit_code: i32) -> Told {
        let instance_id = self.instance(incarnation);
        let exit = v1::ReportMainProcessExitRequest { sandbox_id: self.id.clone(), instance_id, exit_code };
        world.bridge.report(&self.supervisor, Report::ReportMainProcessExit, &exit).await
    }

    async fn finalizes(&self, world: &World, incarnation: u128) -> Told {
        let instance_id = self.instance(incarnation);
        let last = v1::FinalizeMainProcessExitRequest { sandbox_id: self.id.clone(), instance_id };
        world.bridge.report(&self.supervisor, Report::FinalizeMainProcessExit, &last).await
    }

    async fn stops(&self, world: &World) -> Told {
        let stop =
            v1::StopSandboxRequest { name: self.name.clone(), workspace_scope: scope("w"), ..Default::default() };
        world.edge.user_call(&root(), Method::StopSandbox, &stop).await
    }

    /// As after so many restarts in a row that the next one has a pause of two minutes, however long it goes on running.
    async fn has_run_often(&self, world: &World) {
        let status = v1::SandboxStatus {
            restart_count: 8,
            main_process_started_time: Some((SystemTime::now() + Duration::from_secs(3600)).into()),
            ..Default::default()
        };
        let hex: String = status.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
        // Of a field that is there twice, the last one counts.
        let often = format!("update roadstead.sandbox set status = status || '\\x{hex}' where id = '{}'", self.id);
        world.session().await.run(&often).await;
    }

    /// Its deadline comes.
    fn comes(&self) -> String {
        format!(
            "update roadstead.sandbox set provisioning_deadline = clock_timestamp() \
             where id = '{}' and provisioning_deadline is not null",
            self.id
        )
    }

    /// Phase, version and whether there is a deadline.
    async fn row(&self, world: &World) -> (SandboxPhase, u64, bool) {
        let mut side = world.session().await;
        let rows = side
            .run(&format!(
                "select phase, resource_version, provisioning_deadline is not null from roadstead.sandbox where id = '{}'",
                self.id
            ))
            .await;
        let [phase, version, deadline] = rows[0].as_slice() else { panic!("{rows:?}") };
        let phase = SandboxPhase::try_from(phase.parse::<i32>().unwrap()).unwrap();
        (phase, version.parse().unwrap(), deadline == "t")
    }

    async fn becomes(&self, world: &World, phase: SandboxPhase) {
        let sql = format!("select phase from roadstead.sandbox where id = '{}'", self.id);
        becomes(world, &sql, &(phase as i32).to_string()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_is_finalized_through_its_session_and_an_earlier_instance_ends_nothing() {
    let world = World::new().await;
    world.workspace("w").await;
    let sandbox = Running::start(&world, 1, SandboxRestartPolicy::Always).await;
    let early = sandbox.finalizes(&world, 0).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "{early}");
    sandbox.exits(&world, 0, 3).await.unwrap();
    sandbox.becomes(&world, SandboxPhase::Starting).await;
    // Told again, by the ended instance.
    let before = sandbox.row(&world).await;
    sandbox.exits(&world, 0, 3).await.unwrap();
    sandbox.finalizes(&world, 0).await.unwrap();
    assert_eq!(sandbox.row(&world).await, before);
    let again = world.bridge.report(&sandbox.supervisor, Report::RegisterSession, &register(199, 100, 2)).await;
    assert_eq!(again.unwrap_err().code(), Code::FailedPrecondition, "an instance runs once");

    // Another instance takes the place of the ended one, whose session still stands, with the same token.
    sandbox.connect(&world, 1).await;
    sandbox.becomes(&world, SandboxPhase::Ready).await;
    let before = sandbox.row(&world).await;
    sandbox.exits(&world, 0, 3).await.unwrap();
    assert_eq!(sandbox.row(&world).await, before, "the end of an earlier instance is no news");
    let late = sandbox.finalizes(&world, 0).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "{late}");
    sandbox.has_run_often(&world).await;
    sandbox.exits(&world, 1, 0).await.unwrap();
    let (phase, _, waits) = sandbox.row(&world).await;
    assert_eq!((phase, waits), (SandboxPhase::Completed, true), "this restart has a pause");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_see_to_each_deadline_once() {
    const SANDBOXES: u128 = 24;
    let world = World::with(2, &[]).await;
    world.workspace("w").await;
    let mut all = Vec::new();
    for number in 1..=SANDBOXES {
        all.push(Running::start(&world, number, SandboxRestartPolicy::OnFailure).await);
    }
    // Created, connected, run; the end is the fourth version, its restart the fifth.
    let before = all[0].row(&world).await;
    assert_eq!(before, (SandboxPhase::Ready, 3, false));
    let exits = futures_util::future::join_all(all.iter().map(|sandbox| sandbox.exits(&world, 0, 1))).await;
    assert!(exits.iter().all(Result::is_ok));
    for sandbox in &all {
        sandbox.becomes(&world, SandboxPhase::Starting).await;
        assert_eq!(sandbox.row(&world).await, (SandboxPhase::Starting, 5, true));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_is_due_and_a_stop_exclude_each_other() {
    let world = World::with(2, &[]).await;
    world.workspace("w").await;
    let stopped = Running::start(&world, 1, SandboxRestartPolicy::Always).await;
    let restarted = Running::start(&world, 2, SandboxRestartPolicy::Always).await;
    for sandbox in [&stopped, &restarted] {
        sandbox.has_run_often(&world).await;
        sandbox.exits(&world, 0, 1).await.unwrap();
    }
    let (_, ended, _) = stopped.row(&world).await;

    // The stop is the first to wait for the row, and gets it in the moment in which the restart is due.
    let mut holder = world.session().await;
    holder.hold(&stopped.comes()).await;
    let due = async {
        let waits = "select count(*) > 0 from pg_stat_activity \
            where wait_event_type = 'Lock' and datname = current_database()";
        becomes(&world, waits, "t").await;
        holder.run("commit").await;
    };
    let (told, ()) = tokio::join!(stopped.stops(&world), due);
    told.unwrap();
    // What is due later is seen to, so that was looked at too.
    world.session().await.run(&restarted.comes()).await;
    restarted.becomes(&world, SandboxPhase::Starting).await;
    assert_eq!(stopped.row(&world).await, (SandboxPhase::Stopping, ended + 1, false), "stopped, and never restarted");

    // The restart is first: as long as no new instance has connected, it can be stopped still.
    let (_, version, _) = restarted.row(&world).await;
    restarted.stops(&world).await.unwrap();
    assert_eq!(restarted.row(&world).await, (SandboxPhase::Stopping, version + 1, false));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_that_cannot_be_written_holds_up_no_other() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let mut all = Vec::new();
    for number in 1..=3 {
        let sandbox = Running::start(&world, number, SandboxRestartPolicy::Always).await;
        sandbox.has_run_often(&world).await;
        sandbox.exits(&world, 0, 1).await.unwrap();
        all.push(sandbox);
    }
    // The first of them is due first, and comes again and again.
    let refuses = format!(
        "create function refuses() returns trigger language plpgsql as $$ begin \
             raise exception 'not this one'; end $$; \
         create trigger refuses before update of phase on roadstead.sandbox for each row \
             when (old.id = '{}') execute function refuses()",
        all[0].id
    );
    world.sql.run(&refuses).await;
    let every = "update roadstead.sandbox set provisioning_deadline = clock_timestamp()";
    world.sql.run(every).await;
    for sandbox in &all[1..] {
        sandbox.becomes(&world, SandboxPhase::Starting).await;
    }
    let (phase, _, waits) = all[0].row(&world).await;
    assert_eq!((phase, waits), (SandboxPhase::Error, true));
    world.sql.run("drop trigger refuses on roadstead.sandbox").await;
    all[0].becomes(&world, SandboxPhase::Starting).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_outlives_the_replica_that_wrote_it() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let sandbox = Running::start(&world, 1, SandboxRestartPolicy::Always).await;
    sandbox.has_run_often(&world).await;
    sandbox.exits(&world, 0, 1).await.unwrap();
    // It dies in the pause before the restart.
    world.kill(0);
    let (phase, version, waits) = sandbox.row(&world).await;
    assert_eq!((phase, waits), (SandboxPhase::Error, true));
    world.sql.run(&sandbox.comes()).await;
    world.start_replica().await;
    sandbox.becomes(&world, SandboxPhase::Starting).await;
    assert_eq!(sandbox.row(&world).await.1, version + 1);
    world.stop().await;
}
