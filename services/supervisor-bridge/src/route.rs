//! Where each method goes.

use roadstead_proto::method::Method;
use roadstead_proto::subject::{ConfigCall, Report};

/// Who does the work of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// This process: a session.
    Session,
    /// This process: lines for the stream of activity.
    Logs,
    /// This process, without asking anybody.
    Health,
    /// The session, which this process holds: what it observes of providers.
    Readiness,
    /// Admission, through the queue of reports.
    Report(Report),
    /// The config-snapshot role.
    Config(ConfigCall),
    /// Nobody yet, or nobody ever.
    NotServed(&'static str),
    /// Not a sandbox.
    Forbidden(&'static str),
}

const NOT_YET: &str = "is not served yet";
const PEERS: &str = "is not served: processes of this gateway meet at the broker and need no peers";
const USERS: &str = "a sandbox may not call this method";

/// The route of a method, when a sandbox calls it.
pub(crate) const fn of(method: Method) -> Route {
    use Method as M;
    match method {
        M::ConnectSupervisor => Route::Session,
        M::PushSandboxLogs => Route::Logs,
        M::Health => Route::Health,

        M::ReportProviderReadiness => Route::Readiness,

        M::ReportPolicyStatus => Route::Report(Report::ReportPolicyStatus),
        M::ReportSandboxConfiguration => Route::Report(Report::ReportSandboxConfiguration),
        M::ReportMainProcessExit => Route::Report(Report::ReportMainProcessExit),
        M::FinalizeMainProcessExit => Route::Report(Report::FinalizeMainProcessExit),
        M::ReportEndpointStatus => Route::Report(Report::ReportEndpointStatus),
        M::IssueSandboxToken => Route::Report(Report::IssueSandboxToken),
        M::RefreshSandboxToken => Route::Report(Report::RefreshSandboxToken),
        M::UpdateConfig => Route::Report(Report::UpdateConfig),

        M::GetSandboxConfig => Route::Config(ConfigCall::GetSandboxConfig),
        M::GetSandboxProviderEnvironment => Route::Config(ConfigCall::GetSandboxProviderEnvironment),

        M::GetDraftPolicy | M::SubmitPolicyAnalysis | M::ExchangeProviderSubjectToken | M::RelayStream => {
            Route::NotServed(NOT_YET)
        }

        M::PeerRelay
        | M::PeerReportProviderReadiness
        | M::PeerReportEndpointStatus
        | M::PeerGetSandboxProviderStatus
        | M::PeerNotifyConfigUpdate => Route::NotServed(PEERS),

        M::GetCurrentUser
        | M::GetGatewayInfo
        | M::GetGatewayConfig
        | M::CreateSandbox
        | M::BeginRootfsTarStaging
        | M::GetSandbox
        | M::ListSandboxes
        | M::CreateSandboxTemplate
        | M::GetSandboxTemplate
        | M::ListSandboxTemplates
        | M::DeleteSandboxTemplate
        | M::ListSandboxProviders
        | M::AttachSandboxProvider
        | M::DetachSandboxProvider
        | M::GetSandboxProviderStatus
        | M::DeleteSandbox
        | M::StopSandbox
        | M::StartSandbox
        | M::CreateSshSession
        | M::ExposeService
        | M::GetService
        | M::ListServices
        | M::DeleteService
        | M::RevokeSshSession
        | M::ExecSandbox
        | M::ForwardTcp
        | M::ExecSandboxInteractive
        | M::CreateProvider
        | M::GetProvider
        | M::GetProviderCredentials
        | M::ListProviders
        | M::ListProviderProfiles
        | M::GetProviderProfile
        | M::ImportProviderProfiles
        | M::UpdateProviderProfiles
        | M::LintProviderProfiles
        | M::UpdateProvider
        | M::GetProviderRefreshStatus
        | M::ConfigureProviderRefresh
        | M::RotateProviderCredential
        | M::DeleteProviderRefresh
        | M::DeleteProvider
        | M::DeleteProviderProfile
        | M::GetSandboxPolicyStatus
        | M::ListSandboxPolicies
        | M::GetSandboxLogs
        | M::WatchSandbox
        | M::ApproveDraftChunk
        | M::RejectDraftChunk
        | M::ApproveAllDraftChunks
        | M::EditDraftChunk
        | M::UndoDraftChunk
        | M::ClearDraftChunks
        | M::GetDraftHistory
        | M::CreateWorkspace
        | M::GetWorkspace
        | M::ListWorkspaces
        | M::DeleteWorkspace
        | M::AddWorkspaceMember
        | M::RemoveWorkspaceMember
        | M::ListWorkspaceMembers => Route::Forbidden(USERS),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::method::AuthMode;

    use super::*;

    #[test]
    fn only_what_a_sandbox_may_call_is_served() {
        for &method in Method::ALL {
            let may_call = matches!(method.rule().auth, AuthMode::Sandbox | AuthMode::Dual | AuthMode::Unauthenticated);
            let served = !matches!(of(method), Route::NotServed(_) | Route::Forbidden(_));
            assert!(may_call || !served, "{method}");
            let users = matches!(method.rule().auth, AuthMode::Bearer | AuthMode::Operator);
            assert_eq!(of(method) == Route::Forbidden(USERS), users, "{method}");
        }
    }

    #[test]
    fn a_report_travels_under_its_methods_name() {
        for &method in Method::ALL {
            if let Route::Report(report) = of(method) {
                assert_eq!(report.name(), method.name());
            }
        }
    }
}
