use std::time::{Duration, SystemTime};

use bytes::Bytes;
use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_store::error::{Busy, LedgerRow};
use roadstead_store::mutation::{Command, Conclusion, Ledger, Lock, Locks, Outcome, Write};
use roadstead_store::{Committed, FlightError};
use roadstead_testkit::eventually;
use uuid::Uuid;

use crate::world::{CALLER, World, claimed, command, effect, in_workspace, refusal, response, workspace};

const PATIENCE: Duration = Duration::from_secs(20);

async fn ledger(world: &World, command: &Command) -> Ledger {
    let in_flight = world.first(command, &Locks::default()).await.unwrap();
    let ledger = in_flight.loaded().ledger.clone();
    in_flight.abandon().await;
    ledger
}

/// Gives a started command its outcome.
async fn finish(world: &World, command: &Command, conclusion: Conclusion) -> Result<Committed, FlightError> {
    world.store.resume(command, &Locks::default()).await?.conclude(conclusion).await
}

#[tokio::test]
async fn a_settled_command_is_answered_from_its_row_and_concludes_nothing() {
    let world = World::new().await;
    let command = command();
    let in_flight = world.first(&command, &Locks::default()).await.unwrap();
    assert!(matches!(in_flight.loaded().ledger, Ledger::Fresh));
    let committed = in_flight.conclude(effect(vec![Write::InsertWorkspace(workspace("w"))])).await.unwrap();
    assert_eq!(committed.outcome, response("done"));
    assert_eq!(committed.outbox.len(), 1);

    let again = world.first(&command, &Locks::default()).await.unwrap();
    assert!(matches!(&again.loaded().ledger, Ledger::Settled(outcome) if *outcome == response("done")));
    for conclusion in [effect(Vec::new()), refusal(), Conclusion::Replay(response("x"))] {
        let again = world.first(&command, &Locks::default()).await.unwrap();
        assert!(matches!(again.conclude(conclusion).await, Err(FlightError::Bug(_))));
    }
}

#[tokio::test]
async fn every_kind_of_outcome_is_kept_as_it_was_told() {
    let world = World::new().await;
    let outcomes = [
        response("text"),
        Outcome::Reference(Bytes::from_static(b"reference")),
        Outcome::Refused(Bytes::from_static(b"status")),
    ];
    for outcome in outcomes {
        let command = command();
        let conclusion = Conclusion::Effect { writes: Vec::new(), outcome: outcome.clone(), receipt: Bytes::new() };
        world.first(&command, &Locks::default()).await.unwrap().conclude(conclusion).await.unwrap();
        assert!(matches!(ledger(&world, &command).await, Ledger::Settled(kept) if kept == outcome));
    }
}

#[tokio::test]
async fn the_same_command_at_work_elsewhere_is_busy_and_then_settled() {
    let world = World::new().await;
    let command = command();
    let at_work = world.first(&command, &Locks::default()).await.unwrap();
    match world.first(&command, &Locks::default()).await {
        Err(FlightError::Busy(Busy { on: LedgerRow::Command, .. })) => {}
        other => panic!("{other:?}"),
    }
    match world.store.record_refusal(&command, &Bytes::from_static(b"late")).await {
        Err(FlightError::Busy(Busy { on: LedgerRow::Command, .. })) => {}
        other => panic!("{other:?}"),
    }
    at_work.conclude(refusal()).await.unwrap();
    assert!(matches!(ledger(&world, &command).await, Ledger::Settled(Outcome::Refused(_))));
}

#[tokio::test]
async fn a_claim_at_work_is_busy_with_the_callers_rights_and_then_claimed() {
    let world = World::new().await;
    let row = world.workspace("w").await;
    world.member(&row, "ann", WorkspaceRole::User).await;
    let id = Uuid::new_v4();
    let locks = Locks { subject: Some("ann".into()), ..in_workspace("w", Lock::Share) };
    let at_work = world.first(&claimed("w", id), &locks).await.unwrap();
    let duplicate = claimed("w", id);
    match world.first(&duplicate, &locks).await {
        Err(FlightError::Busy(Busy { on: LedgerRow::Claim, role, .. })) => {
            assert_eq!(role, Some(WorkspaceRole::User));
        }
        other => panic!("{other:?}"),
    }
    at_work.conclude(effect(Vec::new())).await.unwrap();

    let duplicate_flight = world.first(&duplicate, &locks).await.unwrap();
    match &duplicate_flight.loaded().ledger {
        Ledger::Claimed(claim) => {
            assert_eq!(claim.receipt, Bytes::from_static(b"receipt"));
            assert_eq!(claim.workspace_id, Some(row.id));
            assert_eq!((claim.protected, claim.key_id.as_str()), (true, "k1"));
            assert_eq!(claim.fingerprint, vec![9; 32]);
            assert!(claim.completed_at.is_some());
        }
        other => panic!("{other:?}"),
    }
    let replayed = Outcome::Response { body: Bytes::from_static(b"again"), replayed: true };
    let committed = duplicate_flight.conclude(Conclusion::Replay(replayed.clone())).await.unwrap();
    assert!(committed.outbox.is_empty());
    assert!(matches!(ledger(&world, &duplicate).await, Ledger::Settled(outcome) if outcome == replayed));
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 1);
}

#[tokio::test]
async fn a_claim_belongs_to_its_caller_method_and_scope() {
    let world = World::new().await;
    let id = Uuid::new_v4();
    let first = claimed("w", id);
    world.first(&first, &Locks::default()).await.unwrap().conclude(effect(Vec::new())).await.unwrap();
    let others = [
        Command { caller: [8; 32], ..claimed("w", id) },
        Command { method: "DeleteSandbox", ..claimed("w", id) },
        claimed("v", id),
        claimed("w", Uuid::new_v4()),
    ];
    for other in others {
        assert!(matches!(ledger(&world, &other).await, Ledger::Fresh), "{other:?}");
    }
    assert!(matches!(ledger(&world, &claimed("w", id)).await, Ledger::Claimed(_)));
}

#[tokio::test]
async fn calls_about_a_workspace_bind_no_incarnation_of_it() {
    let mut world = World::new().await;
    let row = world.workspace("w").await;
    for (method, bound) in
        [("DeleteWorkspace", ""), ("CreateWorkspace", ""), ("AddWorkspaceMember", row.id.to_string().as_str())]
    {
        let command = Command { method, ..claimed("w", Uuid::new_v4()) };
        let in_flight = world.first(&command, &in_workspace("w", Lock::Share)).await.unwrap();
        in_flight.conclude(effect(Vec::new())).await.unwrap();
        let sql = format!("select workspace_id from roadstead.claim where method = '{method}'");
        assert_eq!(world.sql.value(&sql).await, bound, "{method}");
    }
}

#[tokio::test]
async fn a_refusal_frees_the_request_id_and_not_the_command_id() {
    let mut world = World::new().await;
    let id = Uuid::new_v4();
    let refused = claimed("w", id);
    world.first(&refused, &Locks::default()).await.unwrap().conclude(refusal()).await.unwrap();
    assert_eq!(world.sql.value("select count(*) from roadstead.claim").await, "0");
    assert!(matches!(ledger(&world, &refused).await, Ledger::Settled(Outcome::Refused(_))));
    assert!(matches!(ledger(&world, &claimed("w", id)).await, Ledger::Fresh));

    // One that leaves something behind frees it as well.
    let marking = claimed("w", id);
    let conclusion = Conclusion::Effect {
        writes: vec![Write::InsertWorkspace(workspace("left"))],
        outcome: Outcome::Refused(Bytes::from_static(b"no")),
        receipt: Bytes::new(),
    };
    let committed = world.first(&marking, &Locks::default()).await.unwrap().conclude(conclusion).await.unwrap();
    assert_eq!(committed.outbox.len(), 1);
    assert!(matches!(ledger(&world, &claimed("w", id)).await, Ledger::Fresh));
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 0);
}

#[tokio::test]
async fn an_expired_success_is_treated_as_absent_and_counted_once() {
    let mut world = World::new().await;
    let id = Uuid::new_v4();
    let succeed = async |world: &World, conclusion| {
        world.first(&claimed("w", id), &Locks::default()).await.unwrap().conclude(conclusion).await.unwrap();
    };
    succeed(&world, effect(Vec::new())).await;
    assert!(matches!(ledger(&world, &claimed("w", id)).await, Ledger::Claimed(_)));
    let age = "update roadstead.claim set completed_at = completed_at - interval '24 hours 1 second'";
    world.sql.run(age).await;
    assert!(matches!(ledger(&world, &claimed("w", id)).await, Ledger::Fresh));
    succeed(&world, effect(Vec::new())).await;
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 1);
    world.sql.run(age).await;
    succeed(&world, refusal()).await;
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 0);
    assert_eq!(world.sql.value("select count(*) from roadstead.claim").await, "0");
}

#[tokio::test]
async fn of_many_at_once_exactly_as_many_succeed_as_the_quota_allows() {
    let world = World::with(|settings| settings.quota = 5).await;
    let attempts: Vec<_> = (0..24)
        .map(|_| {
            let store = world.store.clone();
            tokio::spawn(async move {
                let command = claimed("w", Uuid::new_v4());
                loop {
                    let in_flight = store.first_flight(&command, &Locks::default()).await.unwrap();
                    match in_flight.conclude(effect(Vec::new())).await {
                        Ok(_) => return Some(command),
                        Err(FlightError::QuotaExceeded) => return None,
                        Err(FlightError::Retry(_)) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    let mut kept = Vec::new();
    for attempt in attempts {
        kept.extend(attempt.await.unwrap());
    }
    assert_eq!(kept.len(), 5);
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 5);

    // What is kept replays, and what has no request id goes on.
    let claim = kept[0].claim.clone();
    assert!(matches!(ledger(&world, &Command { claim, ..command() }).await, Ledger::Claimed(_)));
    world.write(vec![Write::InsertWorkspace(workspace("w"))]).await;
    let other = Command { caller: [8; 32], ..claimed("w", Uuid::new_v4()) };
    world.first(&other, &Locks::default()).await.unwrap().conclude(effect(Vec::new())).await.unwrap();
}

#[tokio::test]
async fn a_full_bucket_has_room_again_once_its_expired_successes_are_gone() {
    let mut world = World::with(|settings| settings.quota = 2).await;
    for _ in 0..2 {
        let command = claimed("w", Uuid::new_v4());
        world.first(&command, &Locks::default()).await.unwrap().conclude(effect(Vec::new())).await.unwrap();
    }
    let more = claimed("w", Uuid::new_v4());
    let conclude =
        async |world: &World| world.first(&more, &Locks::default()).await.unwrap().conclude(effect(Vec::new())).await;
    assert!(matches!(conclude(&world).await, Err(FlightError::QuotaExceeded)));
    assert_eq!(world.store.delete_old_claims_of(&CALLER, 100).await.unwrap(), 0);
    world.sql.run("update roadstead.claim set completed_at = completed_at - interval '25 hours'").await;
    assert_eq!(world.store.delete_old_claims_of(&CALLER, 100).await.unwrap(), 2);
    conclude(&world).await.unwrap();
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 1);
}

#[tokio::test]
async fn a_refusal_alone_yields_to_the_row_that_is_there() {
    let world = World::new().await;
    let late = Bytes::from_static(b"late");
    let fresh = command();
    assert_eq!(world.store.record_refusal(&fresh, &late).await.unwrap(), Outcome::Refused(late.clone()));
    assert!(matches!(ledger(&world, &fresh).await, Ledger::Settled(Outcome::Refused(told)) if told == late));

    let done = command();
    world.first(&done, &Locks::default()).await.unwrap().conclude(effect(Vec::new())).await.unwrap();
    assert_eq!(world.store.record_refusal(&done, &late).await.unwrap(), response("done"));
}

#[tokio::test]
async fn a_started_effect_stands_until_it_is_finished_once() {
    let world = World::new().await;
    let id = Uuid::new_v4();
    let started = claimed("w", id);
    let begun = world
        .first(&started, &Locks::default())
        .await
        .unwrap()
        .begin_effect(Uuid::new_v4(), Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(begun.outcome, Outcome::Started);
    assert!(matches!(ledger(&world, &started).await, Ledger::Settled(Outcome::Started)));
    assert!(matches!(ledger(&world, &claimed("w", id)).await, Ledger::Claimed(row) if row.completed_at.is_none()));
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 1);
    assert_eq!(world.store.unresolved_claims().await.unwrap(), 1);
    let listed = world.store.unresolved((SystemTime::UNIX_EPOCH, Uuid::nil()), 10).await.unwrap();
    assert_eq!(listed.iter().map(|known| known.command_id).collect::<Vec<_>>(), [started.id]);

    let writes = vec![Write::InsertWorkspace(workspace("w"))];
    let finished = finish(&world, &started, effect(writes)).await.unwrap();
    assert_eq!((finished.outcome, finished.outbox.len()), (response("done"), 1));
    assert!(matches!(ledger(&world, &started).await, Ledger::Settled(outcome) if outcome == response("done")));
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 1);
    let again = finish(&world, &started, effect(Vec::new())).await;
    assert!(matches!(again, Err(FlightError::Bug(_))), "{again:?}");
}

#[tokio::test]
async fn only_who_resumed_a_started_command_gives_it_its_outcome() {
    let world = World::new().await;
    let (started, executor) = (claimed("w", Uuid::new_v4()), Uuid::new_v4());
    let begun = world.first(&started, &Locks::default()).await.unwrap();
    begun.begin_effect(executor, Duration::from_secs(30)).await.unwrap();
    assert!(world.store.has_begun(started.id, executor).await.unwrap());
    assert!(!world.store.has_begun(started.id, Uuid::new_v4()).await.unwrap());
    for conclusion in [effect(Vec::new()), refusal(), Conclusion::Replay(response("x"))] {
        let redelivered = world.first(&started, &Locks::default()).await.unwrap();
        let refused = redelivered.conclude(conclusion).await;
        assert!(matches!(refused, Err(FlightError::Bug(_))), "{refused:?}");
    }
    let never_begun = finish(&world, &claimed("w", Uuid::new_v4()), refusal()).await;
    assert!(matches!(never_begun, Err(FlightError::Retry(_))), "{never_begun:?}");
    // One holds the row, the other does not wait for it.
    let holder = world.store.resume(&started, &Locks::default()).await.unwrap();
    let second = world.store.resume(&started, &Locks::default()).await;
    assert!(matches!(second, Err(FlightError::Busy(Busy { on: LedgerRow::Command, .. }))), "{second:?}");
    holder.conclude(refusal()).await.unwrap();
    assert!(!world.store.has_begun(started.id, executor).await.unwrap());
    let found = world.store.resume(&started, &Locks::default()).await.unwrap();
    assert!(matches!(found.loaded().ledger, Ledger::Settled(Outcome::Refused(_))));
    found.abandon().await;
}

#[tokio::test]
async fn a_started_effect_that_did_not_happen_frees_its_claim() {
    let world = World::new().await;
    let started = claimed("w", Uuid::new_v4());
    world
        .first(&started, &Locks::default())
        .await
        .unwrap()
        .begin_effect(Uuid::new_v4(), Duration::from_secs(30))
        .await
        .unwrap();
    finish(&world, &started, refusal()).await.unwrap();
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 0);
    assert_eq!(world.store.unresolved_claims().await.unwrap(), 0);
    assert!(matches!(ledger(&world, &started).await, Ledger::Settled(Outcome::Refused(_))));
}

#[tokio::test]
async fn a_connection_lost_between_the_flights_leaves_nothing_and_the_command_runs_again() {
    let mut world = World::new().await;
    let command = command();
    let in_flight = world.first(&command, &Locks::default()).await.unwrap();
    world.postgres.end_sessions_of("roadstead_admission").await;
    let lost = in_flight.conclude(effect(vec![Write::InsertWorkspace(workspace("w"))])).await;
    assert!(matches!(lost, Err(FlightError::Lost(_))), "{lost:?}");
    assert_eq!(world.sql.value("select count(*) from roadstead.workspace where name = 'w'").await, "0");
    let again = world.first(&command, &Locks::default()).await.unwrap();
    again.conclude(effect(vec![Write::InsertWorkspace(workspace("w"))])).await.unwrap();
    assert_eq!(world.sql.value("select count(*) from roadstead.workspace where name = 'w'").await, "1");
}

#[tokio::test]
async fn a_frozen_holder_loses_its_transaction() {
    let world = World::new().await;
    let command = command();
    let frozen = world.first(&command, &Locks::default()).await.unwrap();
    // Postgres ends it; until then the same command is busy.
    let second = eventually(PATIENCE, "the ledger's row is free", async || {
        match world.first(&command, &Locks::default()).await {
            Ok(in_flight) => Some(in_flight),
            Err(FlightError::Busy(_)) => None,
            Err(other) => panic!("{other:?}"),
        }
    })
    .await;
    second.conclude(refusal()).await.unwrap();
    let late = frozen.conclude(effect(vec![Write::InsertWorkspace(workspace("w"))])).await;
    assert!(matches!(late, Err(FlightError::Lost(_))), "{late:?}");
    assert!(matches!(ledger(&world, &command).await, Ledger::Settled(Outcome::Refused(_))));
}

#[tokio::test]
async fn a_dropped_flight_lets_go_of_everything() {
    let mut world = World::with(|settings| settings.pool_size = 1).await;
    world.workspace("w").await;
    let command = command();
    drop(world.first(&command, &in_workspace("w", Lock::Update)).await.unwrap());
    eventually(PATIENCE, "the command is free", async || {
        world.first(&command, &in_workspace("w", Lock::Update)).await.map(drop)
    })
    .await;

    // Also one that is cancelled while it waits for a lock.
    world.sql.hold("select * from roadstead.workspace where name = 'w' for update").await;
    let locks = in_workspace("w", Lock::Update);
    let waiting = world.first(&command, &locks);
    assert!(tokio::time::timeout(Duration::from_millis(300), waiting).await.is_err());
    world.sql.release().await;
    let in_flight = eventually(PATIENCE, "the command is free", async || world.first(&command, &locks).await).await;
    assert!(matches!(in_flight.loaded().ledger, Ledger::Fresh));
}

#[tokio::test]
async fn one_connection_serves_any_number_of_failed_flights() {
    let world = World::with(|settings| settings.pool_size = 1).await;
    for _ in 0..3 {
        let refused = world.try_write(vec![Write::DeleteWorkspace(Uuid::new_v4())]).await;
        assert!(matches!(refused, Err(FlightError::Guard(_))), "{refused:?}");
        let abandoned = world.first(&command(), &Locks::default()).await.unwrap();
        abandoned.abandon().await;
    }
    world.write(vec![Write::InsertWorkspace(workspace("w"))]).await;
}
