//! Every method with a secret in each of its secret fields and hostile text in all others, from every kind of caller.

use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value};
use roadstead_e2e::api::request_id;
use roadstead_e2e::raw::{Raw, bearer};
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_testkit::{Stack, variation};
use tonic::Code;

use crate::canary::Canaries;
use crate::places::Places;
use crate::story::Story;

/// What a caller shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    Admin,
    /// A token that nobody knows, and that is a secret all the same.
    Unknown,
    None,
    Sandbox,
}

/// Calls all methods at both doors.
pub(crate) async fn call_all(
    stack: &Stack,
    story: &Story,
    canaries: &Canaries,
    credential: Credential,
    places: &mut Places,
) {
    let authorization = match credential {
        Credential::Admin => bearer(&story.admin_token),
        Credential::Unknown => bearer(&canaries.secret("unknown")),
        Credential::None => Vec::new(),
        Credential::Sandbox => bearer(&story.sandbox_token),
    };
    for (door, url) in [("edge", stack.edge(1)), ("bridge", stack.bridge(1))] {
        let door_opened = Raw::open(&url).await;
        for &method in Method::ALL {
            for plausible in [false, true] {
                // Their own supervisors hold their sessions; what a rival would do to them is told elsewhere.
                if method == Method::ConnectSupervisor && credential == Credential::Sandbox {
                    continue;
                }
                let place = format!("{method} at the {door} by {credential:?}, plausible: {plausible}");
                let request = request(method, story, canaries, plausible);
                let answer = door_opened.call(method, &authorization, request).await;
                match answer.code {
                    // A supervisor gets the secrets of its own sandbox.
                    Code::Ok if method == Method::GetSandboxProviderEnvironment => {}
                    Code::Ok if method == Method::RefreshSandboxToken => {
                        let told = answer.first.unwrap_or_default();
                        canaries.add(&v1::RefreshSandboxTokenResponse::decode(told).unwrap().token);
                    }
                    Code::Ok => places.shown(&place, &answer.first.unwrap_or_default()),
                    _ => places.refused(&place, &answer.message, &answer.details),
                }
            }
        }
    }
}

/// With everything set. A plausible one names what is there where it names anything.
pub(crate) fn request(method: Method, story: &Story, canaries: &Canaries, plausible: bool) -> Vec<u8> {
    let mut message = variation::full(&method.input_descriptor()).swap_remove(0);
    fill(&mut message, story, canaries, plausible);
    message.encode_to_vec()
}

fn fill(message: &mut DynamicMessage, story: &Story, canaries: &Canaries, plausible: bool) {
    let fields = message.fields().map(|(field, value)| (field, value.clone())).collect::<Vec<_>>();
    for (field, mut value) in fields {
        let text = match field.name() {
            _ if is_secret(&field) => canaries.secret(field.name()),
            "request_id" if plausible => request_id(),
            "workspace" if plausible => story.workspace.clone(),
            "name" | "sandbox" if plausible => story.sandbox.clone(),
            "sandbox_id" if plausible => story.sandbox_id.clone(),
            _ => canaries.hostile(),
        };
        put(&mut value, &text, &mut |message| fill(message, story, canaries, plausible));
        message.set_field(&field, value);
    }
    // All workspaces is what no mutation may say.
    if plausible && message.descriptor().name() == "WorkspaceSelector" {
        message.set_field_by_name("workspace", Value::String(story.workspace.clone()));
    }
}

fn put(value: &mut Value, text: &str, fill: &mut dyn FnMut(&mut DynamicMessage)) {
    match value {
        Value::String(held) => text.clone_into(held),
        Value::Bytes(held) => *held = text.as_bytes().to_vec().into(),
        Value::List(values) => values.iter_mut().for_each(|value| put(value, text, fill)),
        Value::Map(entries) => entries.values_mut().for_each(|value| put(value, text, fill)),
        Value::Message(message) => fill(message),
        _ => {}
    }
}

/// Whether the protocol says that the field's value must not reach a log.
fn is_secret(field: &FieldDescriptor) -> bool {
    let Some(option) = field.parent_pool().get_extension_by_name("openshell.options.v1.secret") else { return false };
    field.options().get_extension(&option).as_bool() == Some(true)
}

#[test]
fn the_secret_fields_of_the_protocol_are_known() {
    let mut known = Vec::new();
    for &method in Method::ALL {
        for field in method.input_descriptor().fields() {
            if is_secret(&field) {
                known.push(field.full_name().to_owned());
            }
            if let Kind::Message(nested) = field.kind() {
                known.extend(nested.fields().filter(is_secret).map(|field| field.full_name().to_owned()));
            }
        }
    }
    assert!(known.iter().any(|name| name.ends_with("Provider.credentials")), "{known:?}");
    assert!(known.iter().any(|name| name.ends_with("material")), "{known:?}");
}
