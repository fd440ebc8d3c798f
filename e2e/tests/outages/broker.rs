//! The broker restarts, and loses everything, while the system works.

use std::time::Duration;

use roadstead_e2e::{Fleet, Load, load};
use roadstead_testkit::{Stack, dice::Dice, eventually, soak, stack::Plan};

use crate::oracle::{SANDBOXES, assert_sound};

/// Brokers of a cluster.
const BROKERS: usize = 3;

/// By when a broker that comes back has all that the others have.
const CAUGHT_UP: Duration = Duration::from_secs(60);

/// What is done to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    Restart,
    Wipe,
    /// Of three with three copies of everything, one after the other is killed and comes back.
    DeathOfEach,
}

/// Sessions and watches stay open, what has a request id succeeds, and everything agrees.
async fn the_system_gets_over(outage: Outage) {
    let plan = if outage == Outage::DeathOfEach { Plan::pairs().brokers(BROKERS) } else { Plan::pairs() };
    let mut stack = Stack::start(plan).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let load = Load::start(&Fleet::edges(&stack), fleet.workspace(), &fleet.names());
    let mut dice = Dice::new();
    for _ in 0..soak::factor() {
        load.progress(40).await;
        match outage {
            Outage::Restart => stack.broker().restart().await,
            Outage::Wipe => stack.broker().wipe().await,
            Outage::DeathOfEach => {
                // One of them by chance, and all in a soak.
                let first = *dice.pick(&[0, 1, 2]);
                for number in (first..first + (soak::factor() as usize).min(BROKERS)).map(|number| number % BROKERS) {
                    stack.brokers()[number].kill().await;
                    load.progress(20).await;
                    let broker = &mut stack.brokers()[number];
                    broker.resume().await;
                    eventually(CAUGHT_UP, "the broker has caught up", async || {
                        let health = broker.monitor("/healthz").await;
                        if health["status"] == "ok" { Ok(()) } else { Err(health.to_string()) }
                    })
                    .await;
                }
            }
        }
        load.progress(20).await;
    }
    let mutations = load.stop().await;
    load::assert_failures_are(&mutations, |_| true);
    assert_sound(&stack, &fleet, &mutations).await;
    fleet.assert_watches_stayed();
    assert_eq!(fleet.sessions(), [1; SANDBOXES], "a session was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_broker_under_load_closes_no_session_and_loses_no_mutation() {
    the_system_gets_over(Outage::Restart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_loses_everything_under_load_closes_no_session_and_loses_no_mutation() {
    the_system_gets_over(Outage::Wipe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_any_of_three_brokers_under_load_closes_no_session_and_loses_no_mutation() {
    the_system_gets_over(Outage::DeathOfEach).await;
}
