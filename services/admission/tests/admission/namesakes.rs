//! What is meant for one object never reaches its namesake, and no sweep undoes what a user did.

use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1::{self, DeletionOutcome, SandboxPhase};
use roadstead_proto::internal::EndSession;
use roadstead_proto::method::Method;
use roadstead_proto::subject::Report;
use roadstead_testkit::soak;
use tokio::task::JoinSet;
use tonic::Code;
use uuid::Uuid;

use crate::sessions::{applied, register};
use crate::world::{LONG, World, create_sandbox, fresh_id, reason, root, sandbox_of, scope};

fn deletion(name: &str) -> v1::DeleteSandboxRequest {
    v1::DeleteSandboxRequest {
        name: name.into(),
        workspace_scope: scope("w"),
        request_id: fresh_id(),
        ..Default::default()
    }
}

fn stop(name: &str) -> v1::StopSandboxRequest {
    v1::StopSandboxRequest { name: name.into(), workspace_scope: scope("w"), request_id: fresh_id() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_waits_for_a_silent_supervisor_keeps_the_name_and_nothing_of_it_reaches_the_next_one() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    let provider = Provider {
        metadata: Some(ObjectMeta { name: "git".into(), ..Default::default() }),
        r#type: "generic".into(),
        credentials: [("GIT_TOKEN".to_owned(), "x".to_owned())].into(),
        ..Default::default()
    };
    let create =
        v1::CreateProviderRequest { provider: Some(provider), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::CreateProvider, &create).await.unwrap();
    let first = world.sandbox("w", "box").await.metadata.unwrap().id;
    let supervisor = world.supervisor(&first, 1);
    world.bridge.report(&supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
    world.bridge.report(&supervisor, Report::SessionResult, &applied(1, 1, 0)).await.unwrap();

    let delete = deletion("box");
    let (body, _) = world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    let accepted = v1::DeleteSandboxResponse::decode(body).unwrap();
    assert_eq!((accepted.outcome(), accepted.sandbox_id.as_str()), (DeletionOutcome::Accepted, first.as_str()));
    // While the record remains its name is taken, and nobody brings it back.
    let taken = world.edge.user_call(&root(), Method::CreateSandbox, &create_sandbox("w", "box", &fresh_id())).await;
    assert_eq!(taken.unwrap_err().code(), Code::AlreadyExists);
    let start = v1::StartSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    let stop = stop("box");
    for refused in [
        world.edge.user_call(&root(), Method::StartSandbox, &start).await,
        world.edge.user_call(&root(), Method::StopSandbox, &stop).await,
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    }

    let end = EndSession { session_id: Uuid::from_u128(1).to_string(), number: 1, reason: "closed".into() };
    world.bridge.report(&supervisor, Report::EndSession, &end).await.unwrap();
    let second = sandbox_of(
        world.edge.user_call(&root(), Method::CreateSandbox, &create_sandbox("w", "box", &fresh_id())).await,
    );
    let second = second.metadata.unwrap();
    assert_ne!(second.id, first);

    // The deletion again, by its id: what was recorded. The first one's supervisor again: it is nobody any more.
    let (body, replayed) = world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    assert_eq!((v1::DeleteSandboxResponse::decode(body).unwrap().sandbox_id, replayed), (first, true));
    assert!(world.bridge.report(&supervisor, Report::SessionResult, &applied(1, 2, 0)).await.is_err());
    assert!(world.bridge.report(&supervisor, Report::RegisterSession, &register(2, 10, 2)).await.is_err());
    _ = world.bridge.report(&supervisor, Report::EndSession, &EndSession { number: 2, ..end }).await;
    // Who says which version it means is told that it is another one now.
    let attach = v1::AttachSandboxProviderRequest {
        workspace_scope: scope("w"),
        sandbox: "box".into(),
        provider: "git".into(),
        expected_resource_version: 4,
        request_id: fresh_id(),
    };
    let mismatch = world.edge.user_call(&root(), Method::AttachSandboxProvider, &attach).await.unwrap_err();
    assert_eq!((mismatch.code(), reason(&mismatch)), (Code::Aborted, Some("RESOURCE_VERSION_CONFLICT")));
    let now = "select id || ' ' || resource_version || ' ' || phase from roadstead.sandbox";
    let untouched = format!("{} 1 {}", second.id, SandboxPhase::Provisioning as i32);
    assert_eq!(world.sql.value(now).await, untouched);
    world.stop().await;
}

/// Writes down every change of a phase and every removal.
const JOURNAL: &str = "
    create schema journal;
    create table journal.phase (at bigint generated always as identity, name text, before int, after int);
    create function journal.record() returns trigger language plpgsql security definer as $$
    begin
        insert into journal.phase (name, before, after)
        values (old.name, old.phase, case when tg_op = 'DELETE' then 0 else new.phase end);
        return null;
    end $$;
    create trigger changed after update on roadstead.sandbox for each row
        when (old.phase <> new.phase) execute function journal.record();
    create trigger removed after delete on roadstead.sandbox for each row execute function journal.record()";

/// Sandboxes that are stopped, that are deleted, and that are deleted while their time for provisioning runs out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_sweep_starts_what_a_user_stopped_or_touches_what_a_user_deleted_while_replicas_come_and_go() {
    let mut world = World::with(2, &["--provisioning-seconds=2"]).await;
    world.workspace("w").await;
    world.sql.run(JOURNAL).await;
    let count = soak::count(12);
    for at in 0..count {
        for kind in ["stopped", "deleted", "late"] {
            let name = format!("{kind}-{at}");
            let id = world.sandbox("w", &name).await.metadata.unwrap().id;
            if kind != "late" {
                let supervisor = world.supervisor(&id, 1);
                let (session, instance) = (Uuid::new_v4().as_u128(), Uuid::new_v4().as_u128());
                let registered = register(session, instance, 1);
                world.bridge.report(&supervisor, Report::RegisterSession, &registered).await.unwrap();
                world.bridge.report(&supervisor, Report::SessionResult, &applied(session, 1, 0)).await.unwrap();
            }
        }
    }
    // Their bridge is gone, as an admission that has listened for long may judge.
    let aged = "update roadstead.process set renewed_at = case when kind = 1 then renewed_at - interval '30 seconds'
        else renewed_at end, since = since - interval '30 seconds'";
    world.sql.run(aged).await;
    let mut calls = JoinSet::new();
    for at in 0..count {
        let edge = world.edge.clone();
        calls.spawn(async move {
            let stop = stop(&format!("stopped-{at}"));
            let stopped = edge.user_call(&root(), Method::StopSandbox, &stop).await;
            for kind in ["deleted", "late"] {
                edge.user_call(&root(), Method::DeleteSandbox, &deletion(&format!("{kind}-{at}"))).await.unwrap();
            }
            // A sweep that was first has made it PROVISIONING, which cannot be stopped.
            (at, stopped.map_err(|status| status.code()))
        });
    }
    // Every replica is replaced while the calls run.
    for _ in 0..2 {
        world.start_replica().await;
        let leaving = world.replicas.remove(0);
        World::stop_one(leaving).await;
    }
    let mut stopped = Vec::new();
    for (at, told) in calls.join_all().await {
        match told {
            Ok(_) => stopped.push(format!("stopped-{at}")),
            Err(code) => assert_eq!(code, Code::FailedPrecondition),
        }
    }
    // Whatever a sweep still has to do it does within a few rounds.
    let names = stopped.join("', '");
    let waiting = format!(
        "select count(*) from roadstead.sandbox where name like 'deleted%' or name like 'late%'
            or (name in ('{names}') and phase <> {})",
        SandboxPhase::Stopped as i32
    );
    let begun = Instant::now();
    while world.sql.value(&waiting).await != "0" {
        assert!(begun.elapsed() < LONG, "{:?}", world.sql.run("select name, phase from roadstead.sandbox").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rows = "select renewed_at from roadstead.process where kind = 2 and renewed_at > now() - interval '7 seconds'";
    assert!(!world.sql.run(rows).await.is_empty(), "nobody sweeps");
    let (stopping, rest, deleting) =
        (SandboxPhase::Stopping as i32, SandboxPhase::Stopped as i32, SandboxPhase::Deleting as i32);
    let undone = format!(
        "select * from journal.phase where (before = {stopping} and after <> {rest}) or before = {rest}
            or (before = {deleting} and after <> 0)"
    );
    assert_eq!(world.sql.run(&undone).await, Vec::<Vec<String>>::new());
    world.stop().await;
}
