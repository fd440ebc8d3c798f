//! What one caller may have on its way: beyond that it is refused before anything is stored, others are not, and what
//! was taken is carried out whether or not anybody still listens.

use std::time::Instant;

use roadstead_e2e::api::request_id;
use roadstead_testkit::{
    eventually, generate,
    stack::{Plan, Role},
};
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::world::{SOON, User, World, create, mutation, together};

const SHARE: usize = 64;
const CALLER: User = User::named("ann");
const OTHER: User = User::named("bob");

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_at_its_share_is_refused_others_are_not_and_given_up_calls_are_carried_out() {
    let plan = Plan::pairs().flag(Role::Edge, format!("--caller-share={SHARE}"));
    let world = World::start(plan, &[CALLER, OTHER]).await;
    let elsewhere = generate::unique("else");
    world.create_workspace(&elsewhere).await;
    let open = "roadstead_door_calls_open{role=\"edge\",method=\"CreateSandbox\"}";
    let edge = world.stack.node(Role::Edge, 1);

    // None of these gets on.
    let mut rival = world.stack.session().await;
    let locked = &world.workspace;
    rival.hold(&format!("select 1 from roadstead.workspace where name = '{locked}' for update")).await;
    let creations: Vec<_> = (0..SHARE).map(|number| world.creation(&format!("m{number}"), &request_id())).collect();
    let mut calls = JoinSet::new();
    for creation in &creations {
        calls.spawn(create(world.api(1), CALLER.sends(creation.clone())));
    }
    eventually(SOON, "all are under way", async || edge.metric(open).await == SHARE as f64).await;

    // Another caller does, through the same edge.
    let begun = Instant::now();
    let request = roadstead_proto::api::v1::CreateSandboxRequest {
        workspace_scope: roadstead_e2e::api::scope(&elsewhere),
        ..world.creation("prompt", &request_id())
    };
    create(world.api(1), OTHER.sends(request)).await.unwrap();
    assert!(begun.elapsed() < SOON, "another caller waited {:?}", begun.elapsed());
    assert_eq!(calls.len(), SHARE);

    // Nobody listens any more; the share is used up all the same.
    calls.shutdown().await;
    eventually(SOON, "all clients have gone", async || edge.metric(open).await == 0.0).await;
    let one_more = world.creation("m-more", &request_id());
    let refused = create(world.api(1), CALLER.sends(one_more.clone())).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(refused.get_details_retry_info().is_some_and(|info| info.retry_delay.is_some()), "{refused:?}");
    let told = Err(refused);

    rival.release().await;
    eventually(SOON, "all of them are carried out", async || world.sandboxes().await.len() == SHARE).await;
    let stored = format!("claim where request_id = '{}'", one_more.request_id);
    assert_eq!(world.count(&stored).await, 0, "it was refused and stored");
    let mut mutations = vec![mutation("m-more", true, &told)];
    let replays = together(creations.iter().map(|creation| create(world.api(2), CALLER.sends(creation.clone())))).await;
    for (creation, told) in creations.iter().zip(&replays) {
        assert!(told.as_ref().unwrap().1, "{} was not replayed", creation.name);
        mutations.push(mutation(&creation.name, true, told));
    }
    world.assert_sound(&mutations).await;
    // And there is room again.
    assert!(!create(world.api(1), CALLER.sends(one_more)).await.unwrap().1);
}
