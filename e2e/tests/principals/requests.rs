//! A well-formed request of every method, made from the method's own description.

use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value};
use roadstead_proto::api::datamodel::workspace_selector::Selection;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider, WorkspaceSelector};
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{
    ConfigurationAdmissionState, ProviderReadinessObservation, SandboxConfigurationAdmission, SandboxSpec,
    SandboxWorkloadTemplate, SandboxWorkloadTemplateSpec, SupervisorHello, SupervisorMessage, UpdateConfigRequest,
};
use roadstead_proto::method::Method;
use roadstead_testkit::generate;
use uuid::Uuid;

/// What a request speaks of.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) workspace: String,
    /// Name of a sandbox.
    pub(crate) sandbox: String,
    pub(crate) sandbox_id: String,
}

/// A request in which all fields that say who or what is meant say `target`. Objects other than sandboxes have fresh
/// names: creating one succeeds, and there is none to be found.
pub(crate) fn request(method: Method, target: &Target) -> Vec<u8> {
    if method == Method::ConnectSupervisor {
        return hello(&target.sandbox_id, 1);
    }
    let descriptor = method.input_descriptor();
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        if let Some(value) = value(method, &field, target) {
            message.set_field(&field, value);
        }
    }
    message.encode_to_vec()
}

/// A supervisor's proposal of a policy, which, unlike a user's change, has no request id.
pub(crate) fn sync(target: &Target) -> Vec<u8> {
    UpdateConfigRequest {
        workspace_scope: Some(selector(&target.workspace)),
        sandbox: target.sandbox.clone(),
        policy: Some(SandboxPolicy { version: 1, ..Default::default() }),
        ..Default::default()
    }
    .encode_to_vec()
}

/// A supervisor's first message.
pub(crate) fn hello(sandbox_id: &str, connection_epoch: u64) -> Vec<u8> {
    let hello = SupervisorHello {
        sandbox_id: sandbox_id.to_owned(),
        instance_id: Uuid::from_u128(7).to_string(),
        connection_epoch,
        supports_config_push: true,
        ..Default::default()
    };
    SupervisorMessage { payload: Some(Payload::Hello(hello)) }.encode_to_vec()
}

fn value(method: Method, field: &FieldDescriptor, target: &Target) -> Option<Value> {
    let text = |text: &str| Some(Value::String(text.to_owned()));
    match (field.name(), field.kind()) {
        ("workspace_scope", _) => message(field, &selector(&target.workspace)),
        ("request_id", _) => text(&Uuid::new_v4().to_string()),
        ("sandbox", Kind::String) => text(&target.sandbox),
        ("sandbox_id", Kind::String) => text(&target.sandbox_id),
        ("name", Kind::String) => text(&name(method, target)),
        ("provider", Kind::String) => text(&generate::unique("missing")),
        ("provider", Kind::Message(_)) => message(field, &provider()),
        ("template", Kind::Message(_)) => message(field, &template()),
        ("target_port", Kind::Uint32) => Some(Value::U32(8080)),
        ("principal_subject", _) => text(&generate::unique("somebody")),
        ("role", Kind::Enum(_)) => Some(Value::EnumNumber(1)),
        ("spec", Kind::Message(_)) => message(field, &SandboxSpec::default()),
        ("policy", Kind::Message(_)) => message(field, &SandboxPolicy { version: 1, ..Default::default() }),
        ("follow_status", _) => Some(Value::Bool(true)),
        ("instance_id", Kind::String) => text(&Uuid::from_u128(7).to_string()),
        ("admission", Kind::Message(_)) => message(field, &admission()),
        ("observation", Kind::Message(_)) => message(field, &observation()),
        ("supervisor_session_id", _) => text(&Uuid::new_v4().to_string()),
        ("report_sequence", _) => Some(Value::U64(1)),
        ("version", Kind::Uint32) => Some(Value::U32(1)),
        ("status", Kind::Enum(_)) => Some(Value::EnumNumber(2)),
        _ => None,
    }
}

fn name(method: Method, target: &Target) -> String {
    match method {
        Method::GetWorkspace => target.workspace.clone(),
        Method::GetSandbox
        | Method::GetSandboxConfig
        | Method::StopSandbox
        | Method::StartSandbox
        | Method::DeleteSandbox => target.sandbox.clone(),
        _ => generate::unique("fresh"),
    }
}

/// A registration of the instance that [`hello`] names.
fn admission() -> SandboxConfigurationAdmission {
    SandboxConfigurationAdmission {
        instance_id: Uuid::from_u128(7).to_string(),
        state: ConfigurationAdmissionState::Pending.into(),
        ..Default::default()
    }
}

/// Of a session that there is not.
fn observation() -> ProviderReadinessObservation {
    let id = Uuid::new_v4().to_string();
    ProviderReadinessObservation {
        session_id: id.clone(),
        sequence: 1,
        attachment_epoch: id.clone(),
        process_instance_id: id,
        ..Default::default()
    }
}

fn selector(workspace: &str) -> WorkspaceSelector {
    WorkspaceSelector { selection: Some(Selection::Workspace(workspace.to_owned())) }
}

fn provider() -> Provider {
    let metadata = ObjectMeta { name: generate::unique("fresh"), ..Default::default() };
    let credentials = [("TOKEN".to_owned(), "value".to_owned())].into();
    Provider { metadata: Some(metadata), r#type: "generic".to_owned(), credentials, ..Default::default() }
}

fn template() -> SandboxWorkloadTemplate {
    let metadata = ObjectMeta { name: generate::unique("fresh"), ..Default::default() };
    let spec = SandboxWorkloadTemplateSpec { workload: Some(Default::default()), ..Default::default() };
    SandboxWorkloadTemplate { metadata: Some(metadata), spec: Some(spec) }
}

/// A typed message as the value of a field.
fn message(field: &FieldDescriptor, typed: &impl prost::Message) -> Option<Value> {
    let Kind::Message(descriptor) = field.kind() else { return None };
    DynamicMessage::decode(descriptor, &*typed.encode_to_vec()).ok().map(Value::Message)
}
