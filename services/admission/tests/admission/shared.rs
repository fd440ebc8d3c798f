//! Many change one record: what was told is there, and nobody writes over another's change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1;
use roadstead_proto::internal::{EndSession, Principal};
use roadstead_proto::method::Method;
use roadstead_proto::subject::Report;
use roadstead_testkit::soak;
use tokio::task::{JoinHandle, JoinSet};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use crate::sessions::{applied, register};
use crate::world::{DoorOf, World, fresh_id, reason, root, scope};

/// Writes down every version of a sandbox, whoever wrote it.
const JOURNAL: &str = "
    create schema journal;
    create table journal.version (sandbox uuid, version bigint, unique (sandbox, version));
    create function journal.record() returns trigger language plpgsql security definer as $$
    begin
        insert into journal.version values (new.id, new.resource_version);
        return null;
    end $$;
    create trigger journal after update on roadstead.sandbox for each row execute function journal.record()";

/// Those who want to attach a provider; a sandbox takes 32. Each fifth goes by the version, as each fifth of the others.
const ATTACHING: usize = 50;
const MOST: usize = 32;
/// Those who change a credential of the shared provider, which keeps 32; one is there from the start.
const UPDATING: usize = 31;

fn provider(name: &str, credential: &str, resource_version: u64) -> Provider {
    Provider {
        metadata: Some(ObjectMeta { name: name.into(), resource_version, ..Default::default() }),
        r#type: "generic".into(),
        credentials: [(credential.to_owned(), fresh_id())].into(),
        ..Default::default()
    }
}

fn attach(provider: &str, expected: u64) -> v1::AttachSandboxProviderRequest {
    v1::AttachSandboxProviderRequest {
        workspace_scope: scope("w"),
        sandbox: "box".into(),
        provider: provider.into(),
        expected_resource_version: expected,
        request_id: fresh_id(),
    }
}

/// The version that a refusal for a stale one tells.
fn current(status: &Status) -> u64 {
    assert_eq!((status.code(), reason(status)), (Code::Aborted, Some("RESOURCE_VERSION_CONFLICT")), "{status:?}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["recovery"], "REFRESH_STATE");
    info.metadata["current_resource_version"].parse().unwrap()
}

/// What a call says first of the version it expects: nothing, or one that is never right.
fn expectation(with_version: bool) -> u64 {
    if with_version { u64::MAX } else { 0 }
}

/// Attaches a provider, with the version that it is told if it wants one; the sandbox's version after that, or none if it
/// was full.
async fn attached(edge: DoorOf, name: String, with_version: bool) -> Option<u64> {
    let mut expected = expectation(with_version);
    loop {
        match edge.user_call(&root(), Method::AttachSandboxProvider, &attach(&name, expected)).await {
            Ok((body, _)) => {
                let response = v1::AttachSandboxProviderResponse::decode(body).unwrap();
                assert!(response.attached);
                return Some(response.sandbox.unwrap().metadata.unwrap().resource_version);
            }
            Err(status) if with_version && status.code() == Code::Aborted => expected = current(&status),
            Err(status) => {
                assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
                assert!(status.message().contains("32"), "{status:?}");
                return None;
            }
        }
    }
}

/// Changes one credential of the shared provider in the same way; its version after that.
async fn updated(edge: DoorOf, key: String, with_version: bool) -> u64 {
    let mut expected = expectation(with_version);
    loop {
        let request = v1::UpdateProviderRequest {
            provider: Some(provider("shared", &key, expected)),
            workspace_scope: scope("w"),
            request_id: fresh_id(),
            ..Default::default()
        };
        match edge.user_call(&root(), Method::UpdateProvider, &request).await {
            Ok((body, _)) => {
                let provider = v1::ProviderResponse::decode(body).unwrap().provider.unwrap();
                return provider.metadata.unwrap().resource_version;
            }
            Err(status) => {
                assert!(with_version, "{status:?}");
                expected = current(&status);
            }
        }
    }
}

/// Some fifty status reports a second, until it is stopped; how many were sent. Once the session is over they are refused.
fn reports(world: &World, supervisor: &Principal, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let (bridge, supervisor, stop) = (world.bridge.clone(), supervisor.clone(), Arc::clone(stop));
    tokio::spawn(async move {
        let mut number = 1;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let told = bridge.report(&supervisor, Report::SessionResult, &applied(1, number, 0)).await;
            if let Err(status) = told {
                let is_over = [Code::Aborted, Code::NotFound, Code::Unauthenticated].contains(&status.code());
                assert!(is_over, "{status:?}");
                break;
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        number - 1
    })
}

async fn created(world: &World, name: &str, credential: &str) {
    let request = v1::CreateProviderRequest {
        provider: Some(provider(name, credential, 0)),
        workspace_scope: scope("w"),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::CreateProvider, &request).await.unwrap();
}

/// Changes that fail once the sandbox is on its way out or gone, until then.
fn disturb(world: &World, names: &[String]) -> JoinSet<u32> {
    let mut changes = JoinSet::new();
    for name in names.iter().take(8) {
        let (edge, name) = (world.edge.clone(), name.to_owned());
        changes.spawn(async move {
            for round in 0.. {
                let detach = v1::DetachSandboxProviderRequest {
                    workspace_scope: scope("w"),
                    sandbox: "box".into(),
                    provider: name.clone(),
                    ..Default::default()
                };
                let told = match round % 2 {
                    0 => edge.user_call(&root(), Method::DetachSandboxProvider, &detach).await,
                    _ => edge.user_call(&root(), Method::AttachSandboxProvider, &attach(&name, 0)).await,
                };
                match told.map_err(|status| status.code()) {
                    Ok(_) | Err(Code::FailedPrecondition | Code::InvalidArgument) => {}
                    Err(Code::NotFound) => return round,
                    Err(code) => panic!("{code:?}"),
                }
            }
            0
        });
    }
    changes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_one_record_by_many_are_all_there_and_the_stale_are_told_the_current_version() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    world.sql.run(JOURNAL).await;
    let id = world.sandbox("w", "box").await.metadata.unwrap().id;
    let names: Vec<String> = (0..ATTACHING).map(|at| format!("p{at}")).collect();
    created(&world, "shared", "SHARED").await;
    for name in &names {
        created(&world, name, &format!("KEY_{}", name.to_uppercase())).await;
    }
    assert!(attached(world.edge.clone(), "shared".into(), false).await.is_some());
    let supervisor = world.supervisor(&id, 1);
    world.bridge.report(&supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let reporting = reports(&world, &supervisor, &stop);
    let (mut attaching, mut updating) = (JoinSet::new(), JoinSet::new());
    for (at, name) in names.iter().cloned().enumerate() {
        attaching.spawn(attached(world.edge.clone(), name, at % 5 == 0));
    }
    let rounds = usize::try_from(soak::count(1)).unwrap();
    for at in 0..UPDATING * rounds {
        updating.spawn(updated(world.edge.clone(), format!("SHARED_{}", at % UPDATING), at % 5 == 0));
    }
    let versions: Vec<u64> = attaching.join_all().await.into_iter().flatten().collect();
    let updates = updating.join_all().await;
    stop.store(true, Ordering::Relaxed);
    let reported = reporting.await.unwrap();

    // Each effect is there and had a version of its own; nothing else raised it.
    assert_eq!(versions.len(), MOST - 1);
    assert_eq!(versions.iter().collect::<BTreeSet<_>>().len(), versions.len(), "two effects told the same version");
    assert_eq!(world.count("attachment").await, MOST as u64);
    let written = "select count(*) from journal.version";
    let effects: u64 = world.sql.value(written).await.parse().unwrap();
    assert_eq!(effects, MOST as u64 + 1 + reported, "attachments, the session and its reports");
    assert_eq!(world.sql.value("select resource_version - 1 from roadstead.sandbox").await, effects.to_string());
    assert_eq!(updates.iter().collect::<BTreeSet<_>>().len(), UPDATING * rounds, "two effects told the same version");
    let shared =
        "select resource_version || ' ' || cardinality(credential_keys) from roadstead.provider where name = 'shared'";
    assert_eq!(world.sql.value(shared).await, format!("{} {}", 1 + UPDATING * rounds, 1 + UPDATING));

    // It goes under the same load, and so does its provider after it.
    let (stop, disturbing) = (Arc::new(AtomicBool::new(false)), disturb(&world, &names));
    let reporting = reports(&world, &supervisor, &stop);
    let begun = Instant::now();
    let delete = v1::DeleteSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    let end = EndSession { session_id: Uuid::from_u128(1).to_string(), number: 1, reason: "closed".into() };
    world.bridge.report(&supervisor, Report::EndSession, &end).await.unwrap();
    assert_eq!(world.count("sandbox").await, 0);
    let delete = v1::DeleteProviderRequest { name: "shared".into(), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::DeleteProvider, &delete).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(disturbing.join_all().await.into_iter().any(|rounds| rounds > 0), "nobody disturbed it");
    stop.store(true, Ordering::Relaxed);
    reporting.await.unwrap();
    assert_eq!(world.count("command where body like '%INTERNAL%'").await, 0);
    world.stop().await;
}
