//! The broker restarts, and loses everything, while the system works.

use roadstead_e2e::{Fleet, Load, load};
use roadstead_testkit::{Stack, soak, stack::Plan};

use crate::oracle::{SANDBOXES, assert_sound};

/// What is done to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    Restart,
    Wipe,
}

/// Sessions and watches stay open, what has a request id succeeds, and everything agrees.
async fn the_system_gets_over(outage: Outage) {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let load = Load::start(&Fleet::edges(&stack), fleet.workspace(), &fleet.names());
    for _ in 0..soak::factor() {
        load.progress(40).await;
        match outage {
            Outage::Restart => stack.broker().restart().await,
            Outage::Wipe => stack.broker().wipe().await,
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
