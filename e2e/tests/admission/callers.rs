//! A request id is its caller's own: nobody else is answered, blocked or told of by it.

use roadstead_e2e::{
    api::{Client, client, reason, request_id, scope},
    policy,
};
use roadstead_proto::api::v1::{CreateSandboxRequest, UpdateConfigRequest};
use roadstead_testkit::{generate, stack::Plan};
use tonic::{Code, Request};

use crate::world::{Answer, User, World, answer, create};

const ONE: User = User::named("ann");
const OTHER: User = User::named("bob");
/// Of the same subject. Rights go by subject, so an edge takes no more than one of these; another edge may.
const NAMESAKES: [User; 2] = [User { issuer: "https://two.example", ..ONE }, User { provider: "mtls", ..ONE }];

/// A creation without a name of its own, so that each caller's is another sandbox.
fn nameless(world: &World, request_id: &str) -> CreateSandboxRequest {
    world.creation("", request_id)
}

/// The first call of `user` with that id is carried out, its duplicate replayed, and its misuse refused, none of which
/// shows anything of those who have used the id before.
async fn has_it_for_itself(world: &World, edge: usize, user: User, request_id: &str, before: &[String]) -> String {
    let (id, replayed) = create(world.api(edge), user.sends(nameless(world, request_id))).await.unwrap();
    assert!(!replayed && !before.contains(&id), "{user:?} was answered with the sandbox of another");
    assert_eq!(world.sandboxes().await.len(), before.len() + 1);
    let again = create(world.api(edge), user.sends(nameless(world, request_id))).await.unwrap();
    assert_eq!(again, (id.clone(), true), "{user:?}");

    let labels = [("a".to_owned(), "b".to_owned())].into();
    let changed = CreateSandboxRequest { labels, ..nameless(world, request_id) };
    let mismatch = create(world.api(edge), user.sends(changed)).await.unwrap_err();
    assert_eq!(reason(&mismatch), "REQUEST_ID_PAYLOAD_MISMATCH");
    let told = format!("{} {:?}", mismatch.message(), String::from_utf8_lossy(mismatch.details()));
    for hidden in before.iter().map(String::as_str).chain([id.as_str(), ".example", ONE.subject, OTHER.subject]) {
        assert!(!told.contains(hidden), "it tells of {hidden}: {told}");
    }
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_id_and_payload_of_another_caller_is_another_call() {
    let mut world = World::start(Plan::pairs(), &[ONE, OTHER]).await;
    let (same, reserved) = (request_id(), request_id());
    let mut ids = Vec::new();
    for (edge, user) in [(1, ONE), (2, OTHER)] {
        ids.push(has_it_for_itself(&world, edge, user, &same, &ids).await);
    }

    // Whoever comes first with a call that is refused has blocked neither itself nor anybody else.
    let nowhere = CreateSandboxRequest { workspace_scope: scope("nowhere"), ..nameless(&world, &reserved) };
    assert_eq!(create(world.api(1), OTHER.sends(nowhere)).await.unwrap_err().code(), Code::NotFound);
    let nonsense = CreateSandboxRequest { name: "-".to_owned(), ..nameless(&world, &reserved) };
    assert_eq!(create(world.api(1), OTHER.sends(nonsense)).await.unwrap_err().code(), Code::InvalidArgument);
    for (edge, user) in [(2, ONE), (1, OTHER)] {
        ids.push(has_it_for_itself(&world, edge, user, &reserved, &ids).await);
    }

    for user in NAMESAKES {
        world.knows(2, &[user]).await;
        ids.push(has_it_for_itself(&world, 2, user, &same, &ids).await);
    }
    world.knows(1, &[ONE]).await;
    let own = create(world.api(1), ONE.sends(nameless(&world, &same))).await.unwrap();
    assert_eq!(own, (ids[0].clone(), true));
}

/// A sandbox may change its own policy, without a request id.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_neither_sees_nor_blocks_the_request_id_of_a_user() {
    let world = World::start(Plan::pairs(), &[ONE]).await;
    let name = generate::unique("own");
    create(world.api(1), world.creation(&name, &request_id())).await.unwrap();
    let token = std::fs::read_to_string(world.stack.token(&world.workspace, &name).await).unwrap();
    let update = UpdateConfigRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: name.clone(),
        policy: Some(policy::to_host("own.example.com", None)),
        request_id: request_id(),
        ..Default::default()
    };
    let as_sandbox = |request: &UpdateConfigRequest| {
        let mut request = Request::new(request.clone());
        request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse().unwrap());
        request
    };
    let send = async |mut api: Client, request| -> Answer<u32> {
        answer(api.update_config(request).await).map(|(response, replayed)| (response.version, replayed))
    };
    let bridge = || client(&world.stack.bridge(1));

    let before = send(bridge(), as_sandbox(&update)).await.unwrap_err();
    assert_eq!(before.code(), Code::PermissionDenied, "{before:?}");
    let (version, replayed) = send(world.api(1), ONE.sends(update.clone())).await.unwrap();
    assert!(!replayed, "the sandbox has reserved the id");
    let after = send(bridge(), as_sandbox(&update)).await.unwrap_err();
    assert_eq!((after.code(), after.message()), (before.code(), before.message()), "it is told of the user's call");
    assert_eq!(send(world.api(2), ONE.sends(update.clone())).await.unwrap(), (version, true));
    let revisions = world.count("policy_revision where policy <> ''").await;
    let claims = world.count("claim where method = 'UpdateConfig'").await;
    assert_eq!((revisions, claims), (1, 1));
}
