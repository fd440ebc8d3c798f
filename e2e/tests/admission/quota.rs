//! How many request ids one caller may hold: exactly that many, however they come, and it is that caller's concern only.

use std::sync::Arc;

use roadstead_e2e::api::{reason, request_id};
use roadstead_proto::api::v1::CreateSandboxRequest;
use roadstead_testkit::{
    soak,
    stack::{Plan, Role},
};
use tokio::sync::Barrier;
use tonic::Code;

use crate::world::{Answer, User, World, create, mutation, together};

const CALLER: User = User::named("ann");
const OTHER: User = User::named("bob");
/// Places that are left when many come at once.
const LEFT: usize = 5;
const AT_ONCE: usize = 100;
const AT_A_TIME: usize = 16;

/// The quota: the default in full length, else one that is sooner filled.
fn quota() -> usize {
    (50 * soak::factor() as usize).min(1000)
}

fn creations(world: &World, prefix: &str, count: usize) -> Vec<CreateSandboxRequest> {
    (0..count).map(|number| world.creation(&format!("m-{prefix}-{number}"), &request_id())).collect()
}

/// Sends all in the same moment through both edges.
async fn at_once(world: &World, user: User, requests: &[CreateSandboxRequest]) -> Vec<Answer<String>> {
    let (clients, barrier) = (world.clients(AT_A_TIME).await, Arc::new(Barrier::new(requests.len())));
    let calls = requests.iter().enumerate().map(|(number, request)| {
        let (api, request, barrier) = (clients[number % AT_A_TIME].clone(), request.clone(), Arc::clone(&barrier));
        async move {
            barrier.wait().await;
            create(api, user.sends(request)).await
        }
    });
    together(calls).await
}

/// How many were admitted. The others were refused for want of room, and nothing else.
fn admitted(answers: &[Answer<String>]) -> usize {
    for status in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    }
    answers.iter().filter(|answer| matches!(answer, Ok((_, false)))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_admits_exactly_what_fits_and_is_felt_by_nobody_else() {
    let plan = Plan::pairs().flag(Role::Admission, format!("--request-id-quota={}", quota()));
    let world = World::start(plan, &[CALLER, OTHER]).await;
    let full = creations(&world, "full", quota() - LEFT);
    let mut mutations = Vec::new();
    for some in full.chunks(AT_A_TIME) {
        let answers = at_once(&world, CALLER, some).await;
        assert_eq!(admitted(&answers), some.len());
        mutations.extend(some.iter().zip(&answers).map(|(request, told)| mutation(&request.name, true, told)));
    }
    let (unresolved, known) = full.split_at(full.len() / 2);
    world.unresolve(&unresolved.iter().map(|creation| creation.request_id.clone()).collect::<Vec<_>>()).await;

    // Many come at once for the places that are left.
    let burst = creations(&world, "burst", AT_ONCE);
    let answers = at_once(&world, CALLER, &burst).await;
    assert_eq!(admitted(&answers), LEFT);
    mutations.extend(burst.iter().zip(&answers).map(|(request, told)| mutation(&request.name, true, told)));
    world.assert_sound(&mutations).await;

    // What it holds is answered as before, and it goes on without ids; so does everybody else with them.
    let old = together(known.iter().map(|request| create(world.api(1), CALLER.sends(request.clone())))).await;
    assert!(old.iter().all(|told| told.as_ref().is_ok_and(|(_, replayed)| *replayed)), "{old:?}");
    create(world.api(1), CALLER.sends(world.creation("without", ""))).await.unwrap();
    let others: Vec<_> = (0..LEFT)
        .map(|number| CreateSandboxRequest { name: format!("other-{number}"), ..full[number].clone() })
        .collect();
    let (uncertain, others) =
        tokio::join!(create(world.api(2), CALLER.sends(unresolved[0].clone())), at_once(&world, OTHER, &others),);
    assert_eq!(reason(&uncertain.unwrap_err()), "REQUEST_OUTCOME_UNCERTAIN");
    assert_eq!(admitted(&others), LEFT);

    // A day later the known ones make room, for exactly as many, and the unresolved ones do not.
    world.a_day_later().await;
    let room = known.len() + LEFT;
    let later = creations(&world, "later", room + AT_A_TIME);
    let answers = at_once(&world, CALLER, &later).await;
    assert_eq!(admitted(&answers), room);
    mutations.extend(later.iter().zip(&answers).map(|(request, told)| mutation(&request.name, true, told)));
    world.assert_sound(&mutations).await;
    let claims = world.sql("select count(*) from roadstead.claim where completed_at is null").await;
    assert_eq!(claims[0][0], unresolved.len().to_string());
}
