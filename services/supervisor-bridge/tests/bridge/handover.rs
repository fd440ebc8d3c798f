//! Sessions that go to another bridge.

use roadstead_proto::api::v1::SessionRedirect;
use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::supervisor_message::Payload as ToBridge;
use roadstead_proto::api::v1::{GatewayMessage, SupervisorHello, SupervisorMessage};
use roadstead_proto::internal::{BridgePresence, EndSession};
use roadstead_testkit::eventually;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use crate::calls::{connect, hello};
use crate::shelf::Content;
use crate::world::{BridgeProcess, LONG, World};

/// What a supervisor by hand has, and whether its hello says that it follows redirects, and that it did.
struct Hand {
    sandbox_id: Uuid,
    _to_bridge: mpsc::Sender<SupervisorMessage>,
    from_bridge: Streaming<GatewayMessage>,
}

impl Hand {
    async fn open(world: &World, bridge: &BridgeProcess, follows: bool, redirected: bool) -> Self {
        let sandbox_id = Uuid::new_v4();
        world.shelf.put(sandbox_id, &Content::version(1)).await;
        let ToBridge::Hello(greeting) = hello(sandbox_id) else { panic!() };
        let greeting = SupervisorHello { supports_session_redirect: follows, redirected, ..greeting };
        let (_to_bridge, mut from_bridge) =
            connect(world, bridge, sandbox_id, vec![ToBridge::Hello(greeting)]).await.unwrap();
        let accepted = from_bridge.message().await.unwrap().unwrap();
        assert!(matches!(accepted.payload, Some(FromBridge::SessionAccepted(_))), "{accepted:?}");
        Self { sandbox_id, _to_bridge, from_bridge }
    }

    /// Where it is sent, if anywhere, and the status at the end.
    async fn end(mut self) -> (Option<SessionRedirect>, Status) {
        let mut redirect = None;
        let reading = async {
            loop {
                match self.from_bridge.message().await {
                    Ok(Some(GatewayMessage { payload: Some(FromBridge::SessionRedirect(sent)) })) => {
                        assert_eq!(redirect.replace(sent), None, "sent away twice");
                    }
                    Ok(Some(_)) => assert_eq!(redirect, None, "something came after the redirect"),
                    Ok(None) => panic!("it ended without a status"),
                    Err(status) => return status,
                }
            }
        };
        let status = tokio::time::timeout(LONG, reading).await.unwrap();
        (redirect, status)
    }
}

/// Waits until a bridge at this address has told that it holds so many.
async fn present(world: &World, bridge: &BridgeProcess, held: u32) -> BridgePresence {
    let mut told = world.presences().await;
    let telling = async {
        loop {
            let presence = told.next().await;
            if presence.endpoint == bridge.url() && presence.held == held {
                return presence;
            }
        }
    };
    tokio::time::timeout(LONG, telling).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_stops_sends_supervisors_to_another_one_if_they_can_follow() {
    let world = World::new().await;
    let one = world.bridge(&["--rebalance=never"]).await;
    let alone = Hand::open(&world, &one, true, false).await;
    let two = world.bridge(&["--advertise=http://{listen}", "--rebalance=never"]).await;
    let peer = present(&world, &two, 0).await;

    let settled = Hand::open(&world, &one, true, true).await;
    let deaf = Hand::open(&world, &one, false, false).await;
    let (watched_id, watched) = (Uuid::new_v4(), Content::version(1));
    world.shelf.put(watched_id, &watched).await;
    // It knows of the first one only.
    let watched = world.supervisor(&[&one], watched_id, |_| ());
    watched.applied(1).await;
    let before = world.desk.session(watched_id).unwrap();
    let sandboxes = [alone.sandbox_id, settled.sandbox_id, deaf.sandbox_id];

    let ((), alone, settled, deaf) = tokio::join!(one.drain(), alone.end(), settled.end(), deaf.end());
    let there = SessionRedirect { peer_endpoint: two.url(), owner_replica_id: peer.bridge_id.clone() };
    assert_eq!(alone.0.as_ref(), Some(&there));
    assert_eq!(settled.0.as_ref(), Some(&there), "at a stop it may be sent on");
    assert_eq!(deaf.0, None);
    for (_, status) in [alone, settled, deaf] {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    watched.ended("redirected to").await;
    watched.connected().await;
    let after = world.desk.session(watched_id).unwrap();
    assert_ne!(before, after);
    let registered = world.desk.told("RegisterSession");
    let taken_over = registered.iter().filter(|told| told.sandbox_id == watched_id.to_string()).nth(1).unwrap();
    let ended = eventually(LONG, "its end is told", async || {
        world.desk.told("EndSession").into_iter().find(|told| told.sandbox_id == watched_id.to_string())
    });
    assert!(taken_over.at < ended.await.at, "the end was news to nobody");
    assert_eq!(world.desk.told("EndSession").len(), sandboxes.len() + 1);
    let end: EndSession = world.desk.wait("EndSession", 0).await;
    assert_eq!(end.reason, "draining");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_cannot_reach_where_it_is_sent_goes_back_to_its_own_list() {
    let world = World::new().await;
    let one = world.bridge(&["--rebalance=never"]).await;
    let nowhere = "http://127.0.0.1:1";
    let two = world.bridge(&[&format!("--advertise={nowhere}"), "--rebalance=never"]).await;
    let sandbox_id = Uuid::new_v4();
    world.shelf.put(sandbox_id, &Content::version(1)).await;
    let watched = world.supervisor(&[&one, &two], sandbox_id, |_| ());
    watched.applied(1).await;
    let before = world.desk.session(sandbox_id).unwrap();
    let mut told = world.presences().await;
    while told.next().await.endpoint != nowhere {}

    one.drain().await;
    watched.ended(&format!("redirected to {nowhere}")).await;
    watched.ended("cannot be reached").await;
    watched.connected().await;
    assert_ne!(world.desk.session(sandbox_id).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_has_the_surplus_handed_over_and_who_came_by_a_redirect_stays() {
    let world = World::new().await;
    let flags = ["--advertise=http://{listen}", "--rebalance=never"];
    let (one, two) = (world.bridge(&flags).await, world.bridge(&flags).await);
    let (mut may, mut stay) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        may.push(Hand::open(&world, &one, true, false).await);
        stay.push(Hand::open(&world, &one, true, true).await);
        stay.push(Hand::open(&world, &one, false, false).await);
    }
    present(&world, &one, 6).await;
    present(&world, &two, 0).await;

    let rebalanced = world.rebalance().await;
    let mut shown: Vec<_> =
        rebalanced.bridges.into_iter().map(|shown| (shown.endpoint, shown.held, shown.moves)).collect();
    shown.sort_by_key(|(_, held, _)| *held);
    assert_eq!(shown, [(two.url(), 0, 0), (one.url(), 6, 3)]);
    for hand in may {
        let (redirect, status) = hand.end().await;
        assert_eq!((redirect.unwrap().peer_endpoint, status.code()), (two.url(), Code::Unavailable));
    }
    // Three were above the share of the first, and only these two might go: the others were not told to.
    present(&world, &one, 4).await;
    drop(stay);
}
