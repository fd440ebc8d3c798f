//! What a session sends.

use std::time::{Duration, Instant};

use roadstead_supervisor::{Answer, Behaviour};
use uuid::Uuid;

use crate::shelf::Content;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_both_halves_and_its_result_is_reported() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;

    let first = watched.frame(|_| true).await;
    assert!(first.bootstrap);
    assert_eq!(first.config.unwrap().policy_version, 1);
    assert_eq!(first.environment.unwrap().names, ["KEY"]);
    let result = world.desk.result(|_| true).await;
    assert_eq!((result.number, result.loaded_version), (1, 1));
    assert_eq!(Some(result.session_id), world.desk.session(sandbox_id));
    let registration = &world.desk.told("RegisterSession")[0];
    assert!(registration.token && registration.sandbox_id == sandbox_id.to_string());
    assert!(!world.desk.told("SessionResult")[0].token, "the session outlives its token");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_arrives_at_once_and_only_the_half_that_changed() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    watched.applied(1).await;
    world.desk.result(|result| result.number == 1).await;

    world.shelf.put(sandbox_id, &Content::version(2)).await;
    let frame = watched.frame(|frame| !frame.bootstrap).await;
    assert_eq!(frame.config.unwrap().policy_version, 2);
    assert_eq!(frame.environment, None);
    world.desk.result(|result| result.number == 2 && result.loaded_version == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_installed_is_not_sent_again() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    watched.applied(1).await;
    world.desk.result(|result| result.number == 1).await;
    world.shelf.put(sandbox_id, &Content::version(1)).await;
    world.shelf.put(sandbox_id, &Content::version(2)).await;
    watched.applied(2).await;
    assert_eq!(watched.versions(), [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_supervisor_still_gets_what_is_new_within_a_second() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Silent).await;
    watched.frame(|frame| frame.bootstrap).await;
    for version in 2..=40 {
        world.shelf.put(sandbox_id, &Content::version(version)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let committed = Instant::now();
    let last = watched.frame(|frame| frame.config.as_ref().is_some_and(|config| config.policy_version == 40)).await;
    assert!(last.at.saturating_duration_since(committed) < Duration::from_secs(1));
    let versions = watched.versions();
    assert!(versions.is_sorted() && versions.len() < 12, "{versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_was_slow_gets_no_backlog() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    watched.applied(1).await;
    watched.supervisor.behave(Behaviour::StopReading);
    // The windows of the client hold two megabytes; then the transport has to stop.
    for version in 2..=16 {
        let content = Content { padding: 900_000, ..Content::version(version) };
        world.shelf.put(sandbox_id, &content).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    watched.supervisor.behave(Behaviour::Apply);
    watched.applied(16).await;
    let versions = watched.versions();
    assert!(versions.is_sorted() && versions.len() <= 6, "{versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_is_recorded_and_not_repeated_and_what_is_new_comes_at_once() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let refuse = Behaviour::Answer(Answer::refusal("no\u{7} thanks"));
    let (sandbox_id, watched) = world.supervised(&bridge, refuse).await;
    let refused = world.desk.result(|result| result.config.is_some()).await;
    let half = refused.config.unwrap();
    assert_eq!(half.error, "REJECTED: no  thanks");
    assert!(half.installed.is_empty() && !half.refused.is_empty());
    assert_eq!((refused.failed_version, refused.loaded_version), (1, 0));

    watched.supervisor.behave(Behaviour::Apply);
    world.shelf.put(sandbox_id, &Content::version(2)).await;
    watched.applied(2).await;
    assert_eq!(watched.versions(), [1, 2]);
    let frame = watched.frame(|frame| !frame.bootstrap).await;
    assert!(frame.environment.is_some(), "it was refused in the same frame, and may be well");
    let installed = world.desk.result(|result| result.loaded_version == 2).await;
    assert!(!installed.environment.unwrap().installed.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_does_not_compose_is_refused_and_repaired() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let sandbox_id = Uuid::new_v4();
    world.shelf.put(sandbox_id, &Content { admitted: false, ..Content::version(1) }).await;
    let watched = world.supervisor(&[&bridge], sandbox_id, |_| ());
    let refused = world.desk.result(|result| result.config.is_some()).await;
    assert_eq!(refused.config.unwrap().error, "CONFIGURATION_INVALID: does not compose");
    world.shelf.put(sandbox_id, &Content::version(2)).await;
    watched.applied(2).await;
    world.desk.result(|result| result.loaded_version == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_builder_a_session_waits_and_never_begins_empty() {
    let world = World::without_reads().await;
    let bridge = world.bridge(&[]).await;
    let sandbox_id = Uuid::new_v4();
    let watched = world.supervisor(&[&bridge], sandbox_id, |_| ());
    watched.connected().await;
    world.shelf.put(sandbox_id, &Content::version(1)).await;
    watched.applied(1).await;
    let first = watched.frame(|_| true).await;
    assert!(!first.bootstrap && first.environment.is_some(), "accepted first, then at once a whole update");
}
