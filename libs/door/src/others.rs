//! The services beside the API that every door offers: `grpc.health.v1` and reflection.

use roadstead_proto::api::FILE_DESCRIPTOR_SET;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;
use tower::util::BoxCloneSyncService;

use crate::front::OtherServices;

/// The API's name in `grpc.health.v1`.
pub const API: &str = "openshell.v1.OpenShell";

/// Builds them. The reporter tells whether this process, and the API, serve.
///
/// # Errors
///
/// The compiled-in descriptors cannot be served, which a test would have told.
pub fn services() -> Result<(HealthReporter, OtherServices), tonic_reflection::server::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(API)
        .with_service_name("grpc.health.v1.Health")
        .build_v1()?;
    let alpha = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(API)
        .with_service_name("grpc.health.v1.Health")
        .build_v1alpha()?;
    let routes = Routes::new(health).add_service(reflection).add_service(alpha).prepare();
    Ok((reporter, BoxCloneSyncService::new(routes)))
}
