//! Many callers at the same rows: nobody is told of a deadlock or an inner fault, and every count is exact.

use std::collections::BTreeSet;

use prost::Message;
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_testkit::soak;
use tonic::Code;

use crate::requests;
use crate::world::{Told, World, create_sandbox, fresh_id, reason, root, sandbox_of, scope, user_named};

const CALLERS: u64 = 64;

/// Runs all at the same time.
async fn together<R: Message + 'static>(
    world: &World,
    calls: Vec<(roadstead_proto::internal::User, Method, R)>,
) -> Vec<Told> {
    let calls = calls.into_iter().map(|(user, method, request)| {
        let edge = world.edge.clone();
        tokio::spawn(async move { edge.user_call(&user, method, &request).await })
    });
    let mut told = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        told.push(call.await.unwrap());
    }
    told
}

/// What the contract allows under contention.
fn contended(status: &tonic::Status) {
    let expected = [Code::AlreadyExists, Code::NotFound, Code::FailedPrecondition, Code::Aborted];
    assert!(expected.contains(&status.code()), "{status:?}");
    for word in ["deadlock", "40P01", "40001", "SQL", "INTERNAL"] {
        assert!(!status.message().contains(word), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_calls_with_one_id_have_one_effect_and_with_ids_of_their_own_each_its_own() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    let request = create_sandbox("w", "", &fresh_id());
    let told = together(&world, (0..CALLERS).map(|_| (root(), Method::CreateSandbox, request.clone())).collect()).await;
    let (mut ids, mut firsts) = (BTreeSet::new(), 0);
    for told in told {
        match told {
            Ok((body, replayed)) => {
                firsts += usize::from(!replayed);
                ids.insert(sandbox_of(Ok((body, replayed))).metadata.unwrap().id);
            }
            Err(status) => assert_eq!(reason(&status), Some("REQUEST_OUTCOME_UNCERTAIN"), "{status:?}"),
        }
    }
    assert_eq!((ids.len(), firsts), (1, 1));

    // The same id, each caller for itself.
    let users = (0..CALLERS).map(|at| user_named(&format!("user-{at}"), true)).collect::<Vec<_>>();
    let id = fresh_id();
    let calls = users.iter().enumerate().map(|(at, user)| {
        (
            user.clone(),
            Method::CreateWorkspace,
            v1::CreateWorkspaceRequest { name: format!("ws-{at}"), request_id: id.clone(), ..Default::default() },
        )
    });
    let told = together(&world, calls.collect()).await;
    assert!(told.iter().all(|told| told.as_ref().is_ok_and(|(_, replayed)| !replayed)), "{told:?}");

    // One caller, ids of their own.
    let own = |at: u64| (root(), Method::CreateSandbox, create_sandbox("w", &format!("own-{at}"), &fresh_id()));
    let told = together(&world, (0..CALLERS).map(own).collect()).await;
    assert!(told.iter().all(|told| told.as_ref().is_ok_and(|(_, replayed)| !replayed)), "{told:?}");

    assert_eq!(world.count("sandbox").await, 1 + CALLERS);
    assert_eq!(world.count("claim").await, 1 + 2 * CALLERS);
    let counted = world.sql.value("select sum(used) from roadstead.quota_slot").await;
    assert_eq!(counted, (1 + 2 * CALLERS).to_string(), "what the quota counts");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attaching_and_detaching_in_opposite_orders_never_deadlocks_and_loses_nothing() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        world.sandbox("w", name).await;
        let create = requests::create_provider("w", name);
        world.edge.user_call(&root(), Method::CreateProvider, &create).await.unwrap();
    }
    let attach = |sandbox: &str, provider: &str| v1::AttachSandboxProviderRequest {
        sandbox: sandbox.into(),
        provider: provider.into(),
        workspace_scope: scope("w"),
        ..Default::default()
    };
    let detach = |sandbox: &str, provider: &str| v1::DetachSandboxProviderRequest {
        sandbox: sandbox.into(),
        provider: provider.into(),
        workspace_scope: scope("w"),
        ..Default::default()
    };
    let mut changes = 0_i64;
    for _ in 0..soak::count(2) {
        let pairs = || names.into_iter().flat_map(|sandbox| names.map(|provider| (sandbox, provider)));
        let forward =
            pairs().map(|(sandbox, provider)| (root(), Method::AttachSandboxProvider, attach(sandbox, provider)));
        let backward = pairs().collect::<Vec<_>>().into_iter().rev();
        let backward =
            backward.map(|(sandbox, provider)| (root(), Method::DetachSandboxProvider, detach(sandbox, provider)));
        let updates = names.into_iter().rev().map(|name| {
            let mut provider = requests::provider(name, &fresh_id());
            provider.r#type.clear();
            let request = v1::UpdateProviderRequest {
                provider: Some(provider),
                workspace_scope: scope("w"),
                ..Default::default()
            };
            (root(), Method::UpdateProvider, request)
        });
        let (attached, detached, updated) = tokio::join!(
            together(&world, forward.collect()),
            together(&world, backward.collect()),
            together(&world, updates.collect()),
        );
        for told in attached {
            match told {
                Ok((body, _)) => {
                    changes += i64::from(v1::AttachSandboxProviderResponse::decode(body).unwrap().attached)
                }
                Err(status) => contended(&status),
            }
        }
        for told in detached {
            match told {
                Ok((body, _)) => {
                    changes -= i64::from(v1::DetachSandboxProviderResponse::decode(body).unwrap().detached)
                }
                Err(status) => contended(&status),
            }
        }
        updated.into_iter().for_each(|told| assert!(told.is_ok(), "{told:?}"));
    }
    assert_eq!(world.count("attachment").await, u64::try_from(changes).unwrap());
    let versions = world.sql.value("select string_agg(resource_version::text, ' ') from roadstead.provider").await;
    let updated = (1 + soak::count(2)).to_string();
    assert!(versions.split(' ').all(|version| version == updated), "{versions}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_a_provider_reaches_every_sandbox_that_is_being_attached() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    let create = requests::create_provider("w", "shared");
    world.edge.user_call(&root(), Method::CreateProvider, &create).await.unwrap();
    let names = (0..12).map(|at| format!("box-{at}")).collect::<Vec<_>>();
    for name in &names {
        world.sandbox("w", name).await;
    }
    world.quiet().await;
    let mut provider = requests::provider("shared", "another");
    provider.r#type.clear();
    let update =
        v1::UpdateProviderRequest { provider: Some(provider), workspace_scope: scope("w"), ..Default::default() };
    let attach = names.iter().map(|name| {
        let request = v1::AttachSandboxProviderRequest {
            sandbox: name.clone(),
            provider: "shared".into(),
            workspace_scope: scope("w"),
            ..Default::default()
        };
        (root(), Method::AttachSandboxProvider, request)
    });
    let updates = (0..4).map(|_| (root(), Method::UpdateProvider, update.clone()));
    let (attached, updated) = tokio::join!(together(&world, attach.collect()), together(&world, updates.collect()));
    for told in attached {
        assert!(v1::AttachSandboxProviderResponse::decode(told.unwrap().0).unwrap().attached);
    }
    let mut receipts = BTreeSet::new();
    for told in updated {
        let response = v1::ProviderResponse::decode(told.unwrap().0).unwrap();
        let version = response.provider.unwrap().metadata.unwrap().resource_version;
        assert!(receipts.insert((version, response.target_receipts.len())), "{version} was told twice");
    }
    // Each update names those that were attached before it, so later ones name no fewer.
    let counts = receipts.iter().map(|(_, targets)| *targets).collect::<Vec<_>>();
    assert!(counts.is_sorted(), "{receipts:?}");
    assert_eq!(receipts.iter().map(|(version, _)| *version).collect::<Vec<_>>(), [2, 3, 4, 5]);
    assert_eq!(world.count("attachment").await, 12);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_created_in_a_workspace_that_is_being_deleted() {
    let mut world = World::with(2, &[]).await;
    for round in 0..soak::count(12) {
        let name = format!("w{round}");
        world.workspace(&name).await;
        let create = |at| (root(), Method::CreateSandbox, create_sandbox(&name, &format!("box-{at}"), ""));
        let provider =
            v1::CreateProviderRequest { workspace_scope: scope(&name), ..requests::create_provider("w", "p") };
        let member = v1::AddWorkspaceMemberRequest {
            workspace_scope: scope(&name),
            principal_subject: "ann".into(),
            role: v1::WorkspaceRole::User.into(),
            ..Default::default()
        };
        let delete = v1::DeleteWorkspaceRequest { name: name.clone(), ..Default::default() };
        let (created, deleted, provided, _) = tokio::join!(
            together(&world, (0..3).map(create).collect()),
            together(&world, vec![(root(), Method::DeleteWorkspace, delete)]),
            together(&world, vec![(root(), Method::CreateProvider, provider)]),
            together(&world, vec![(root(), Method::AddWorkspaceMember, member)]),
        );
        let mut made = [0, 0];
        for (kind, told) in created.into_iter().map(|told| (0, told)).chain(provided.into_iter().map(|told| (1, told)))
        {
            match told {
                Ok(_) => made[kind] += 1,
                Err(status) => contended(&status),
            }
        }
        let rows = format!(
            "select (select count(*) from roadstead.sandbox where workspace_name = '{name}') || ' ' || \
             (select count(*) from roadstead.provider where workspace_name = '{name}') || ' ' || \
             (select count(*) from roadstead.workspace where name = '{name}') || ' ' || \
             (select count(*) from roadstead.workspace where name = '{name}' and terminating_since is not null)"
        );
        let rows = world.sql.value(&rows).await;
        let gone = deleted[0].is_ok();
        let expected = match gone {
            true => "0 0 0 0".to_owned(),
            false => format!("{} {} 1 1", made[0], made[1]),
        };
        assert_eq!(rows, expected, "{deleted:?}");
        assert!(!gone || made == [0, 0]);
        // Whatever comes after it is refused.
        let late =
            world.edge.user_call(&root(), Method::CreateSandbox, &create_sandbox(&name, "late", "")).await.unwrap_err();
        contended(&late);
    }
    world.stop().await;
}
