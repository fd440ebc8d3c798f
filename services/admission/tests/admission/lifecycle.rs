//! Ends of main processes, restarts, and deadlines, with several replicas that all see to them.

use std::time::Duration;

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

    /// Phase, version and whether there is a deadline.
    async fn row(&self, world: &World) -> (SandboxPhase, u64, bool) {
        let mut side = world.session().await;
        let rows = side
            .run(&format!(
                "select phase, resource_version, deadline is not null from roadstead.sandbox where id = '{}'",
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
    sandbox.exits(&world, 1, 0).await.unwrap();
    let (phase, _, waits) = sandbox.row(&world).await;
    assert_eq!((phase, waits), (SandboxPhase::Completed, true), "the second restart in a row has a pause");
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
    const SANDBOXES: u128 = 12;
    let world = World::with(2, &[]).await;
    world.workspace("w").await;
    let (mut stopped, mut refused) = (Vec::new(), Vec::new());
    for number in 1..=SANDBOXES {
        let sandbox = Running::start(&world, number, SandboxRestartPolicy::Always).await;
        sandbox.exits(&world, 0, 1).await.unwrap();
        match sandbox.stops(&world).await {
            Ok(_) => stopped.push(sandbox),
            Err(status) => {
                assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
                refused.push(sandbox);
            }
        }
    }
    for sandbox in &refused {
        sandbox.becomes(&world, SandboxPhase::Starting).await;
    }
    // One restart in a row has been; the next has a pause, in which a stop cancels it for certain.
    let last = Running::start(&world, SANDBOXES + 1, SandboxRestartPolicy::Always).await;
    last.exits(&world, 0, 1).await.unwrap();
    last.becomes(&world, SandboxPhase::Starting).await;
    last.connect(&world, 1).await;
    last.exits(&world, 1, 1).await.unwrap();
    last.stops(&world).await.unwrap();
    stopped.push(last);
    // Longer than the pause would have been.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for sandbox in &stopped {
        let (phase, _, waits) = sandbox.row(&world).await;
        assert_eq!((phase, waits), (SandboxPhase::Stopping, false), "{}", sandbox.name);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_outlives_the_replica_that_wrote_it() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let sandbox = Running::start(&world, 1, SandboxRestartPolicy::Always).await;
    sandbox.exits(&world, 0, 1).await.unwrap();
    sandbox.becomes(&world, SandboxPhase::Starting).await;
    sandbox.connect(&world, 1).await;
    sandbox.exits(&world, 1, 1).await.unwrap();
    // It dies in the pause before the restart.
    world.kill(0);
    let (phase, version, waits) = sandbox.row(&world).await;
    assert_eq!((phase, waits), (SandboxPhase::Error, true));
    world.start_replica().await;
    sandbox.becomes(&world, SandboxPhase::Starting).await;
    assert_eq!(sandbox.row(&world).await.1, version + 1);
    world.stop().await;
}
