//! A workspace with everything in it: what was made, changed, refused and taken away, with secrets all along.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use prost::Message;
use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::policy;
use roadstead_e2e::raw::{Raw, bearer};
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::sandbox::{SettingValue, setting_value};
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_supervisor::{Settings, Supervisor, TokenSource};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually};
use serde_json::json;
use tempfile::TempDir;
use tonic::{Code, Streaming};

use crate::canary::{Allowed, Canaries};
use crate::places::Places;

const SOON: Duration = Duration::from_secs(30);
/// How long a client waits while a server is away. The calls themselves go on.
const AWAY: Duration = Duration::from_millis(1500);

/// A file of users' tokens, and the token of the one in it.
pub(crate) struct Tokens {
    folder: TempDir,
    admin: String,
}

pub(crate) fn tokens(canaries: &Canaries) -> Tokens {
    let (folder, admin) = (tempfile::tempdir().unwrap(), canaries.secret("admin"));
    let file = folder.path().join("tokens.json");
    let tokens = json!({"tokens": [{"token": admin, "subject": "admin", "roles": ["openshell-admin"]}]});
    fs::write(&file, tokens.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    Tokens { folder, admin }
}

/// One of each role, all of them as talkative as they can be.
pub(crate) fn plan(tokens: &Tokens, collector: &str) -> Plan {
    let plan = Plan::single()
        .flag(Role::Edge, format!("--tokens={}", tokens.folder.path().join("tokens.json").display()))
        .flag(Role::Edge, "--allow-unauthenticated-users=never")
        .flag(Role::Edge, "--bridge-address=https://supervisors.example:17671");
    let talkative =
        |plan: Plan, role| plan.flag(role, "--log-level=trace").flag(role, format!("--otlp-endpoint={collector}"));
    Role::ALL.into_iter().fold(plan, talkative)
}

pub(crate) struct Story {
    pub(crate) admin_token: String,
    pub(crate) sandbox_token: String,
    pub(crate) workspace: String,
    pub(crate) sandbox: String,
    pub(crate) sandbox_id: String,
    edge: Raw,
    /// What the supervisor has put in effect.
    effective: TempDir,
    _supervisor: Supervisor,
}

impl Story {
    pub(crate) async fn tell(stack: &Stack, tokens: &Tokens, canaries: &Canaries, places: &mut Places) -> Self {
        let edge = Raw::open(&stack.edge(1)).await;
        let call = async |method, request: Vec<u8>| edge.call(method, &bearer(&tokens.admin), request).await;
        let create = v1::CreateWorkspaceRequest { name: "w".into(), request_id: request_id(), ..Default::default() };
        assert_eq!(call(Method::CreateWorkspace, create.encode_to_vec()).await.code, Code::Ok);
        let create = create_provider("git", canaries, request_id());
        let answer = call(Method::CreateProvider, create.encode_to_vec()).await;
        assert_eq!(answer.code, Code::Ok, "{}", answer.message);
        let create = create_sandbox("box", canaries);
        let answer = call(Method::CreateSandbox, create.encode_to_vec()).await;
        assert_eq!(answer.code, Code::Ok, "{}", answer.message);
        let created = v1::SandboxResponse::decode(answer.first.unwrap()).unwrap().sandbox.unwrap();

        let token = stack.token("w", "box").await;
        let sandbox_token = fs::read_to_string(&token).unwrap().trim().to_owned();
        canaries.add(&sandbox_token);
        let effective = tempfile::tempdir().unwrap();
        let settings = Settings {
            folder: Some(effective.path().to_owned()),
            ..Settings::new(stack.bridge(1), "w", "box", TokenSource::File(token))
        };
        let story = Self {
            admin_token: tokens.admin.clone(),
            sandbox_token,
            workspace: "w".into(),
            sandbox: "box".into(),
            sandbox_id: created.metadata.unwrap().id,
            edge: edge.clone(),
            effective,
            _supervisor: Supervisor::start(settings).unwrap(),
        };
        eventually(SOON, "the supervisor has the secrets", async || story.supervisors_saw(canaries) > 0).await;
        let watch = v1::WatchSandboxRequest {
            sandbox: "box".into(),
            workspace_scope: scope("w"),
            follow_status: true,
            ..Default::default()
        };
        let mut watch = tonic::Request::new(watch);
        watch.metadata_mut().insert("authorization", bearer(&tokens.admin)[0].parse().unwrap());
        let watch = client(&stack.edge(1)).watch_sandbox(watch).await.unwrap().into_inner();
        for (method, request) in mutations(canaries) {
            story.call(method, request, places).await;
        }
        events(watch, places).await;
        story
    }

    /// A call whose outcome is noted, whatever it is.
    async fn call(&self, method: Method, request: Vec<u8>, places: &mut Places) {
        let answer = self.edge.call(method, &bearer(&self.admin_token), request).await;
        match answer.code {
            Code::Ok => places.shown(method.name(), &answer.first.unwrap_or_default()),
            _ => places.refused(method.name(), &answer.message, &answer.details),
        }
    }

    pub(crate) async fn with_the_database_away(&self, stack: &Stack, canaries: &Canaries, places: &mut Places) {
        let links = || stack.nodes().iter().filter_map(|node| node.postgres.as_ref());
        links().for_each(|link| {
            link.reset();
            link.cut();
        });
        self.impatiently(canaries, places).await;
        links().for_each(roadstead_testkit::Proxy::heal);
    }

    pub(crate) async fn with_the_broker_away(&self, stack: &Stack, canaries: &Canaries, places: &mut Places) {
        let links = || stack.nodes().iter().map(|node| &node.nats);
        links().for_each(|link| {
            link.reset();
            link.cut();
        });
        self.impatiently(canaries, places).await;
        links().for_each(roadstead_testkit::Proxy::heal);
        // Whatever came of it, the system goes on.
        // All providers, for those calls may well have deleted any of them after nobody listened any more.
        let request = v1::ListProvidersRequest { workspace_scope: scope("w"), ..Default::default() };
        eventually(SOON, "reads are answered again", async || {
            let authorization = bearer(&self.admin_token);
            self.edge.call(Method::ListProviders, &authorization, request.encode_to_vec()).await.code == Code::Ok
        })
        .await;
    }

    /// Calls all methods of users, and hangs up on those that take long.
    async fn impatiently(&self, canaries: &Canaries, places: &mut Places) {
        let calls = mutations(canaries).into_iter().map(|(method, request)| async move {
            let authorization = bearer(&self.admin_token);
            let call = self.edge.call(method, &authorization, request);
            (method, tokio::time::timeout(AWAY, call).await)
        });
        for (method, answer) in futures_util::future::join_all(calls).await {
            match answer {
                Ok(answer) if answer.code != Code::Ok => {
                    places.refused(method.name(), &answer.message, &answer.details)
                }
                _ => {}
            }
        }
    }

    /// In how many files of the supervisor there is a secret.
    pub(crate) fn supervisors_saw(&self, canaries: &Canaries) -> usize {
        let needles = canaries.needles(Allowed::Hostile);
        let holds =
            |bytes: Vec<u8>| needles.iter().any(|needle| bytes.windows(needle.len()).any(|window| window == needle));
        let files = fs::read_dir(self.effective.path()).unwrap().map(Result::unwrap);
        files.filter(|file| fs::read(file.path()).is_ok_and(holds)).count()
    }
}

/// Everything that the watcher was shown until nothing more came.
async fn events(mut watch: Streaming<v1::SandboxStreamEvent>, places: &mut Places) {
    let mut shown = 0;
    while let Ok(Ok(Some(event))) = tokio::time::timeout(AWAY, watch.message()).await {
        places.shown("an event of the watch", &event.encode_to_vec());
        shown += 1;
    }
    assert!(shown > 0, "the watch has shown nothing");
}

/// Mutations that succeed, and the same ones failing in all the ways there are.
fn mutations(canaries: &Canaries) -> Vec<(Method, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |method: Method, request: Vec<u8>| all.push((method, request));
    // A success, its replay, another credential under its id, a name that is taken, and one that is none.
    let create = create_provider("other", canaries, request_id());
    add(Method::CreateProvider, create.encode_to_vec());
    add(Method::CreateProvider, create.encode_to_vec());
    add(Method::CreateProvider, create_provider("other", canaries, create.request_id).encode_to_vec());
    add(Method::CreateProvider, create_provider("other", canaries, request_id()).encode_to_vec());
    add(Method::CreateProvider, create_provider(&canaries.hostile(), canaries, request_id()).encode_to_vec());
    // A request id that is none, and what is too large.
    add(Method::CreateProvider, create_provider("more", canaries, canaries.hostile()).encode_to_vec());
    let mut large = create_provider("large", canaries, request_id());
    let value = canaries.secret("large").repeat(2000);
    large.provider.as_mut().unwrap().credentials.insert("LARGE".into(), value);
    add(Method::CreateProvider, large.encode_to_vec());
    let mut keys = create_provider("keys", canaries, request_id());
    let bad = keys.provider.as_mut().unwrap();
    bad.credentials.insert(canaries.hostile(), canaries.secret("key"));
    bad.r#type = canaries.hostile();
    add(Method::CreateProvider, keys.encode_to_vec());

    let update = |provider: Provider| v1::UpdateProviderRequest {
        provider: Some(Provider { r#type: String::new(), ..provider }),
        workspace_scope: scope("w"),
        request_id: request_id(),
        ..Default::default()
    };
    add(Method::UpdateProvider, update(provider("git", canaries)).encode_to_vec());
    add(Method::UpdateProvider, update(provider("none", canaries)).encode_to_vec());
    let mut old = provider("git", canaries);
    old.metadata.as_mut().unwrap().resource_version = 77;
    add(Method::UpdateProvider, update(old).encode_to_vec());

    for name in ["second".to_owned(), "box".to_owned(), canaries.hostile()] {
        add(Method::CreateSandbox, create_sandbox(&name, canaries).encode_to_vec());
        let named = |_: ()| (name.clone(), scope("w"), request_id());
        let (sandbox, workspace_scope, id) = named(());
        let attach = v1::AttachSandboxProviderRequest {
            sandbox,
            provider: "other".into(),
            workspace_scope,
            request_id: id,
            ..Default::default()
        };
        add(Method::AttachSandboxProvider, attach.encode_to_vec());
        let (sandbox, workspace_scope, id) = named(());
        let policy = policy::to_host("other.example.com", Some("git"));
        let config = v1::UpdateConfigRequest {
            sandbox,
            workspace_scope,
            request_id: id,
            policy: Some(policy),
            annotations: [("note".to_owned(), canaries.hostile())].into(),
            ..Default::default()
        };
        add(Method::UpdateConfig, config.encode_to_vec());
        let (sandbox, workspace_scope, id) = named(());
        let config = v1::UpdateConfigRequest {
            sandbox,
            workspace_scope,
            request_id: id,
            setting_key: "ocsf_schema_version".into(),
            setting_value: Some(SettingValue { value: Some(setting_value::Value::StringValue(canaries.hostile())) }),
            ..Default::default()
        };
        add(Method::UpdateConfig, config.encode_to_vec());
    }
    for name in ["second".to_owned(), canaries.hostile()] {
        let stop = v1::StopSandboxRequest { name: name.clone(), workspace_scope: scope("w"), request_id: request_id() };
        add(Method::StopSandbox, stop.encode_to_vec());
        let start =
            v1::StartSandboxRequest { name: name.clone(), workspace_scope: scope("w"), request_id: request_id() };
        add(Method::StartSandbox, start.encode_to_vec());
        let delete = v1::DeleteSandboxRequest {
            name: name.clone(),
            workspace_scope: scope("w"),
            request_id: request_id(),
            ..Default::default()
        };
        add(Method::DeleteSandbox, delete.encode_to_vec());
        let member = v1::AddWorkspaceMemberRequest {
            workspace_scope: scope("w"),
            principal_subject: name.clone(),
            role: v1::WorkspaceRole::User.into(),
            request_id: request_id(),
        };
        add(Method::AddWorkspaceMember, member.encode_to_vec());
        let workspace = v1::CreateWorkspaceRequest {
            name,
            labels: [("a".to_owned(), canaries.hostile())].into(),
            request_id: request_id(),
        };
        add(Method::CreateWorkspace, workspace.encode_to_vec());
    }
    let delete = v1::DeleteProviderRequest {
        name: "git".into(),
        workspace_scope: scope("w"),
        request_id: request_id(),
        ..Default::default()
    };
    add(Method::DeleteProvider, delete.encode_to_vec());
    all
}

fn provider(name: &str, canaries: &Canaries) -> Provider {
    // No two providers set the same variable.
    let variable = |of: &str| format!("{of}_{}", name.to_uppercase());
    Provider {
        metadata: Some(ObjectMeta {
            name: name.to_owned(),
            annotations: [("note".to_owned(), canaries.hostile())].into(),
            ..Default::default()
        }),
        r#type: "generic".into(),
        credentials: [(variable("TOKEN"), canaries.secret("token")), (variable("KEY"), canaries.secret("key"))].into(),
        config: [(variable("CONFIG"), canaries.hostile())].into(),
        ..Default::default()
    }
}

fn create_provider(name: &str, canaries: &Canaries, request_id: String) -> v1::CreateProviderRequest {
    v1::CreateProviderRequest { provider: Some(provider(name, canaries)), workspace_scope: scope("w"), request_id }
}

fn create_sandbox(name: &str, canaries: &Canaries) -> v1::CreateSandboxRequest {
    let spec = v1::SandboxSpec {
        providers: vec!["git".into()],
        policy: Some(policy::to_host("api.example.com", Some("git"))),
        environment: [("NOTE".to_owned(), canaries.plain())].into(),
        ..Default::default()
    };
    v1::CreateSandboxRequest {
        workspace_scope: scope("w"),
        name: name.to_owned(),
        spec: Some(spec),
        annotations: [("note".to_owned(), canaries.hostile())].into(),
        request_id: request_id(),
        ..Default::default()
    }
}
