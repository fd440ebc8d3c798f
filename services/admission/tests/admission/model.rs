//! Random commands under random faults, against what must be true of them whatever happens: each has 0 or 1 effects, a
//! told success has its effect, a told refusal has none, and both for ever.

mod audit;
mod calls;
mod chaos;
mod oracle;

use std::sync::Arc;
use std::time::Duration;

use roadstead_proto::role::Role;
use roadstead_proto::subject;
use roadstead_testkit::dice::Dice;
use roadstead_testkit::soak;
use tokio::sync::{Semaphore, mpsc};

use crate::world::{DoorOf, World};
use calls::Call;
use oracle::Heard;

/// Calls of a plain run.
const CALLS: u32 = 70;
const AT_ONCE: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_each_command_has_one_effect_or_none_and_what_was_told_stays_true() {
    let mut dice = Dice::new();
    let mut world = World::with(2, &[]).await;
    let second = DoorOf::open(&world.broker, &world.keyring, Role::Edge).await;
    calls::prepare(&mut world).await;
    audit::install(&mut world).await;

    let calls = calls::random(&mut dice, soak::count(CALLS));
    let (sender, mut told) = mpsc::channel(calls.iter().map(|call| call.copies).sum());
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let sent = tokio::spawn({
        let (doors, calls, permits) = ([world.edge.clone(), second], calls.clone(), Arc::clone(&permits));
        async move {
            for call in calls {
                let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
                let (doors, sender) = (doors.clone(), sender.clone());
                tokio::spawn(async move {
                    let copies = doors.iter().take(call.copies).map(|door| send(door, &call));
                    for told in futures_util::future::join_all(copies).await {
                        sender.send((call.id(), told)).await.unwrap();
                    }
                    drop(permit);
                });
            }
            let _all_back = permits.acquire_many(u32::try_from(AT_ONCE).unwrap()).await.unwrap();
        }
    });
    chaos::until(&mut dice, &mut world, sent).await;

    let mut heard = Heard::default();
    while let Some((id, told)) = told.recv().await {
        heard.add(id, told);
    }
    // All are asked once more, by the same command and by the same request id.
    for some in calls.chunks(AT_ONCE) {
        let again = some.iter().filter(|call| heard.may_have_been_stored(call.id())).collect::<Vec<_>>();
        let told = futures_util::future::join_all(again.iter().map(|call| send(&world.edge, call))).await;
        again.iter().zip(told).for_each(|(call, told)| heard.add(call.id(), told));
    }
    let log = audit::read(&mut world).await;
    oracle::check(&calls, &heard, &log);
    for some in oracle::successes(&calls, &log).chunks(AT_ONCE) {
        let duplicates = some.iter().map(|call| call.duplicate()).collect::<Vec<_>>();
        let told = futures_util::future::join_all(duplicates.iter().map(|call| send(&world.edge, call))).await;
        told.iter().for_each(oracle::is_a_replay);
        let others = some.iter().filter_map(|call| call.mismatch()).collect::<Vec<_>>();
        let told = futures_util::future::join_all(others.iter().map(|call| send(&world.edge, call))).await;
        told.iter().for_each(oracle::is_a_mismatch);
    }
    assert_eq!(audit::read(&mut world).await.changes(), log.changes(), "asking again had an effect");
    world.stop().await;
}

async fn send(door: &DoorOf, call: &Call) -> crate::world::Told {
    // What the proxies break is the door's to put right, up to the command's deadline.
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, door.call(&subject::command(call.request.method), call.command.clone()))
        .await
        .expect("a call ends with its deadline")
}
