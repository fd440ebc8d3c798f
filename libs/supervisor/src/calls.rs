//! Connecting, and the calls beside the stream.

use std::time::Duration;

use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::datamodel::workspace_selector::Selection;
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::{
    FinalizeMainProcessExitRequest, ProviderReadinessObservation, RefreshSandboxTokenRequest,
    ReportMainProcessExitRequest, ReportProviderReadinessRequest, UpdateConfigRequest,
};
use secrecy::ExposeSecret as _;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};
use uuid::Uuid;

use crate::client::StartError;
use crate::settings::Settings;
use crate::token::Token;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a unary call may take.
const CALL: Duration = Duration::from_secs(30);

/// The calls of a bridge.
pub(crate) type Api = OpenShellClient<Channel>;

/// Where and how to connect.
pub(crate) fn endpoint(address: &str, authority: Option<&Certificate>) -> Result<Endpoint, StartError> {
    let unusable = || StartError::Address(address.to_owned());
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|_| unusable())?;
    let endpoint = endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true);
    match authority {
        Some(authority) => {
            let tls = ClientTlsConfig::new().ca_certificate(authority.clone());
            endpoint.tls_config(tls).map_err(|_| unusable())
        }
        None => Ok(endpoint),
    }
}

/// Proposes a policy for the sandbox; the version under which it was accepted.
pub(crate) fn propose_policy(
    mut api: Api,
    token: Token,
    settings: &Settings,
    policy: SandboxPolicy,
) -> impl Future<Output = Result<u32, Status>> + Send + use<> {
    let selection = Some(Selection::Workspace(settings.workspace.clone()));
    let request = UpdateConfigRequest {
        workspace_scope: Some(WorkspaceSelector { selection }),
        sandbox: settings.sandbox.clone(),
        policy: Some(policy),
        ..UpdateConfigRequest::default()
    };
    in_time(async move { Ok(api.update_config(authorized(&token, request)?).await?.into_inner().version) })
}

/// Tells how the main process of this instance ended, and that nothing more comes of it.
pub(crate) async fn tell_exit(mut api: Api, token: Token, instance_id: Uuid, exit_code: i32) -> Result<(), Status> {
    let (sandbox_id, instance_id) = (token.sandbox_id().to_string(), instance_id.to_string());
    let report =
        ReportMainProcessExitRequest { sandbox_id: sandbox_id.clone(), instance_id: instance_id.clone(), exit_code };
    let finalize = FinalizeMainProcessExitRequest { sandbox_id, instance_id };
    in_time(async move {
        api.report_main_process_exit(authorized(&token, report)?).await?;
        api.finalize_main_process_exit(authorized(&token, finalize)?).await?;
        Ok(())
    })
    .await
}

/// Says which providers are in effect; how long to wait before it is said again, if the server says.
pub(crate) async fn report_readiness(
    mut api: Api,
    token: Token,
    observation: ProviderReadinessObservation,
) -> Result<Option<Duration>, Status> {
    let sandbox_id = token.sandbox_id().to_string();
    let request = ReportProviderReadinessRequest { sandbox_id, observation: Some(observation) };
    let call = async { Ok(api.report_provider_readiness(authorized(&token, request)?).await?.into_inner()) };
    Ok(in_time(call).await?.report_interval.and_then(|interval| Duration::try_from(interval).ok()))
}

/// Has the token exchanged for a fresh one.
pub(crate) async fn refresh(mut api: Api, token: Token) -> Result<Token, Status> {
    let call = async {
        let request = authorized(&token, RefreshSandboxTokenRequest::default())?;
        Ok(api.refresh_sandbox_token(request).await?.into_inner().token)
    };
    let refreshed = in_time(call).await?;
    let refreshed = Token::read(refreshed.into()).map_err(|error| Status::internal(error.to_string()))?;
    if refreshed.sandbox_id() == token.sandbox_id() {
        Ok(refreshed)
    } else {
        Err(Status::internal("the refreshed token is for another sandbox"))
    }
}

pub(crate) async fn in_time<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    tokio::time::timeout(CALL, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")))
}

/// The message with the token.
pub(crate) fn authorized<T>(token: &Token, message: T) -> Result<Request<T>, Status> {
    let mut request = Request::new(message);
    let header = format!("Bearer {}", token.secret().expose_secret());
    let mut value: tonic::metadata::MetadataValue<_> =
        header.parse().map_err(|_| Status::unauthenticated("the token cannot be sent"))?;
    value.set_sensitive(true);
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}
