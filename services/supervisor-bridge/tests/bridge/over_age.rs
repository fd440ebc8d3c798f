//! Sessions that are older than their tokens.

use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::supervisor_message::Payload as ToBridge;
use roadstead_proto::api::v1::{SupervisorHello, SupervisorMessage};
use roadstead_supervisor::{Behaviour, Observation, TokenSource};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::calls::hello;
use crate::shelf::Content;
use crate::world::{BridgeProcess, LONG, World, with_token};

const LIFETIME: Duration = Duration::from_secs(900);
/// How long a token counts beyond its end.
const LEEWAY: Duration = Duration::from_secs(60);
/// Until a token's limit, when its session is opened: it is asked up to 15 s before that, with a renewal, which comes every
/// 5 s.
const LEFT: Duration = Duration::from_secs(16);

/// What one was told whose session outlives its token.
struct Told {
    /// Where it was asked to connect again, and when.
    asked: Vec<(String, SystemTime)>,
    ended: (Status, SystemTime),
}

/// Opens a session that has so long to live, and reads to its end.
async fn over_age(world: &World, bridge: &BridgeProcess, follows: bool) -> Told {
    let sandbox_id = Uuid::new_v4();
    world.shelf.put(sandbox_id, &Content::version(1)).await;
    let ToBridge::Hello(greeting) = hello(sandbox_id) else { panic!() };
    let greeting = SupervisorHello { supports_session_redirect: follows, ..greeting };
    let (to_bridge, messages) = mpsc::channel(8);
    to_bridge.send(SupervisorMessage { payload: Some(ToBridge::Hello(greeting)) }).await.unwrap();
    let token = world.token(sandbox_id, LIFETIME + LEEWAY - LEFT, LIFETIME);
    let request = with_token(ReceiverStream::new(messages), &token);
    let mut from_bridge = bridge.client().await.connect_supervisor(request).await.unwrap().into_inner();
    let mut asked = Vec::new();
    let reading = async {
        loop {
            match from_bridge.message().await {
                Ok(Some(message)) => {
                    if let Some(FromBridge::SessionRedirect(to)) = message.payload {
                        asked.push((to.peer_endpoint, SystemTime::now()));
                    }
                }
                Ok(None) => panic!("it ended without a status"),
                Err(status) => return (status, SystemTime::now()),
            }
        }
    };
    let ended = tokio::time::timeout(LONG, reading).await.expect("the session ends");
    Told { asked, ended }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_older_than_its_token_is_asked_to_connect_again_before_its_limit_and_closed_after_it() {
    let world = World::new().await;
    // Who is asked has nothing to do with how long sessions stay that were handed over.
    let bridge = world.bridge(&["--advertise=http://{listen}", "--settle-seconds=0"]).await;
    let supervised_id = Uuid::new_v4();
    world.shelf.put(supervised_id, &Content::version(1)).await;
    let began = SystemTime::now();
    // It tries to refresh its token, and nobody helps it.
    let supervised = world.supervisor(&[&bridge], supervised_id, |settings| {
        settings.token = TokenSource::Given(world.token(supervised_id, LIFETIME + LEEWAY - LEFT, LIFETIME));
        settings.behaviour = Behaviour::Silent;
    });
    let (follows, deaf) = tokio::join!(over_age(&world, &bridge, true), over_age(&world, &bridge, false));

    let limit = began + LEFT;
    let [(to, asked)] = &follows.asked[..] else { panic!("it was asked {:?}", follows.asked) };
    assert_eq!(*to, bridge.url());
    assert!(*asked < limit, "it was asked {:?} after its limit", asked.duration_since(limit));
    assert!(deaf.asked.is_empty(), "it follows no redirect: {:?}", deaf.asked);
    for Told { ended: (status, at), .. } in [&follows, &deaf] {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("expired"), "{status}");
        // A token tells its times in whole seconds.
        assert!(
            *at + Duration::from_secs(1) >= limit,
            "it was closed {:?} before its limit",
            limit.duration_since(*at)
        );
    }
    // Who follows has another session at once, and is not sent round and round.
    supervised.ended("redirected to").await;
    supervised.ended("the token of this session has expired").await;
    let seen = supervised.recorder.observations();
    let redirects =
        seen.iter().filter(|one| matches!(one, Observation::Ended { reason, .. } if reason.contains("redirected")));
    assert_eq!(redirects.count(), 1, "{seen:?}");
}
