//! The static rule of a method: what can be said of a call without looking at any state.

use roadstead_proto::method::{AuthMode, MethodRule};
use tonic::Status;

use super::Principal;

/// The scope that stands for all.
const EVERY_SCOPE: &str = "openshell:all";

/// Whether a caller is of the kind, and has the platform role and the scope, that a method asks for. Membership and
/// roles in a workspace are judged where the state is.
///
/// # Errors
///
/// `PERMISSION_DENIED`, naming what is missing.
pub fn check(rule: &MethodRule, principal: &Principal) -> Result<(), Status> {
    match (rule.auth, principal) {
        (AuthMode::Unauthenticated, _) | (AuthMode::Dual | AuthMode::Sandbox, Principal::Sandbox(_)) => return Ok(()),
        (AuthMode::Bearer | AuthMode::Dual, Principal::User(_)) => {}
        (AuthMode::Bearer, Principal::Sandbox(_)) => {
            return Err(Status::permission_denied("a sandbox may not call this method"));
        }
        (AuthMode::Sandbox, Principal::User(_)) => {
            return Err(Status::permission_denied("only a sandbox may call this method"));
        }
        (AuthMode::Peer, _) => return Err(Status::permission_denied("only another gateway may call this method")),
        (AuthMode::Operator, _) => return Err(Status::permission_denied("only an operator may call this method")),
    }
    let Principal::User(user) = principal else { return Ok(()) };
    if rule.platform_admin && !user.platform_admin {
        return Err(Status::permission_denied("role 'platform_admin' required"));
    }
    match rule.scope {
        Some(scope) if !user.scopes.is_empty() && !user.scopes.iter().any(|has| has == scope || has == EVERY_SCOPE) => {
            Err(Status::permission_denied(format!("scope '{scope}' required")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use roadstead_proto::internal::{SandboxIdentity, User};
    use roadstead_proto::method::Method;
    use tonic::Code;

    use super::*;

    fn user(platform_admin: bool, scopes: &[&str]) -> Principal {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        Principal::User(Arc::new(User { platform_admin, scopes, ..Default::default() }))
    }

    fn refusal(method: Method, principal: &Principal) -> Option<String> {
        let refused = check(&method.rule(), principal).err()?;
        assert_eq!(refused.code(), Code::PermissionDenied);
        Some(refused.message().to_owned())
    }

    #[test]
    fn each_kind_of_caller_may_call_the_methods_of_its_kind_only() {
        let sandbox = Principal::Sandbox(Arc::new(SandboxIdentity::default()));
        let admin = user(true, &[]);
        for &method in Method::ALL {
            let (a_user, a_sandbox) = match method.rule().auth {
                AuthMode::Unauthenticated | AuthMode::Dual => (true, true),
                AuthMode::Bearer => (true, false),
                AuthMode::Sandbox => (false, true),
                AuthMode::Peer | AuthMode::Operator => (false, false),
            };
            assert_eq!(refusal(method, &admin).is_none(), a_user, "a user, {method}");
            assert_eq!(refusal(method, &sandbox).is_none(), a_sandbox, "a sandbox, {method}");
        }
    }

    #[test]
    fn the_platform_role_is_required_where_the_table_says_so() {
        for &method in Method::ALL {
            let denied = refusal(method, &user(false, &[]));
            let expected = method.rule().platform_admin.then(|| "role 'platform_admin' required".to_owned());
            if method.rule().auth == AuthMode::Bearer {
                assert_eq!(denied, expected, "{method}");
            }
        }
    }

    #[test]
    fn a_scope_is_required_of_callers_who_have_scopes() {
        for &method in Method::ALL {
            let Some(scope) = method.rule().scope else { continue };
            assert_eq!(refusal(method, &user(true, &[scope])), None, "{method}");
            assert_eq!(refusal(method, &user(true, &["openshell:all"])), None, "{method}");
            assert_eq!(refusal(method, &user(true, &["openid", "x"])), Some(format!("scope '{scope}' required")));
        }
    }
}
