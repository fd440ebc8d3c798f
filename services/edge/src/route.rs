//! Where each method goes.

use roadstead_proto::method::Method;
use roadstead_proto::subject::ConfigCall;

/// Who does the work of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// This process, without asking anybody.
    Local(Local),
    /// Admission, through the queue.
    Command,
    /// The watch role.
    Read,
    /// The config-snapshot role.
    Config(ConfigCall),
    /// The hub of this process.
    Watch,
    /// The stream of activity.
    Logs,
    /// The supervisor-bridge, at its own address.
    Supervisor,
    /// Nobody yet, or nobody ever.
    NotServed(&'static str),
}

/// What this process answers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    Health,
    CurrentUser,
    GatewayInfo,
}

const NOT_YET: &str = "is not served yet";
const PEERS: &str = "is not served: processes of this gateway meet at the broker and need no peers";

/// The route of a method, when a user calls it.
pub(crate) const fn of(method: Method) -> Route {
    use Method as M;
    match method {
        M::Health => Route::Local(Local::Health),
        M::GetCurrentUser => Route::Local(Local::CurrentUser),
        M::GetGatewayInfo => Route::Local(Local::GatewayInfo),

        M::CreateWorkspace
        | M::DeleteWorkspace
        | M::AddWorkspaceMember
        | M::RemoveWorkspaceMember
        | M::CreateSandbox
        | M::DeleteSandbox
        | M::StopSandbox
        | M::StartSandbox
        | M::AttachSandboxProvider
        | M::DetachSandboxProvider
        | M::CreateSandboxTemplate
        | M::DeleteSandboxTemplate
        | M::ExposeService
        | M::DeleteService
        | M::CreateProvider
        | M::UpdateProvider
        | M::DeleteProvider
        | M::UpdateConfig => Route::Command,

        M::GetWorkspace
        | M::ListWorkspaces
        | M::ListWorkspaceMembers
        | M::GetSandbox
        | M::ListSandboxes
        | M::ListSandboxProviders
        | M::GetSandboxTemplate
        | M::ListSandboxTemplates
        | M::GetService
        | M::ListServices
        | M::GetProvider
        | M::ListProviders
        | M::GetGatewayConfig
        | M::GetSandboxPolicyStatus
        | M::ListSandboxPolicies => Route::Read,

        M::GetSandboxConfig => Route::Config(ConfigCall::GetSandboxConfig),
        M::GetSandboxProviderStatus => Route::Config(ConfigCall::GetSandboxProviderStatus),
        M::WatchSandbox => Route::Watch,
        M::GetSandboxLogs => Route::Logs,

        M::ConnectSupervisor
        | M::GetSandboxProviderEnvironment
        | M::ReportPolicyStatus
        | M::ReportSandboxConfiguration
        | M::RefreshSandboxToken
        | M::ReportEndpointStatus
        | M::ReportProviderReadiness
        | M::ExchangeProviderSubjectToken
        | M::PushSandboxLogs
        | M::ReportMainProcessExit
        | M::FinalizeMainProcessExit
        | M::RelayStream
        | M::SubmitPolicyAnalysis
        | M::IssueSandboxToken => Route::Supervisor,

        M::PeerRelay
        | M::PeerReportProviderReadiness
        | M::PeerReportEndpointStatus
        | M::PeerGetSandboxProviderStatus
        | M::PeerNotifyConfigUpdate => Route::NotServed(PEERS),

        M::BeginRootfsTarStaging
        | M::CreateSshSession
        | M::RevokeSshSession
        | M::ExecSandbox
        | M::ForwardTcp
        | M::ExecSandboxInteractive
        | M::GetProviderCredentials
        | M::ListProviderProfiles
        | M::GetProviderProfile
        | M::ImportProviderProfiles
        | M::UpdateProviderProfiles
        | M::LintProviderProfiles
        | M::DeleteProviderProfile
        | M::GetProviderRefreshStatus
        | M::ConfigureProviderRefresh
        | M::RotateProviderCredential
        | M::DeleteProviderRefresh
        | M::GetDraftPolicy
        | M::ApproveDraftChunk
        | M::RejectDraftChunk
        | M::ApproveAllDraftChunks
        | M::EditDraftChunk
        | M::UndoDraftChunk
        | M::ClearDraftChunks
        | M::GetDraftHistory => Route::NotServed(NOT_YET),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::method::AuthMode;

    use super::*;

    #[test]
    fn the_methods_of_sandboxes_are_the_bridges() {
        for &method in Method::ALL {
            let supervisors = method.rule().auth == AuthMode::Sandbox;
            assert_eq!(of(method) == Route::Supervisor, supervisors, "{method}");
        }
    }

    #[test]
    fn what_goes_through_the_queue_has_a_request_id_and_what_is_read_has_none() {
        for &method in Method::ALL {
            match of(method) {
                Route::Command => assert!(method.has_request_id(), "{method}"),
                Route::Read | Route::Config(_) | Route::Watch | Route::Logs | Route::Local(_) => {
                    assert!(!method.has_request_id(), "{method}");
                }
                Route::Supervisor | Route::NotServed(_) => {}
            }
        }
    }
}
