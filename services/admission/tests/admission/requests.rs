//! A sound request of each served mutation.

use prost::Message;
use prost_reflect::{DynamicMessage, Value};
use roadstead_admission::Served;
use roadstead_admission::ledger::method_row::ROWS;
use roadstead_admission::operation::Name;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::sandbox::{SandboxPolicy, SettingValue, setting_value};
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;

use crate::world::{create_sandbox, fresh_id, scope};

/// A request of a method.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) message: DynamicMessage,
}

impl Request {
    pub(crate) fn new(method: Method, typed: &impl Message) -> Self {
        let message = DynamicMessage::decode(method.input_descriptor(), typed.encode_to_vec().as_slice()).unwrap();
        Self { method, message }
    }

    /// The same with a request id of its own.
    pub(crate) fn with_id(mut self) -> Self {
        self.message.set_field_by_name("request_id", Value::String(fresh_id()));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.message.encode_to_vec()
    }
}

/// What [`each`] finds in the workspace, to be made before; then comes [`MEANWHILE`].
pub(crate) fn before(workspace: &str) -> Vec<Request> {
    let mut before = vec![Request::new(Method::CreateWorkspace, &create_workspace(workspace))];
    before.push(Request::new(Method::CreateWorkspace, &create_workspace(&doomed(workspace))));
    before.push(Request::new(Method::AddWorkspaceMember, &member(workspace, "doomed")));
    for name in ["attached", "held", "spare", "doomed"] {
        before.push(Request::new(Method::CreateProvider, &create_provider(workspace, name)));
    }
    let held = v1::SandboxSpec { providers: vec!["attached".into(), "held".into()], ..Default::default() };
    before.push(Request::new(
        Method::CreateSandbox,
        &v1::CreateSandboxRequest { spec: Some(held), ..create_sandbox(workspace, "box", "") },
    ));
    before.push(Request::new(Method::CreateSandboxTemplate, &template(workspace, "doomed")));
    before.push(Request::new(Method::ExposeService, &expose(workspace, "doomed")));
    for name in ["configured", "runs", "stops", "doomed"] {
        before.push(Request::new(Method::CreateSandbox, &create_sandbox(workspace, name, "")));
    }
    before
}

/// What has happened to the sandboxes meanwhile: one runs and one is stopped. No supervisor needs to be played for it.
pub(crate) const MEANWHILE: &str = "update roadstead.sandbox set phase = 2 where name = 'runs';
    update roadstead.sandbox set phase = 7 where name = 'stops'";

/// One request of each mutation, without ids. Each is about an object of its own, so all succeed in any order, and can
/// be shown again afterwards.
pub(crate) fn each(workspace: &str) -> Vec<Request> {
    let scope = || scope(workspace);
    let spec = v1::SandboxSpec {
        log_level: "debug".into(),
        environment: [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())].into(),
        providers: vec!["attached".into(), "held".into()],
        command: vec!["sleep".into(), "inf".into()],
        ..Default::default()
    };
    let new = v1::CreateSandboxRequest { spec: Some(spec), ..create_sandbox(workspace, "new", "") };
    let updated = v1::UpdateProviderRequest {
        provider: Some(Provider { r#type: String::new(), ..provider("held", "another value") }),
        workspace_scope: scope(),
        ..Default::default()
    };
    let attach = v1::AttachSandboxProviderRequest {
        sandbox: "box".into(),
        provider: "spare".into(),
        workspace_scope: scope(),
        ..Default::default()
    };
    let detach = v1::DetachSandboxProviderRequest {
        sandbox: "box".into(),
        provider: "attached".into(),
        workspace_scope: scope(),
        ..Default::default()
    };
    let delete_provider =
        v1::DeleteProviderRequest { name: "doomed".into(), workspace_scope: scope(), ..Default::default() };
    let delete_sandbox =
        v1::DeleteSandboxRequest { name: "doomed".into(), workspace_scope: scope(), ..Default::default() };
    let remove = v1::RemoveWorkspaceMemberRequest {
        workspace_scope: scope(),
        principal_subject: "doomed".into(),
        ..Default::default()
    };
    let delete_workspace = v1::DeleteWorkspaceRequest { name: doomed(workspace), ..Default::default() };
    let start = v1::StartSandboxRequest { name: "stops".into(), workspace_scope: scope(), ..Default::default() };
    let delete_template =
        v1::DeleteSandboxTemplateRequest { name: "doomed".into(), workspace_scope: scope(), ..Default::default() };
    let delete_service = v1::DeleteServiceRequest {
        sandbox: "box".into(),
        name: "doomed".into(),
        workspace_scope: scope(),
        ..Default::default()
    };
    let each = vec![
        Request::new(Method::CreateWorkspace, &create_workspace(&format!("{workspace}-new"))),
        Request::new(Method::DeleteWorkspace, &delete_workspace),
        Request::new(Method::AddWorkspaceMember, &member(workspace, "new")),
        Request::new(Method::RemoveWorkspaceMember, &remove),
        Request::new(Method::CreateSandbox, &new),
        Request::new(Method::DeleteSandbox, &delete_sandbox),
        Request::new(Method::StopSandbox, &stop(workspace, "runs")),
        Request::new(Method::StartSandbox, &start),
        Request::new(Method::AttachSandboxProvider, &attach),
        Request::new(Method::DetachSandboxProvider, &detach),
        Request::new(Method::CreateProvider, &create_provider(workspace, "new")),
        Request::new(Method::UpdateProvider, &updated),
        Request::new(Method::DeleteProvider, &delete_provider),
        Request::new(Method::UpdateConfig, &policy(workspace, "configured", 1)),
        Request::new(Method::CreateSandboxTemplate, &template(workspace, "new")),
        Request::new(Method::DeleteSandboxTemplate, &delete_template),
        Request::new(Method::ExposeService, &expose(workspace, "new")),
        Request::new(Method::DeleteService, &delete_service),
    ];
    assert_eq!(each.len(), ROWS.len(), "each served mutation has its request here");
    assert!(each.iter().all(|request| Served::default().row(Name::Method(request.method)).is_some()));
    each
}

fn doomed(workspace: &str) -> String {
    format!("{workspace}-doomed")
}

fn create_workspace(name: &str) -> v1::CreateWorkspaceRequest {
    let labels = [("one".to_owned(), "1".to_owned()), ("two".to_owned(), "2".to_owned())].into();
    v1::CreateWorkspaceRequest { name: name.into(), labels, ..Default::default() }
}

fn member(workspace: &str, subject: &str) -> v1::AddWorkspaceMemberRequest {
    v1::AddWorkspaceMemberRequest {
        workspace_scope: scope(workspace),
        principal_subject: subject.into(),
        role: v1::WorkspaceRole::User.into(),
        ..Default::default()
    }
}

fn template(workspace: &str, name: &str) -> v1::CreateSandboxTemplateRequest {
    let workload = v1::SandboxWorkloadConfig {
        image: "image".into(),
        environment: [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())].into(),
        ..Default::default()
    };
    let template = v1::SandboxWorkloadTemplate {
        metadata: Some(ObjectMeta { name: name.into(), ..Default::default() }),
        spec: Some(v1::SandboxWorkloadTemplateSpec { workload: Some(workload), ..Default::default() }),
    };
    v1::CreateSandboxTemplateRequest {
        template: Some(template),
        workspace_scope: scope(workspace),
        ..Default::default()
    }
}

fn expose(workspace: &str, service: &str) -> v1::ExposeServiceRequest {
    v1::ExposeServiceRequest {
        sandbox: "box".into(),
        name: service.into(),
        target_port: 8080,
        workspace_scope: scope(workspace),
        ..Default::default()
    }
}

fn stop(workspace: &str, name: &str) -> v1::StopSandboxRequest {
    v1::StopSandboxRequest { name: name.into(), workspace_scope: scope(workspace), ..Default::default() }
}

/// A provider that may be attached beside any other: no two set the same variable.
pub(crate) fn provider(name: &str, value: &str) -> Provider {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let own = |key: &str, value: &str| (format!("{key}_{}", name.to_uppercase()), value.to_owned());
    Provider {
        metadata: Some(ObjectMeta {
            name: name.into(),
            labels: [pair("one", "1"), pair("two", "2")].into(),
            ..Default::default()
        }),
        r#type: "generic".into(),
        credentials: [own("TOKEN", value), own("SECRET", value)].into(),
        config: [own("ONE", "1"), own("TWO", "2")].into(),
        ..Default::default()
    }
}

pub(crate) fn create_provider(workspace: &str, name: &str) -> v1::CreateProviderRequest {
    v1::CreateProviderRequest {
        provider: Some(provider(name, "value")),
        workspace_scope: scope(workspace),
        ..Default::default()
    }
}

fn policy(workspace: &str, sandbox: &str, version: u32) -> v1::UpdateConfigRequest {
    v1::UpdateConfigRequest {
        sandbox: sandbox.into(),
        workspace_scope: scope(workspace),
        policy: Some(SandboxPolicy { version, ..Default::default() }),
        annotations: [("one".to_owned(), "1".to_owned()), ("two".to_owned(), "2".to_owned())].into(),
        ..Default::default()
    }
}

/// A change of one setting of a sandbox.
pub(crate) fn setting(workspace: &str, sandbox: &str, on: bool) -> v1::UpdateConfigRequest {
    v1::UpdateConfigRequest {
        sandbox: sandbox.into(),
        workspace_scope: scope(workspace),
        setting_key: "ocsf_json_enabled".into(),
        setting_value: Some(SettingValue { value: Some(setting_value::Value::BoolValue(on)) }),
        ..Default::default()
    }
}
