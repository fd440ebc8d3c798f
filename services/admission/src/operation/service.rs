//! What the operations on services share.

use roadstead_proto::api::v1::{ServiceAuthorizationMode, ServiceEndpointResponse};
use roadstead_store::{row, view};

use crate::refusal::Refusal;
use crate::validate::{Checked, name};

/// Services that one sandbox may have.
pub(super) const PER_SANDBOX: usize = 128;

/// What a service is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) port: u16,
    pub(super) mode: ServiceAuthorizationMode,
}

impl Target {
    /// Reads it from a request.
    ///
    /// # Errors
    /// `Invalid` with the field, whose name begins with `prefix`.
    pub(super) fn read(prefix: &str, port: u32, mode: i32) -> Result<Self, Refusal> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| Refusal::invalid(format!("{prefix}target_port"), "must be from 1 to 65535"))?;
        let mode = match ServiceAuthorizationMode::try_from(mode) {
            Ok(ServiceAuthorizationMode::Unspecified) => ServiceAuthorizationMode::Strip,
            Ok(mode) => mode,
            Err(_) => return Err(Refusal::invalid(format!("{prefix}authorization_mode"), "unknown value")),
        };
        Ok(Self { port, mode })
    }
}

/// A service's name, which may be empty.
///
/// # Errors
/// `Invalid` with the field.
pub(super) fn check_name(field: &str, name: &str) -> Checked {
    if name.is_empty() { Ok(()) } else { name::label(field, name) }
}

/// The first version of a service.
pub(super) fn new(
    id: uuid::Uuid,
    sandbox: &row::Sandbox,
    name: &str,
    target: Target,
    now: std::time::SystemTime,
) -> row::ServiceEndpoint {
    row::ServiceEndpoint {
        id,
        sandbox_id: sandbox.id,
        workspace_name: sandbox.workspace_name.clone(),
        sandbox_name: sandbox.name.clone(),
        service: name.to_owned(),
        target_port: target.port,
        authorization_mode: target.mode,
        resource_version: 1,
        created_at: now,
    }
}

pub(super) fn response(row: &row::ServiceEndpoint, url: String) -> ServiceEndpointResponse {
    ServiceEndpointResponse { endpoint: Some(view::service(row)), url }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_and_no_mode_means_strip() {
        let read = |port, mode| Target::read("", port, mode);
        let target = |port, mode| Ok(Target { port, mode });
        assert_eq!(read(1, 0), target(1, ServiceAuthorizationMode::Strip));
        assert_eq!(read(65_535, 2), target(65_535, ServiceAuthorizationMode::BearerPassthrough));
        for (port, mode, at) in [(0, 0, "target_port"), (65_536, 0, "target_port"), (1, 3, "authorization_mode")] {
            assert!(matches!(read(port, mode), Err(Refusal::Invalid { field, .. }) if field == at));
        }
    }

    #[test]
    fn a_name_is_a_label_or_none() {
        assert!(check_name("name", "").is_ok() && check_name("name", "web").is_ok());
        assert!(check_name("name", "a--b").is_err() && check_name("name", "A").is_err());
    }
}
