//! An effect that left Postgres, and whose admission died before its outcome was written: nobody knows, and nobody ever
//! carries it out again.

use roadstead_e2e::api::{reason, request_id};
use roadstead_proto::api::v1::CreateSandboxRequest;
use roadstead_testkit::{
    eventually, soak,
    stack::{Plan, Role},
};

use crate::world::{SOON, World, create, together};

const CREATIONS: u32 = 8;

/// Sends all of them through both edges at the same time: of each it is told that nothing is known.
async fn are_uncertain(world: &World, creations: &[CreateSandboxRequest]) {
    let calls = creations.iter().flat_map(|creation| [1, 2].map(|edge| create(world.api(edge), creation.clone())));
    for told in together(calls).await {
        let status = told.unwrap_err();
        assert_eq!(reason(&status), "REQUEST_OUTCOME_UNCERTAIN", "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_and_has_no_outcome_is_uncertain_for_ever_and_counted() {
    let mut world = World::start(Plan::pairs(), &[]).await;
    let count = soak::count(CREATIONS);
    let creations: Vec<_> = (0..count).map(|number| world.creation(&format!("m{number}"), &request_id())).collect();
    for told in together(creations.iter().map(|creation| create(world.api(1), creation.clone()))).await {
        told.unwrap();
    }
    let ids: Vec<_> = creations.iter().map(|creation| creation.request_id.clone()).collect();
    world.stack.node_mut(Role::Admission, 1).kill().await;
    world.unresolve(&ids).await;
    // Of every second one the effect did not come to be.
    world.sql("delete from roadstead.sandbox where name ~ '^m[0-9]*[02468]$'").await;
    let effects = world.sandboxes().await;

    world.stack.node_mut(Role::Admission, 1).resume();
    are_uncertain(&world, &creations).await;
    world.stack.node_mut(Role::Admission, 1).ready().await;

    // Nor does time make it known. What is known is forgotten by then, and swept.
    let known = world.creation("m-known", &request_id());
    create(world.api(1), known.clone()).await.unwrap();
    world.a_day_later().await;
    let forgotten = async || world.count(&format!("claim where request_id = '{}'", known.request_id)).await == 0;
    tokio::join!(
        are_uncertain(&world, &creations),
        eventually(SOON, "the success of yesterday is swept", forgotten),
        world.until_unresolved(creations.len()),
    );
    world.sql("delete from roadstead.sandbox where name = 'm-known'").await;
    assert_eq!(world.sandboxes().await, effects, "one was carried out again");
}
