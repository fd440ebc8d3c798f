//! Duplicates that overlap in time: one effect, and nobody is told anything else.

use std::{sync::Arc, time::Duration};

use roadstead_e2e::{
    api::{Client, reason, request_id},
    watched::Watched,
};
use roadstead_proto::api::v1::CreateSandboxRequest;
use roadstead_testkit::{soak, stack::Plan};
use tokio::sync::Barrier;

use crate::world::{Answer, SOON, World, create, together};

const CLIENTS: usize = 64;
const ROUNDS: u32 = 4;
/// How long all of them are held up in the rounds in which nobody can be first and done.
const HELD: Duration = Duration::from_secs(3);

/// All send the same creation in the same moment.
async fn burst(clients: &[Client], request: &CreateSandboxRequest) -> Vec<Answer<String>> {
    let barrier = Arc::new(Barrier::new(clients.len()));
    let calls = clients.iter().map(|api| {
        let (api, request, barrier) = (api.clone(), request.clone(), Arc::clone(&barrier));
        async move {
            barrier.wait().await;
            create(api, request).await
        }
    });
    together(calls).await
}

/// One of them has created it, and the others were told so or that it is not known.
async fn assert_one_effect(world: &World, request: &CreateSandboxRequest, answers: &[Answer<String>]) {
    let sandboxes = world.sandboxes().await;
    let id = &sandboxes[&request.name];
    for answer in answers {
        match answer {
            Ok((told, _)) => assert_eq!(told, id),
            Err(status) => assert_eq!(reason(status), "REQUEST_OUTCOME_UNCERTAIN", "{status:?}"),
        }
    }
    let first = answers.iter().filter(|answer| matches!(answer, Ok((_, false)))).count();
    assert_eq!(first, 1, "so many were told that they have created it: {answers:?}");
    assert_eq!(world.marks(id).await, 1, "it was changed by more than its creation");
    let again = create(world.api(2), request.clone()).await.unwrap();
    assert_eq!(again, (id.clone(), true), "its request id does not replay the success");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_overlapping_duplicates_one_has_an_effect_and_the_others_replay_it() {
    let world = World::start(Plan::pairs(), &[]).await;
    let clients = world.clients(CLIENTS).await;
    for round in 0..soak::count(ROUNDS) {
        let request = world.creation(&format!("m{round}"), &request_id());
        let answers = burst(&clients, &request).await;
        assert_one_effect(&world, &request, &answers).await;
    }

    // While the workspace is locked nobody gets on, so all of them are under way together.
    let mut rival = world.stack.session().await;
    for round in 0..soak::factor() {
        let request = world.creation(&format!("m-held-{round}"), &request_id());
        let workspace = &world.workspace;
        rival.hold(&format!("select 1 from roadstead.workspace where name = '{workspace}' for update")).await;
        let sent = tokio::spawn({
            let (clients, request) = (clients.clone(), request.clone());
            async move { burst(&clients, &request).await }
        });
        tokio::time::sleep(HELD).await;
        assert!(!sent.is_finished(), "the lock has held nobody up");
        rival.release().await;
        let answers = sent.await.unwrap();
        assert_one_effect(&world, &request, &answers).await;
        let watch = Watched::open(&[world.stack.edge(1)], workspace, &request.name);
        let seen = watch.until(SOON, "the sandbox", |seen| seen.shown().next().is_some()).await;
        assert_eq!(seen.shown().map(|(version, _)| version).collect::<Vec<_>>(), [1]);
    }
}
