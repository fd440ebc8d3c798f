//! What can be said of a request without any state: that it decodes, and that the fields every method shares are in
//! order. What a method's own fields must be is for the role that knows their meaning.

mod request_id;
mod scope;

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor, Value};
use roadstead_proto::method::Method;
use roadstead_service_kit::status::{Code, Status};

use scope::Selected;

/// Checks a request.
///
/// # Errors
///
/// `INVALID_ARGUMENT`, with the field at fault.
pub(crate) fn check(method: Method, request: &Bytes) -> Result<(), tonic::Status> {
    let Some(shape) = SHAPES.get(&method) else { return Ok(()) };
    let message = DynamicMessage::decode(shape.message.clone(), request.clone())
        .map_err(|_| Status::new(Code::InvalidArgument, "the request is not a message of its type"))?;
    if let Some(field) = &shape.request_id {
        request_id::check(message.get_field(field).as_str().unwrap_or_default())?;
    }
    if let Some(field) = &shape.scope {
        let selected = message.has_field(field).then(|| selected(&message.get_field(field)));
        let global = shape.global.as_ref().is_some_and(|field| message.get_field(field).as_bool() == Some(true));
        scope::check(method, selected.unwrap_or(Selected::Nothing), global)?;
    }
    Ok(())
}

/// The fields of a request that are looked at.
struct Shape {
    message: MessageDescriptor,
    request_id: Option<FieldDescriptor>,
    scope: Option<FieldDescriptor>,
    global: Option<FieldDescriptor>,
}

static SHAPES: LazyLock<HashMap<Method, Shape>> = LazyLock::new(|| {
    let shape = |&method: &Method| {
        let message = method.input_descriptor();
        let field = |name| message.get_field_by_name(name);
        let (request_id, scope, global) = (field("request_id"), field("workspace_scope"), field("global"));
        (method, Shape { message, request_id, scope, global })
    };
    Method::ALL.iter().map(shape).collect()
});

/// What a `WorkspaceSelector` selects.
fn selected(selector: &Value) -> Selected {
    let Some(selector) = selector.as_message() else { return Selected::Nothing };
    if selector.has_field_by_name("all_workspaces") {
        return Selected::All;
    }
    match selector.get_field_by_name("workspace") {
        Some(name) if selector.has_field_by_name("workspace") => {
            if name.as_str().is_some_and(str::is_empty) {
                Selected::NoName
            } else {
                Selected::One
            }
        }
        _ => Selected::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use roadstead_proto::api::datamodel::workspace_selector::Selection;
    use roadstead_proto::api::datamodel::{AllWorkspaces, WorkspaceSelector};
    use roadstead_proto::api::v1;

    use super::*;

    fn fault(method: Method, request: impl prost::Message) -> Option<String> {
        let refused = check(method, &request.encode_to_vec().into()).err()?;
        assert_eq!(refused.code(), Code::InvalidArgument);
        Some(refused.message().to_owned())
    }

    fn selector(selection: Selection) -> Option<WorkspaceSelector> {
        Some(WorkspaceSelector { selection: Some(selection) })
    }

    #[test]
    fn a_well_formed_request_passes() {
        let workspace_scope = selector(Selection::Workspace("w".to_owned()));
        let request_id = "67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned();
        let create =
            v1::CreateSandboxRequest { workspace_scope: workspace_scope.clone(), request_id, ..Default::default() };
        assert_eq!(fault(Method::CreateSandbox, create), None);
        assert_eq!(fault(Method::GetSandbox, v1::GetSandboxRequest { workspace_scope, ..Default::default() }), None);
        assert_eq!(fault(Method::GetCurrentUser, v1::GetCurrentUserRequest {}), None);
        let all = selector(Selection::AllWorkspaces(AllWorkspaces {}));
        assert_eq!(
            fault(Method::ListSandboxes, v1::ListSandboxesRequest { workspace_scope: all, ..Default::default() }),
            None
        );
    }

    #[test]
    fn the_field_at_fault_is_named() {
        let request =
            |request_id: &str| v1::CreateWorkspaceRequest { request_id: request_id.to_owned(), ..Default::default() };
        assert!(fault(Method::CreateWorkspace, request("x")).unwrap().starts_with("request_id: "));

        let get = |workspace_scope| v1::GetSandboxRequest { workspace_scope, ..Default::default() };
        for scope in [
            None,
            Some(WorkspaceSelector::default()),
            selector(Selection::Workspace(String::new())),
            selector(Selection::AllWorkspaces(AllWorkspaces {})),
        ] {
            assert!(fault(Method::GetSandbox, get(scope)).unwrap().starts_with("workspace_scope"));
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let refused = check(Method::CreateSandbox, &Bytes::from_static(b"\xff\xff")).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }

    #[test]
    fn fields_that_are_not_known_pass() {
        let mut bytes = v1::GetSandboxRequest {
            workspace_scope: selector(Selection::Workspace("w".to_owned())),
            ..Default::default()
        }
        .encode_to_vec();
        bytes.extend([0xf8, 0x3f, 1]);
        assert!(check(Method::GetSandbox, &bytes.into()).is_ok());
    }
}
