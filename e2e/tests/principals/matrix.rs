//! Every method at each door, for each kind of caller: the code that the method's rule asks for.

use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_proto::method::{AuthMode, Method};
use tonic::Code;

use crate::requests::{Target, request, sync};
use crate::world::{At, User, World};
use roadstead_e2e::raw::{Answer, bearer, judge_all};

/// The methods that the edge serves to users.
const SERVED_TO_USERS: [Method; 40] = [
    Method::Health,
    Method::GetCurrentUser,
    Method::GetGatewayInfo,
    Method::GetGatewayConfig,
    Method::CreateWorkspace,
    Method::GetWorkspace,
    Method::ListWorkspaces,
    Method::DeleteWorkspace,
    Method::AddWorkspaceMember,
    Method::RemoveWorkspaceMember,
    Method::ListWorkspaceMembers,
    Method::CreateSandbox,
    Method::GetSandbox,
    Method::ListSandboxes,
    Method::DeleteSandbox,
    Method::StopSandbox,
    Method::StartSandbox,
    Method::CreateSandboxTemplate,
    Method::GetSandboxTemplate,
    Method::ListSandboxTemplates,
    Method::DeleteSandboxTemplate,
    Method::ExposeService,
    Method::GetService,
    Method::ListServices,
    Method::DeleteService,
    Method::CreateProvider,
    Method::GetProvider,
    Method::ListProviders,
    Method::UpdateProvider,
    Method::DeleteProvider,
    Method::AttachSandboxProvider,
    Method::DetachSandboxProvider,
    Method::ListSandboxProviders,
    Method::GetSandboxProviderStatus,
    Method::UpdateConfig,
    Method::GetSandboxConfig,
    Method::GetSandboxPolicyStatus,
    Method::ListSandboxPolicies,
    Method::WatchSandbox,
    Method::GetSandboxLogs,
];

/// The methods that the bridge serves to a sandbox.
const SERVED_TO_SANDBOXES: [Method; 13] = [
    Method::Health,
    Method::ConnectSupervisor,
    Method::GetSandboxConfig,
    Method::UpdateConfig,
    Method::GetSandboxProviderEnvironment,
    Method::ReportPolicyStatus,
    Method::ReportSandboxConfiguration,
    Method::ReportMainProcessExit,
    Method::FinalizeMainProcessExit,
    Method::ReportProviderReadiness,
    Method::ReportEndpointStatus,
    Method::RefreshSandboxToken,
    Method::PushSandboxLogs,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    User(User),
    Sandbox,
    Nobody,
}

/// What an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The caller is let in, whatever then becomes of the request; no code of a door or of a fault.
    LetIn,
    /// A code, and a part of its message.
    Refused(Code, &'static str),
}

const NOBODY: Expected = Expected::Refused(Code::Unauthenticated, "a valid credential is required");

/// The rule of `method-auth` for a user at the edge, and what is served there.
fn of_user(method: Method, user: User) -> Expected {
    use Expected::{LetIn, Refused};
    let rule = method.rule();
    match rule.auth {
        AuthMode::Unauthenticated => return LetIn,
        AuthMode::Sandbox => return Refused(Code::PermissionDenied, "only a sandbox may call this method"),
        AuthMode::Operator => return Refused(Code::PermissionDenied, "only an operator may call this method"),
        AuthMode::Peer => return Refused(Code::Unimplemented, "is not served"),
        AuthMode::Bearer | AuthMode::Dual => {}
    }
    if rule.platform_admin && user != User::PlatformAdmin {
        return Refused(Code::PermissionDenied, "role 'platform_admin' required");
    }
    if rule.scope.is_some() && user == User::Unscoped {
        return Refused(Code::PermissionDenied, "scope '");
    }
    if !SERVED_TO_USERS.contains(&method) {
        return Refused(Code::Unimplemented, "is not served yet");
    }
    // It shows each caller what that caller may see.
    if method == Method::ListWorkspaces {
        return LetIn;
    }
    match (rule.workspace_role, user) {
        (None, _) | (_, User::PlatformAdmin | User::Admin) => LetIn,
        (Some(_), User::Stranger) => Refused(Code::PermissionDenied, "not a member of workspace '"),
        (Some(WorkspaceRole::Admin), User::Member) => {
            Refused(Code::PermissionDenied, "workspace role 'admin' required in workspace '")
        }
        (Some(_), User::Member | User::Unscoped) => LetIn,
    }
}

fn expected(at: At, method: Method, caller: Caller) -> Expected {
    use Expected::{LetIn, Refused};
    let auth = method.rule().auth;
    if auth == AuthMode::Unauthenticated {
        return LetIn;
    }
    match (at, caller) {
        (_, Caller::Nobody) => NOBODY,
        (At::Edge, Caller::User(user)) => of_user(method, user),
        // The bridge knows no users, so that nobody's standing there can be taken for one.
        (At::Bridge, Caller::User(_)) => NOBODY,
        (_, Caller::Sandbox) => match auth {
            AuthMode::Bearer => Refused(Code::PermissionDenied, "a sandbox may not call this method"),
            AuthMode::Operator => Refused(Code::PermissionDenied, "only an operator may call this method"),
            AuthMode::Peer => Refused(Code::Unimplemented, "is not served"),
            _ if at == At::Edge => Refused(Code::Unimplemented, "https://supervisors.example:17671"),
            _ if method == Method::IssueSandboxToken => {
                Refused(Code::PermissionDenied, "only the bootstrap identity of a platform may call this method")
            }
            _ if !SERVED_TO_SANDBOXES.contains(&method) => Refused(Code::Unimplemented, "is not served yet"),
            _ => LetIn,
        },
    }
}

fn fits(expected: Expected, answer: &Answer) -> bool {
    match expected {
        Expected::LetIn => !matches!(
            answer.code,
            Code::Unauthenticated
                | Code::PermissionDenied
                | Code::Unimplemented
                | Code::Unavailable
                | Code::Internal
                | Code::Unknown
                | Code::InvalidArgument
                | Code::DeadlineExceeded
        ),
        Expected::Refused(code, text) => answer.code == code && answer.message.contains(text),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_answers_every_kind_of_caller_as_its_rule_says() {
    let world = World::start().await;
    let authorization = |caller| match caller {
        Caller::User(user) => bearer(&user.token()),
        Caller::Sandbox => bearer(&world.sandbox.token),
        Caller::Nobody => Vec::new(),
    };
    let callers = User::ALL.map(Caller::User).into_iter().chain([Caller::Sandbox, Caller::Nobody]);
    let cases = callers.flat_map(|caller| {
        [At::Edge, At::Bridge]
            .into_iter()
            .flat_map(move |at| Method::ALL.iter().map(move |&method| (at, caller, method)))
    });
    // Users speak of a sandbox that is not there, so that nothing happens to those that are.
    let missing = world.missing();
    let target = |caller| -> &Target { if caller == Caller::Sandbox { &world.sandbox.target } else { &missing } };
    let faults = judge_all(cases, |(at, caller, method)| {
        let (world, authorization) = (&world, authorization(caller));
        let request = match (method, caller) {
            (Method::UpdateConfig, Caller::Sandbox) => sync(target(caller)),
            _ => request(method, target(caller)),
        };
        async move {
            let expected = expected(at, method, caller);
            let answer = world.door(at).call(method, &authorization, request).await;
            let (code, message) = (answer.code, &answer.message);
            (!fits(expected, &answer)).then(|| {
                format!("{method} at {at:?} by {caller:?}: {expected:?} was expected, not {code:?}: {message}")
            })
        }
    })
    .await;
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn what_is_served_is_what_the_rules_allow_to_be() {
    for method in SERVED_TO_USERS {
        assert!(
            matches!(method.rule().auth, AuthMode::Unauthenticated | AuthMode::Bearer | AuthMode::Dual),
            "{method}"
        );
    }
    for method in SERVED_TO_SANDBOXES {
        assert!(
            matches!(method.rule().auth, AuthMode::Unauthenticated | AuthMode::Sandbox | AuthMode::Dual),
            "{method}"
        );
    }
    assert_eq!(Method::ALL.len(), 84);
}
