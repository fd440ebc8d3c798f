//! A credential goes from its sandboxes when it expires, with no other change.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1::{
    CreateProviderRequest, GetSandboxProviderEnvironmentRequest, GetSandboxProviderEnvironmentResponse,
};
use roadstead_testkit::stack::{Plan, Role};
use tonic::Request;

use crate::world::{CROWD, SOON, Supervised, World};

const EXPIRES: Duration = Duration::from_secs(4);
/// From the expiration to the supervisor.
const BOUND: Duration = Duration::from_secs(1);

async fn provider(world: &World, name: &str, expires: SystemTime) {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: name.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: ["SHORT", "LASTING"].map(|key| (key.to_owned(), request_id())).into(),
        credential_expiration_times: BTreeMap::from([("SHORT".to_owned(), expires.into())]),
        ..Default::default()
    };
    let request = CreateProviderRequest {
        workspace_scope: scope(&world.workspace),
        provider: Some(provider),
        request_id: request_id(),
    };
    world.api().create_provider(request).await.unwrap();
}

async fn polled(world: &World, id: &str, token: &str) -> GetSandboxProviderEnvironmentResponse {
    let message = GetSandboxProviderEnvironmentRequest {
        sandbox_id: id.to_owned(),
        supports_static_credential_bindings: true,
        ..Default::default()
    };
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    client(&world.stack.bridge(1)).get_sandbox_provider_environment(request).await.unwrap().into_inner()
}

fn has(frame: &roadstead_supervisor::Frame, names: &[&str]) -> bool {
    frame.environment.as_ref().is_some_and(|environment| environment.names == names)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_credential_is_gone_within_a_second_though_an_admission_was_killed() {
    let mut world = World::start(Plan::single().replicas(Role::Admission, 2)).await;
    let expires = SystemTime::now() + EXPIRES;
    provider(&world, "expiring", expires).await;
    let id = world.sandbox("held", &["expiring"]).await;
    world.set_policy("held", to_host("expiring.example.com", Some("expiring"))).await;
    let token = world.token("held").await;
    let held: Supervised = world.supervise("held").await;
    let before = held.frame(SOON, "both credentials", |frame| has(frame, &["LASTING", "SHORT"])).await;
    let environment = polled(&world, &id, &token).await;
    assert!(environment.environment.contains_key("SHORT"), "{:?}", environment.environment.keys());
    world.stack.node_mut(Role::Admission, 1).kill().await;

    let within = expires.duration_since(SystemTime::now()).unwrap_or_default() + BOUND + CROWD;
    let after = held.frame(within, "the lasting credential alone", |frame| has(frame, &["LASTING"])).await;
    assert!(SystemTime::now() >= expires, "not before its time");
    let revision = |frame: &roadstead_supervisor::Frame| {
        frame.environment.as_ref().map(|environment| environment.provider_env_revision)
    };
    assert_ne!(revision(&before), revision(&after));
    let environment = polled(&world, &id, &token).await;
    let keys: Vec<_> = environment.environment.keys().collect();
    assert_eq!(keys, ["LASTING"]);
    assert_eq!(Some(environment.provider_env_revision), revision(&after));
}
