use std::time::Duration;

use bytes::Bytes;
use roadstead_bus::{Bus, ConnectSettings, RequestError};
use roadstead_proto::role::Role;
use roadstead_testkit::eventually;

use crate::world::{LONG, World};

#[tokio::test]
async fn a_connection_is_made_in_the_background_once_there_is_a_broker() {
    let mut world = World::new().await;
    world.broker.stop().await;
    let settings =
        ConnectSettings { url: world.broker.url(), name: "early".into(), role: Role::Edge, nkey_seed: None, ca: None };
    let bus = Bus::connect(settings).await.unwrap();
    assert_eq!(bus.connects(), 0);
    assert!(!bus.is_connected());
    world.broker.resume().await;
    tokio::time::timeout(LONG, bus.connected()).await.unwrap();
    assert_eq!(bus.connects(), 1);
}

#[tokio::test]
async fn each_reconnect_is_noticed() {
    let mut world = World::new().await;
    let bus = world.bus(Role::Edge).await;
    let mut reconnects = bus.reconnects();
    for _ in 0..3 {
        reconnects.mark_unchanged();
        world.broker.kill().await;
        world.broker.resume().await;
        tokio::time::timeout(LONG, reconnects.changed()).await.unwrap().unwrap();
    }
    assert_eq!(bus.connects(), 4);
    assert_eq!(*reconnects.borrow(), 4);
}

#[tokio::test]
async fn a_request_that_nobody_serves_fails_at_once() {
    let world = World::new().await;
    let bus = world.bus(Role::Edge).await;
    let asked = bus.request("roadstead.read.Nothing", Bytes::new(), LONG).await;
    assert!(matches!(asked, Err(RequestError::NoResponders)), "{asked:?}");
}

#[tokio::test]
async fn a_request_that_is_not_answered_times_out_and_leaves_the_connection_usable() {
    let world = World::new().await;
    let (bus, silent) = (world.bus(Role::Edge).await, world.bus(Role::Watch).await);
    let mut heard = silent.subscribe_effective("roadstead.read.Silence").await.unwrap();
    let asked = bus.request("roadstead.read.Silence", Bytes::new(), Duration::from_millis(50)).await;
    assert!(matches!(asked, Err(RequestError::TimedOut)), "{asked:?}");

    let late = heard.next().await.unwrap();
    silent.publish(late.reply.unwrap(), "too late".into()).await.unwrap();
    let asked = tokio::spawn(async move { bus.request("roadstead.read.Silence", Bytes::new(), LONG).await });
    let next = heard.next().await.unwrap();
    silent.publish(next.reply.unwrap(), "in time".into()).await.unwrap();
    assert_eq!(asked.await.unwrap().unwrap(), "in time");
}

#[tokio::test]
async fn the_connection_ends_with_its_last_handle() {
    let world = World::new().await;
    let bus = world.bus(Role::Edge).await;
    drop(bus.subscribe_effective("test.effective").await.unwrap());
    let inbox = format!("{}.>", bus.inbox().prefix());
    // Somebody listens there as long as the connection stands, and nobody after.
    let probe = inbox.replace('>', "reply.0");
    let asked = world.admission.request(probe.clone(), Bytes::new(), Duration::from_millis(50)).await;
    assert!(matches!(asked, Err(RequestError::TimedOut)), "{asked:?}");
    drop(bus);
    eventually(LONG, "nobody listens", || async {
        let asked = world.admission.request(probe.clone(), Bytes::new(), Duration::from_millis(200)).await;
        matches!(asked, Err(RequestError::NoResponders))
    })
    .await;
}
