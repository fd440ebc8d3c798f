//! What this process answers by itself.

use prost::Message as _;
use roadstead_door::{Call, Reply};
use roadstead_proto::api::v1::{GetCurrentUserResponse, GetGatewayInfoResponse, HealthResponse, ServiceStatus};
use tonic::Status;

use crate::route::Local;

/// The version that is told to clients.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Answers a call.
pub(crate) fn answer(local: Local, call: &Call) -> Result<Reply, Status> {
    let status = ServiceStatus::Healthy.into();
    let message = match local {
        Local::Health => HealthResponse { status, version: VERSION.to_owned() }.encode_to_vec(),
        Local::CurrentUser => {
            let user = call.user()?;
            GetCurrentUserResponse {
                subject: user.subject.clone(),
                display_name: user.display_name.clone(),
                roles: user.roles.clone(),
                scopes: user.scopes.clone(),
                identity_provider: user.provider.clone(),
            }
            .encode_to_vec()
        }
        // No compute driver and no extension yet.
        Local::GatewayInfo => {
            GetGatewayInfoResponse { status, gateway_version: VERSION.to_owned(), ..Default::default() }.encode_to_vec()
        }
    };
    Ok(Reply::new(message))
}
