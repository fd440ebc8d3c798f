//! Secrets and hostile text go in everywhere, in calls that succeed and calls that fail in every way; then everything
//! that anybody could read is searched.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod canary;
mod collector;
mod every_method;
mod places;
mod story;

use std::time::Duration;

use roadstead_testkit::stack::Plan;
use roadstead_testkit::{Stack, eventually};

use canary::Canaries;
use collector::Collector;
use every_method::Credential;
use places::Places;
use story::Story;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_and_no_hostile_text_is_found_where_it_does_not_belong() {
    let canaries = Canaries::default();
    let tokens = story::tokens(&canaries);
    let (collector, address) = Collector::start();
    let mut stack = Stack::start(story::plan(&tokens, &address)).await;
    let mut places = Places::default();

    let story = Story::tell(&stack, &tokens, &canaries, &mut places).await;
    let shown = story.supervisors_saw(&canaries);
    assert!(shown > 0, "its own supervisor gets the secrets, or they were never in the system");
    for credential in [Credential::Admin, Credential::Unknown, Credential::None, Credential::Sandbox] {
        every_method::call_all(&stack, &story, &canaries, credential, &mut places).await;
    }
    story.with_the_database_away(&stack, &canaries, &mut places).await;
    story.with_the_broker_away(&stack, &canaries, &mut places).await;
    places.refusals_are_short();
    let traces =
        eventually(SOON, "traces are exported", async || Some(collector.exported()).filter(|it| it.len() > 10_000));
    places.heard("exported traces", &traces.await);
    places.collect(&mut stack).await;
    assert!(places.bytes() > 100_000, "there is something to search");
    let found = places.search(&canaries);
    assert!(found.is_empty(), "{found:#?}");
}

/// A search that finds nothing must be able to find something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_planted_in_any_of_those_places_is_found() {
    let canaries = Canaries::default();
    let mut stack = Stack::start(Plan::single()).await;
    let planted = places::plant(&mut stack, &canaries).await;
    let mut places = Places::default();
    places.heard("a status", canaries.secret("told").as_bytes());
    places.collect(&mut stack).await;
    let found = places.search(&canaries).join("\n");
    for place in planted.into_iter().chain(["a status".to_owned()]) {
        assert!(found.contains(&place), "nothing was found in {place}: {found}");
    }
}
