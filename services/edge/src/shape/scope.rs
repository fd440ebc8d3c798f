//! The workspace a request is about.

use roadstead_proto::method::Method;
use roadstead_service_kit::status::Status;

const FIELD: &str = "workspace_scope";

/// What a selector selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selected {
    /// The selector is absent or empty.
    Nothing,
    /// One workspace, whose name is empty.
    NoName,
    One,
    All,
}

/// How a method may be scoped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scopes {
    /// To one workspace.
    One,
    /// To one workspace or to all.
    OneOrAll,
    /// To one workspace, or to the platform if the selector is left out.
    OneOrPlatform,
    /// To one workspace, or to the platform if the request says `global`.
    OneOrGlobal,
}

const fn scopes(method: Method) -> Scopes {
    use Method as M;
    match method {
        M::ListSandboxes | M::ListSandboxTemplates | M::ListProviders | M::ListServices => Scopes::OneOrAll,
        M::ListProviderProfiles
        | M::GetProviderProfile
        | M::ImportProviderProfiles
        | M::UpdateProviderProfiles
        | M::LintProviderProfiles
        | M::DeleteProviderProfile => Scopes::OneOrPlatform,
        M::UpdateConfig | M::GetSandboxPolicyStatus | M::ListSandboxPolicies => Scopes::OneOrGlobal,
        _ => Scopes::One,
    }
}

/// Whether a method may be called with that selection.
pub(super) fn check(method: Method, selected: Selected, global: bool) -> Result<(), tonic::Status> {
    let scopes = scopes(method);
    let fault = match selected {
        _ if scopes == Scopes::OneOrGlobal && global => match selected {
            Selected::Nothing => return Ok(()),
            _ => "must be left out of a global request",
        },
        Selected::One => return Ok(()),
        Selected::Nothing if scopes == Scopes::OneOrPlatform => return Ok(()),
        Selected::All if scopes == Scopes::OneOrAll => return Ok(()),
        Selected::Nothing => "is required",
        Selected::All => "must name one workspace",
        Selected::NoName => return Err(Status::invalid("workspace_scope.workspace", "must not be empty").into()),
    };
    Err(Status::invalid(FIELD, fault).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(method: Method, global: bool) -> Vec<Selected> {
        let all = [Selected::Nothing, Selected::NoName, Selected::One, Selected::All];
        all.into_iter().filter(|&selected| check(method, selected, global).is_ok()).collect()
    }

    #[test]
    fn each_method_is_scoped_as_the_contract_says() {
        assert_eq!(accepted(Method::GetSandbox, false), [Selected::One]);
        assert_eq!(accepted(Method::WatchSandbox, false), [Selected::One]);
        assert_eq!(accepted(Method::ListSandboxes, false), [Selected::One, Selected::All]);
        assert_eq!(accepted(Method::GetProviderProfile, false), [Selected::Nothing, Selected::One]);
        assert_eq!(accepted(Method::UpdateConfig, false), [Selected::One]);
        assert_eq!(accepted(Method::UpdateConfig, true), [Selected::Nothing]);
    }
}
