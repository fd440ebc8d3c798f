use std::time::Duration;

use roadstead_proto::api::v1::{SandboxPhase, WorkspaceRole};
use roadstead_store::FlightError;
use roadstead_store::mutation::{ByName, Lock, Locks, Providers, Reads, Sandboxes, SessionOwner, Write};
use roadstead_testkit::eventually;
use roadstead_testkit::sql::Session;
use uuid::Uuid;

use crate::world::{
    World, by_id, by_name, claimed, command, effect, in_workspace, next, policy, service, setting, template,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// One row of each kind, in the order in which they are to be locked.
const ROWS: [&str; 6] = [
    "select 1 from roadstead.workspace where name = 'w' for update",
    "select 1 from roadstead.member where subject in ('ann', 'bob') for update",
    "select 1 from roadstead.workload_template where name = 't' for update",
    "select 1 from roadstead.provider where name in ('a', 'b') for update",
    "select 1 from roadstead.sandbox where name = 's' for update",
    "select 1 from roadstead.quota_slot for update",
];

fn everything() -> Locks {
    Locks {
        subject: Some("ann".into()),
        member: Some("bob".into()),
        template: Some(ByName { name: "t".into(), lock: Lock::Update }),
        providers: Providers::Named(vec!["b".into(), "a".into()], Lock::Update),
        sandboxes: Sandboxes::Named("s".into()),
        ..in_workspace("w", Lock::Update)
    }
}

async fn populated() -> World {
    let world = World::new().await;
    let w = world.workspace("w").await;
    world.member(&w, "ann", WorkspaceRole::User).await;
    world.member(&w, "bob", WorkspaceRole::Admin).await;
    let (a, b) = (world.provider(&w, "a").await, world.provider(&w, "b").await);
    let s = world.sandbox(&w, "s").await;
    world
        .write(vec![
            Write::InsertTemplate(template(&w, "t")),
            Write::InsertService(service(&s, "web")),
            Write::InsertService(service(&s, "")),
        ])
        .await;
    let attach = |provider_id| Write::Attach { sandbox_id: s.id, provider_id };
    world.write(vec![attach(b.id), attach(a.id)]).await;
    let with_claim = world.first(&claimed("w", Uuid::new_v4()), &Locks::default()).await.unwrap();
    with_claim.conclude(effect(Vec::new())).await.unwrap();
    world
}

/// Waits until the transaction under test waits for a lock.
pub(crate) async fn until_it_waits(world: &World) {
    let mut side = world.postgres.session().await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
        and usename = 'roadstead_admission' and datname = current_database()";
    while side.value(waiting).await == "0" {
        assert!(tokio::time::Instant::now() < deadline, "nothing waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn is_free(side: &mut Session, row: &str) -> bool {
    match side.try_run(&format!("{row} nowait")).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.state, "55P03", "{error}");
            false
        }
    }
}

#[tokio::test]
async fn locks_are_taken_in_the_one_order_and_the_count_last() {
    let mut world = populated().await;
    for (held, row) in ROWS[..5].iter().enumerate() {
        world.sql.hold(row).await;
        let (store, locks) = (world.store.clone(), everything());
        let running = tokio::spawn(async move { store.first_flight(&claimed("w", Uuid::new_v4()), &locks).await });
        until_it_waits(&world).await;
        let mut side = world.postgres.session().await;
        for (index, row) in ROWS.iter().enumerate() {
            if index != held {
                assert_eq!(is_free(&mut side, row).await, index > held, "{row} while waiting for {held}");
            }
        }
        world.sql.release().await;
        let in_flight = running.await.unwrap().unwrap();
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(is_free(&mut side, row).await, index == 5, "{row} between the flights");
        }
        in_flight.abandon().await;
    }
    // The second flight waits for the count with its own state already written.
    world.sql.hold(ROWS[5]).await;
    let in_flight = world.first(&claimed("w", Uuid::new_v4()), &everything()).await.unwrap();
    let concluding = tokio::spawn(in_flight.conclude(effect(Vec::new())));
    until_it_waits(&world).await;
    world.sql.release().await;
    concluding.await.unwrap().unwrap();
}

#[tokio::test]
async fn everything_that_was_asked_for_is_loaded() {
    let world = populated().await;
    let mut locks = everything();
    locks.global = true;
    locks.reads = Reads {
        attached_providers: true,
        policy: true,
        global_policy: true,
        sandbox_settings: true,
        global_settings: true,
        blockers: true,
        member_count: true,
        template_count: true,
        services: true,
        receipt: true,
        session_owner: true,
        observation: true,
        pending_receipts: true,
        policy_version: Some(1),
    };
    let s = world.first(&command(), &locks).await.unwrap();
    let id = s.loaded().sandboxes[0].id;
    s.abandon().await;
    world
        .write(vec![
            Write::InsertPolicyRevision(policy(Some(id), 1)),
            Write::InsertPolicyRevision(policy(Some(id), 2)),
            Write::InsertPolicyRevision(policy(None, 9)),
            Write::PutSetting { scope: Some(id), key: "k".into(), value: setting("own") },
            Write::SetSettingsRevision { scope: Some(id), revision: 1 },
            Write::PutSetting { scope: None, key: "g".into(), value: setting("all") },
            Write::SetSettingsRevision { scope: None, revision: 1 },
        ])
        .await;
    let in_flight = world.first(&command(), &locks).await.unwrap();
    let loaded = in_flight.loaded();
    assert_eq!(loaded.role, Some(WorkspaceRole::User));
    assert_eq!(
        loaded.member.as_ref().map(|member| (member.subject.as_str(), member.role)),
        Some(("bob", WorkspaceRole::Admin))
    );
    assert_eq!(loaded.workspace.as_ref().map(|row| row.name.as_str()), Some("w"));
    let mut names: Vec<_> = loaded.providers.iter().map(|row| row.name.as_str()).collect();
    assert!(loaded.providers.is_sorted_by_key(|row| row.id));
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(loaded.providers[0].credentials[0].sealed_value, format!("sealed {} A", loaded.providers[0].name));
    assert_eq!(loaded.sandboxes[0].providers, ["b", "a"]);
    assert_eq!(loaded.attached_providers.len(), 2);
    assert!(
        loaded.attached_providers.iter().flat_map(|row| &row.credentials).all(|known| known.sealed_value.is_empty())
    );
    assert_eq!(loaded.attached_providers[0].credentials[1].key, "B");
    assert_eq!(loaded.policy.as_ref().map(|row| row.version), Some(2));
    assert_eq!(loaded.policy_version.as_ref(), Some(&policy_as_stored(loaded.policy_version.as_ref().unwrap(), id)));
    assert_eq!(loaded.global_policy.as_ref().map(|row| (row.scope, row.version)), Some((None, 9)));
    assert_eq!((loaded.sandbox_settings.revision, loaded.sandbox_settings.values["k"].clone()), (1, setting("own")));
    assert_eq!((loaded.global_settings.revision, loaded.global_settings.values["g"].clone()), (1, setting("all")));
    assert_eq!(loaded.blockers, ["sandbox", "provider", "service", "template"]);
    assert_eq!((loaded.member_count, loaded.template_count), (2, 1));
    assert_eq!(loaded.template.as_ref().map(|row| row.name.as_str()), Some("t"));
    assert_eq!(loaded.services.iter().map(|row| row.name()).collect::<Vec<_>>(), ["s", "s--web"]);
    assert_eq!(loaded.session_owner, Some(SessionOwner::Alive));
    in_flight.abandon().await;

    // By the providers: every sandbox that has one of them.
    locks.sandboxes = Sandboxes::OfLockedProviders;
    locks.reads = Reads { attached_providers: true, ..Reads::default() };
    let in_flight = world.first(&command(), &locks).await.unwrap();
    assert_eq!(in_flight.loaded().sandboxes.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    assert_eq!(in_flight.loaded().sandboxes[0].providers, ["b", "a"]);
    assert_eq!(in_flight.loaded().attached_providers.len(), 2);
}

fn policy_as_stored(stored: &roadstead_store::row::PolicyRevision, id: Uuid) -> roadstead_store::row::PolicyRevision {
    roadstead_store::row::PolicyRevision { created_at: stored.created_at, ..policy(Some(id), 1) }
}

#[tokio::test]
async fn missing_things_are_simply_absent() {
    let world = World::new().await;
    world.workspace("w").await;
    let locks = Locks {
        subject: Some("ann".into()),
        providers: Providers::Named(vec!["p".into()], Lock::Share),
        reads: Reads { policy: true, sandbox_settings: true, session_owner: true, blockers: true, ..Reads::default() },
        ..by_name("w", "s")
    };
    for name in ["w", "no"] {
        let mut locks = locks.clone();
        locks.workspace.as_mut().unwrap().name = name.into();
        let in_flight = world.first(&claimed(name, Uuid::new_v4()), &locks).await.unwrap();
        let loaded = in_flight.loaded();
        assert_eq!(loaded.workspace.is_some(), name == "w");
        assert!(loaded.role.is_none() && loaded.providers.is_empty() && loaded.sandboxes.is_empty());
        assert!(loaded.policy.is_none() && loaded.session_owner.is_none() && loaded.blockers.is_empty());
        in_flight.abandon().await;
    }
}

#[tokio::test]
async fn a_plan_that_would_read_nothing_is_a_fault() {
    let world = World::new().await;
    let plans = [
        Locks { sandboxes: Sandboxes::Named("s".into()), ..Locks::default() },
        Locks { sandboxes: Sandboxes::OfLockedProviders, ..in_workspace("w", Lock::Share) },
        Locks { member: Some("ann".into()), ..Locks::default() },
        Locks { providers: Providers::Named(Vec::new(), Lock::Share), ..Locks::default() },
        Locks { template: Some(ByName { name: "t".into(), lock: Lock::Share }), ..Locks::default() },
        Locks { reads: Reads { template_count: true, ..Reads::default() }, ..Locks::default() },
        Locks { reads: Reads { services: true, ..Reads::default() }, ..in_workspace("w", Lock::Share) },
        Locks { reads: Reads { policy: true, ..Reads::default() }, ..in_workspace("w", Lock::Share) },
        Locks { reads: Reads { blockers: true, ..Reads::default() }, ..Locks::default() },
    ];
    for plan in plans {
        assert!(matches!(world.first(&command(), &plan).await, Err(FlightError::Bug(_))), "{plan:?}");
    }
}

#[tokio::test]
async fn shared_locks_go_together_and_exclude_an_update() {
    let world = populated().await;
    let one = world.first(&command(), &in_workspace("w", Lock::Share)).await.unwrap();
    let two = world.first(&command(), &in_workspace("w", Lock::Share)).await.unwrap();
    let three = world.first(&command(), &in_workspace("w", Lock::Update)).await;
    assert!(matches!(three, Err(FlightError::Retry(_))), "{three:?}");
    one.abandon().await;
    two.abandon().await;
    world.first(&command(), &in_workspace("w", Lock::Update)).await.unwrap().abandon().await;
}

#[tokio::test]
async fn a_lock_that_was_waited_for_shows_what_was_committed_meanwhile() {
    let mut world = populated().await;
    let before = world.first(&command(), &by_name("w", "s")).await.unwrap();
    let row = before.loaded().sandboxes[0].clone();
    before.abandon().await;
    let ready = next(&row, |row| row.phase = SandboxPhase::Ready);
    let holder = world.first(&command(), &by_id(row.id)).await.unwrap();
    let (store, locks) = (world.store.clone(), Locks { subject: Some("ann".into()), ..by_name("w", "s") });
    let waiter = tokio::spawn(async move { store.first_flight(&command(), &locks).await });
    until_it_waits(&world).await;
    let provider = world.sql.value("select id from roadstead.provider where name = 'b'").await.parse().unwrap();
    let detach = Write::Detach { sandbox_id: row.id, provider_id: provider };
    holder.conclude(effect(vec![Write::UpdateSandbox(ready), detach])).await.unwrap();
    let waiter = waiter.await.unwrap().unwrap();
    assert_eq!(waiter.loaded().sandboxes[0].phase, SandboxPhase::Ready);
    assert_eq!(waiter.loaded().sandboxes[0].resource_version, 2);
    assert_eq!(waiter.loaded().sandboxes[0].providers, ["a"]);
    waiter.abandon().await;
}

#[tokio::test]
async fn rights_that_went_while_a_lock_was_waited_for_are_gone() {
    let world = populated().await;
    let removal = Locks { member: Some("ann".into()), ..in_workspace("w", Lock::Update) };
    let removal = world.first(&command(), &removal).await.unwrap();
    let workspace_id = removal.loaded().workspace.as_ref().unwrap().id;
    let (store, locks) = (world.store.clone(), Locks { subject: Some("ann".into()), ..in_workspace("w", Lock::Share) });
    let waiter = tokio::spawn(async move { store.first_flight(&command(), &locks).await });
    until_it_waits(&world).await;
    let delete = Write::DeleteMember { workspace_id, subject: "ann".into() };
    removal.conclude(effect(vec![delete])).await.unwrap();
    let waiter = waiter.await.unwrap().unwrap();
    assert_eq!(waiter.loaded().role, None);
    waiter.abandon().await;
}

#[tokio::test]
async fn names_in_any_order_never_deadlock() {
    let world = populated().await;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let store = world.store.clone();
            tokio::spawn(async move {
                let mut names = vec!["a".to_owned(), "b".to_owned()];
                if task % 2 == 0 {
                    names.reverse();
                }
                let locks = Locks {
                    providers: Providers::Named(names, Lock::Update),
                    sandboxes: Sandboxes::OfLockedProviders,
                    ..in_workspace("w", Lock::Share)
                };
                for _ in 0..25 {
                    let in_flight = store.first_flight(&command(), &locks).await.unwrap();
                    in_flight.conclude(effect(Vec::new())).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut side = world.postgres.session().await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(side.value(deadlocks).await, "0");
}

#[tokio::test]
async fn a_row_that_stays_locked_is_a_retry_and_not_a_busy_ledger() {
    let mut world = populated().await;
    world.sql.hold(ROWS[4]).await;
    let refused = world.first(&command(), &by_name("w", "s")).await;
    assert!(matches!(refused, Err(FlightError::Retry(_))), "{refused:?}");
    world.sql.release().await;
    eventually(PATIENCE, "the row is free", async || world.first(&command(), &by_name("w", "s")).await.map(drop)).await;
}
