//! Whether a request speaks of the caller's own sandbox, as far as its id tells. Where a request has a name instead,
//! whoever holds the row compares it.

use bytes::Bytes;
use prost::Message;
use roadstead_proto::api::v1::{
    FinalizeMainProcessExitRequest, GetSandboxProviderEnvironmentRequest, ReportEndpointStatusRequest,
    ReportMainProcessExitRequest, ReportPolicyStatusRequest, ReportSandboxConfigurationRequest,
};
use roadstead_proto::internal::SandboxIdentity;
use roadstead_proto::method::Method;
use roadstead_service_kit::access::ANOTHER_SANDBOX;
use tonic::Status;

/// Compares them.
///
/// # Errors
///
/// `PERMISSION_DENIED`, the same whether the other sandbox exists or not; `INVALID_ARGUMENT` if the request cannot be
/// decoded.
pub(crate) fn check(method: Method, request: &Bytes, identity: &SandboxIdentity) -> Result<(), Status> {
    let named = match method {
        Method::GetSandboxProviderEnvironment => decode::<GetSandboxProviderEnvironmentRequest>(request)?.sandbox_id,
        Method::ReportPolicyStatus => decode::<ReportPolicyStatusRequest>(request)?.sandbox_id,
        Method::ReportEndpointStatus => decode::<ReportEndpointStatusRequest>(request)?.sandbox_id,
        Method::ReportSandboxConfiguration => decode::<ReportSandboxConfigurationRequest>(request)?.sandbox_id,
        Method::ReportMainProcessExit => decode::<ReportMainProcessExitRequest>(request)?.sandbox_id,
        Method::FinalizeMainProcessExit => decode::<FinalizeMainProcessExitRequest>(request)?.sandbox_id,
        _ => return Ok(()),
    };
    if named == identity.sandbox_id { Ok(()) } else { Err(foreign()) }
}

/// The refusal of whatever speaks of another sandbox.
pub(crate) fn foreign() -> Status {
    Status::permission_denied(ANOTHER_SANDBOX)
}

fn decode<M: Message + Default>(request: &Bytes) -> Result<M, Status> {
    M::decode(request.clone()).map_err(|_| Status::invalid_argument("the request cannot be decoded"))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn another_sandboxs_id_is_refused_and_so_is_none() {
        let identity = SandboxIdentity { sandbox_id: "own".into(), ..Default::default() };
        let check = |method, request: Vec<u8>| super::check(method, &request.into(), &identity).map_err(|e| e.code());
        for (sandbox_id, expected) in
            [("own", Ok(())), ("other", Err(Code::PermissionDenied)), ("", Err(Code::PermissionDenied))]
        {
            let sandbox_id = sandbox_id.to_owned();
            let status = ReportPolicyStatusRequest { sandbox_id: sandbox_id.clone(), ..Default::default() };
            assert_eq!(check(Method::ReportPolicyStatus, status.encode_to_vec()), expected);
            let report = ReportSandboxConfigurationRequest { sandbox_id: sandbox_id.clone(), ..Default::default() };
            assert_eq!(check(Method::ReportSandboxConfiguration, report.encode_to_vec()), expected);
            let exit = ReportMainProcessExitRequest { sandbox_id: sandbox_id.clone(), ..Default::default() };
            assert_eq!(check(Method::ReportMainProcessExit, exit.encode_to_vec()), expected);
            let last = FinalizeMainProcessExitRequest { sandbox_id: sandbox_id.clone(), ..Default::default() };
            assert_eq!(check(Method::FinalizeMainProcessExit, last.encode_to_vec()), expected);
            let environment = GetSandboxProviderEnvironmentRequest { sandbox_id, ..Default::default() };
            assert_eq!(check(Method::GetSandboxProviderEnvironment, environment.encode_to_vec()), expected);
        }
        assert_eq!(check(Method::ReportPolicyStatus, vec![0xff]), Err(Code::InvalidArgument));
        assert_eq!(check(Method::RefreshSandboxToken, Vec::new()), Ok(()));
    }
}
