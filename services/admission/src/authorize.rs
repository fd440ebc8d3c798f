//! Whether a caller may do what it asks, by the rights of today: asked at every attempt, before the ledger answers (D9).

use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_proto::method::Method;
use roadstead_service_kit::access;

use crate::caller::Caller;
use crate::ledger::Scope;
use crate::refusal::Refusal;

/// Checks the caller against where the command acts. `role` is the caller's in that workspace; `platform_admin` says
/// that the request asks for more than its method.
///
/// The door has checked what the method asks of everybody, a scope for instance. Here is what depends on state.
///
/// # Errors
/// `Denied`, with the way out where there is one.
pub fn authorize(
    caller: &Caller,
    scope: Scope<'_>,
    method: Option<Method>,
    role: Option<WorkspaceRole>,
    platform_admin: bool,
) -> Result<(), Refusal> {
    match (caller, scope) {
        (Caller::User(user), Scope::Workspace(workspace)) => {
            // A method whose rule names no role is open to nobody but platform admins here.
            let required = method.and_then(|method| method.rule().workspace_role);
            match required {
                Some(required) => access::in_workspace(user, workspace, role, required)?,
                None => access::platform(user)?,
            }
            if platform_admin {
                access::platform(user)?;
            }
            Ok(())
        }
        (Caller::User(user), Scope::Platform(_)) => Ok(access::platform(user)?),
        // Its own sandbox is all that a supervisor's commands are about; the operation checks that it is.
        (Caller::Sandbox { .. } | Caller::Bootstrap { .. }, Scope::OwnSandbox) => Ok(()),
        (Caller::User(_), Scope::OwnSandbox) => Err(denied("only a sandbox's supervisor may call this")),
        (Caller::Sandbox { .. } | Caller::Bootstrap { .. }, Scope::Workspace(_) | Scope::Platform(_)) => {
            Err(denied("a supervisor may not call this"))
        }
    }
}

fn denied(text: &str) -> Refusal {
    Refusal::Denied(text.to_owned())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::sample;

    fn user(platform_admin: bool) -> Caller {
        Caller::User(sample::user("ann", platform_admin))
    }

    fn text(result: Result<(), Refusal>) -> String {
        result.unwrap_err().to_string()
    }

    const WORKSPACE: Scope<'static> = Scope::Workspace("w");

    #[test]
    fn the_rule_of_the_method_decides_in_a_workspace() {
        use WorkspaceRole::{Admin, User};
        let check = |method, role| authorize(&user(false), WORKSPACE, Some(method), role, false);
        assert_eq!(check(Method::CreateSandbox, Some(User)), Ok(()));
        assert_eq!(check(Method::CreateProvider, Some(Admin)), Ok(()));
        assert!(
            text(check(Method::CreateProvider, Some(User)))
                .contains("workspace role 'admin' required in workspace 'w'")
        );
        let stranger = text(check(Method::CreateSandbox, None));
        assert!(stranger.contains("not a member of workspace 'w'"));
        assert!(stranger.contains("openshell workspace member add --workspace 'w' --subject 'ann' --role user"));
    }

    #[test]
    fn the_platform_is_for_its_admins_and_so_is_granting_admin() {
        let create = Some(Method::CreateWorkspace);
        assert_eq!(authorize(&user(true), Scope::Platform("w"), create, None, false), Ok(()));
        assert!(
            text(authorize(&user(false), Scope::Platform("w"), create, None, false))
                .contains("platform admin role required")
        );
        let add = Some(Method::AddWorkspaceMember);
        let admin = Some(WorkspaceRole::Admin);
        assert_eq!(authorize(&user(false), WORKSPACE, add, admin, false), Ok(()));
        assert!(text(authorize(&user(false), WORKSPACE, add, admin, true)).contains("platform admin role required"));
        assert_eq!(authorize(&user(true), WORKSPACE, add, None, true), Ok(()));
    }

    #[test]
    fn each_kind_of_caller_keeps_to_its_own() {
        let sandbox = Caller::Sandbox { id: Uuid::from_u128(1), generation: 1 };
        assert_eq!(authorize(&sandbox, Scope::OwnSandbox, None, None, false), Ok(()));
        for scope in [WORKSPACE, Scope::Platform("")] {
            let refused = authorize(&sandbox, scope, Some(Method::UpdateConfig), Some(WorkspaceRole::Admin), false);
            assert!(matches!(refused, Err(Refusal::Denied(_))));
        }
        assert!(matches!(authorize(&user(true), Scope::OwnSandbox, None, None, false), Err(Refusal::Denied(_))));
    }
}
