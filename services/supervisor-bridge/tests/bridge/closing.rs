//! When the bridge ends sessions.

use std::time::Duration;

use prost_types::Timestamp;
use roadstead_proto::api::v1::{RefreshSandboxTokenRequest, RefreshSandboxTokenResponse, SandboxPhase};
use roadstead_proto::internal::EndSession;
use roadstead_supervisor::{Behaviour, TokenSource};
use roadstead_testkit::eventually;
use secrecy::ExposeSecret as _;
use tonic::Code;
use uuid::Uuid;

use crate::calls::{connect, hello};
use crate::desk::encoded;
use crate::shelf::Content;
use crate::world::{LONG, World, with_token};

const LIFETIME: Duration = Duration::from_secs(900);
/// A token of this age is within the leeway for four more seconds.
const ALMOST_OVER: Duration = Duration::from_secs(900 + 56);

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_stops_loses_its_session_and_admission_hears_it() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    let workspace_id = world.desk.workspace_id;
    // The registration left the row at version 2.
    world.shelf.project(workspace_id, sandbox_id, 1, SandboxPhase::Stopped).await;
    world.shelf.project(workspace_id, sandbox_id, 2, SandboxPhase::Ready).await;
    world.shelf.put(sandbox_id, &Content::version(2)).await;
    watched.applied(2).await;
    assert!(world.desk.told("EndSession").is_empty(), "what was before the session does not count");

    world.shelf.project(workspace_id, sandbox_id, 3, SandboxPhase::Stopping).await;
    watched.ended("the sandbox stops, or is gone").await;
    let end: EndSession = world.desk.wait("EndSession", 0).await;
    assert_eq!(end.reason, "sandbox_over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_hands_sessions_over_without_anybody_seeing_them_go() {
    let world = World::new().await;
    let (one, two) = (world.bridge(&[]).await, world.bridge(&[]).await);
    let sandbox_id = Uuid::new_v4();
    world.shelf.put(sandbox_id, &Content::version(1)).await;
    let watched = world.supervisor(&[&one, &two], sandbox_id, |_| ());
    watched.applied(1).await;
    let first = world.desk.session(sandbox_id).unwrap();
    one.drain().await;
    watched.ended("this process stops; connect again").await;
    watched.connected().await;
    let second = world.desk.session(sandbox_id).unwrap();
    assert_ne!(first, second);
    let end: EndSession = world.desk.wait("EndSession", 0).await;
    assert_eq!((end.session_id, end.reason.as_str()), (first, "draining"));
    let (ended, taken_over) = (&world.desk.told("EndSession")[0], &world.desk.told("RegisterSession")[1]);
    assert!(taken_over.at < ended.at, "the end was news to nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_with_many_sessions_stops_in_its_time_though_nobody_hears_of_their_ends() {
    let world = World::new().await;
    let bridge = world.bridge(&["--drain-seconds=2"]).await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let sandbox_id = Uuid::new_v4();
        world.shelf.put(sandbox_id, &Content::version(1)).await;
        let (to_bridge, mut from_bridge) = connect(&world, &bridge, sandbox_id, vec![hello(sandbox_id)]).await.unwrap();
        from_bridge.message().await.unwrap().unwrap();
        streams.push((to_bridge, from_bridge));
    }
    // From here on admission answers nothing, and the supervisors keep their streams and read nothing.
    world.stop.cancel();
    bridge.drain().await;
    for (_to_bridge, mut from_bridge) in streams {
        let end = loop {
            match from_bridge.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("ended in order"),
                Err(status) => break status,
            }
        };
        assert_eq!(end.code(), Code::Unavailable, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_was_judged_gone_closes_its_sessions_once() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    let first = world.desk.session(sandbox_id);
    world.desk.judge(true);
    watched.ended("out of touch").await;
    eventually(LONG, "it is back", || async {
        world.desk.session(sandbox_id).filter(|now| Some(now) != first.as_ref())
    })
    .await;
    watched.connected().await;
    let sessions = watched.supervisor.status().borrow().sessions;
    // The same judgement is told again, and the second answer is heard before the third is asked for.
    world.desk.renewals(2).await;
    assert_eq!(watched.supervisor.status().borrow().sessions, sessions);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_token_unless_that_is_refreshed() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (expiring, refreshed) = (Uuid::new_v4(), Uuid::new_v4());
    let start = |sandbox_id| {
        let old = world.token(sandbox_id, ALMOST_OVER, LIFETIME);
        world.supervisor(&[&bridge], sandbox_id, |settings| {
            settings.token = TokenSource::Given(old);
            settings.behaviour = Behaviour::Silent;
        })
    };
    world.shelf.put(expiring, &Content::version(1)).await;
    world.shelf.put(refreshed, &Content::version(1)).await;
    // Supervisors try to refresh such tokens; nothing that admission says here helps them, but for one answer below.
    let two = start(refreshed);
    two.connected().await;
    let one = start(expiring);
    one.connected().await;

    let fresh = world.fresh_token(refreshed);
    let expires = std::time::SystemTime::now() + LIFETIME;
    let seconds = expires.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let answer = RefreshSandboxTokenResponse {
        token: fresh.expose_secret().to_owned(),
        expiration_time: Some(Timestamp { seconds: seconds.try_into().unwrap(), nanos: 0 }),
        ..Default::default()
    };
    world.desk.answer_next_of("RefreshSandboxToken", refreshed, encoded(&answer));
    let request = with_token(RefreshSandboxTokenRequest::default(), &world.token(refreshed, ALMOST_OVER, LIFETIME));
    bridge.client().await.refresh_sandbox_token(request).await.unwrap();

    one.ended("the token of this session has expired").await;
    // By now the first token of the other one has run out too.
    world.shelf.put(refreshed, &Content::version(2)).await;
    two.frame(|frame| frame.config.as_ref().is_some_and(|config| config.policy_version == 2)).await;
    assert_eq!(two.supervisor.status().borrow().sessions, 1);
}
