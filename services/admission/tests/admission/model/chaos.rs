//! Faults, one after the other, for as long as there is work.

use std::time::Duration;

use roadstead_proto::inbox::Inbox;
use roadstead_proto::role::Role;
use roadstead_testkit::dice::Dice;
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::soak;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::world::World;

#[derive(Clone, Copy, Debug)]
enum Fault {
    DatabaseReset,
    DatabaseRepliesLost,
    BrokerReset,
    BrokerRepliesLost,
    AcksLost,
    AnswersLost,
    Freeze,
    Kill,
    Restart,
}

const FAULTS: [Fault; 9] = [
    Fault::DatabaseReset,
    Fault::DatabaseRepliesLost,
    Fault::BrokerReset,
    Fault::BrokerRepliesLost,
    Fault::AcksLost,
    Fault::AnswersLost,
    Fault::Freeze,
    Fault::Kill,
    Fault::Restart,
];

/// Faults of a plain run: what they hold up is taken up again seconds later.
const STRIKES: u32 = 6;

/// Disturbs the replicas until `work` has ended, which must succeed, or for so many times; then all is well again.
pub(crate) async fn until(dice: &mut Dice, world: &mut World, work: JoinHandle<()>) {
    // Nothing here waits for a condition: how long a fault lasts is part of it.
    for _ in 0..soak::count(STRIKES) {
        if work.is_finished() {
            break;
        }
        let fault = *dice.pick(&FAULTS);
        eprintln!("{fault:?}");
        strike(dice, world, fault).await;
        sleep(Duration::from_millis(dice.below(300))).await;
    }
    for replica in &world.replicas {
        replica.nats.heal();
        replica.postgres.heal();
    }
    work.await.unwrap();
}

async fn strike(dice: &mut Dice, world: &mut World, fault: Fault) {
    let at = usize::try_from(dice.below(world.replicas.len() as u64)).unwrap();
    let moment = Duration::from_millis(dice.below(80));
    let replica = &world.replicas[at];
    match fault {
        Fault::DatabaseReset => replica.postgres.reset(),
        Fault::DatabaseRepliesLost => {
            replica.postgres.lose_replies();
            sleep(moment).await;
            replica.postgres.reset();
        }
        Fault::BrokerReset => replica.nats.reset(),
        Fault::BrokerRepliesLost => {
            replica.nats.lose_replies();
            sleep(moment).await;
            replica.nats.reset();
        }
        Fault::AcksLost => replica.nats.drop_messages(Direction::ToServer, "$JS.ACK", 3),
        Fault::AnswersLost => {
            let answers = Inbox::all_answers(Role::Edge);
            replica.nats.drop_messages(Direction::ToServer, answers.trim_end_matches('*'), 2);
        }
        Fault::Freeze => {
            replica.nats.cut();
            replica.postgres.cut();
            // In a soak sometimes for longer than any of the time-outs.
            let long = soak::factor() > 1 && dice.happens(30);
            sleep(moment * if long { 100 } else { 10 }).await;
            replica.postgres.heal();
            replica.nats.heal();
        }
        Fault::Kill => {
            world.kill(at);
            world.start_replica().await;
        }
        Fault::Restart => {
            let replica = world.replicas.remove(at);
            replica.nats.heal();
            replica.postgres.heal();
            world.start_replica().await;
            World::stop_one(replica).await;
        }
    }
}
