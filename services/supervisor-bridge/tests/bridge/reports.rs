//! What admission hears.

use std::collections::BTreeSet;

use prost::Message as _;
use roadstead_proto::internal::{EndSession, SessionResult};
use roadstead_service_kit::status::Code;
use roadstead_supervisor::Behaviour;
use roadstead_testkit::eventually;
use uuid::Uuid;

use crate::desk::refusal;
use crate::shelf::Content;
use crate::world::{LONG, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_sent_until_it_is_answered_with_its_number_and_new_command_ids() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Internal] {
        world.desk.answer_next("SessionResult", refusal(code, "not now"));
    }
    let (_sandbox_id, _watched) = world.supervised(&bridge, Behaviour::Apply).await;
    world.desk.wait::<SessionResult>("SessionResult", 3).await;
    let told = world.desk.told("SessionResult");
    assert_eq!(told.iter().map(|told| &told.command_id).collect::<BTreeSet<_>>().len(), 4);
    for told in told {
        assert_eq!(SessionResult::decode(told.request).unwrap().number, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_leaves_is_reported_at_once() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, stopping) = world.supervised(&bridge, Behaviour::Apply).await;
    let session = world.desk.session(sandbox_id).unwrap();
    stopping.supervisor.stop().await;
    let end: EndSession = world.desk.wait("EndSession", 0).await;
    assert_eq!((end.session_id, end.reason.as_str(), end.number), (session, "closed", 1));

    let (_, dying) = world.supervised(&bridge, Behaviour::Apply).await;
    dying.supervisor.kill();
    world.desk.wait::<EndSession>("EndSession", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_comes_after_the_last_result() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    world.desk.answer_next("SessionResult", refusal(Code::Unavailable, "not now"));
    let (_, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    world.desk.wait::<SessionResult>("SessionResult", 0).await;
    watched.supervisor.kill();
    world.desk.wait::<EndSession>("EndSession", 0).await;
    let (results, ends) = (world.desk.told("SessionResult"), world.desk.told("EndSession"));
    assert!(results.len() == 2 && results[1].at < ends[0].at);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superseded_session_is_closed_and_reports_no_end() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    watched.applied(1).await;
    world.desk.result(|result| result.number == 1).await;
    world.desk.supersede(sandbox_id);
    world.shelf.put(sandbox_id, &Content::version(2)).await;
    watched.ended("another session is the sandbox's now").await;
    assert!(world.desk.told("EndSession").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_found_its_stream_gone_is_ended_at_once() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let sandbox_id = Uuid::new_v4();
    // No content: the session is registered, and waits for its first update without being accepted for a second.
    let watched = world.supervisor(&[&bridge], sandbox_id, |_| ());
    eventually(LONG, "it is registered", || async { world.desk.session(sandbox_id) }).await;
    watched.supervisor.kill();
    world.desk.wait::<EndSession>("EndSession", 0).await;
    assert_eq!(world.desk.session(sandbox_id), None);
}
