//! The same configuration for supervisors and users that ask for it: other messages, equal values.

use roadstead_proto::api::sandbox::{GetSandboxConfigResponse, SandboxConfigSnapshot};
use roadstead_proto::api::v1::{
    GetSandboxProviderEnvironmentRequest, GetSandboxProviderEnvironmentResponse, ProviderEnvironmentSnapshot,
    ProviderEnvironmentValue, ProviderEnvironmentValueClassification as Classification, ProviderReadinessReason,
};

/// The configuration half as an answer.
#[must_use]
pub fn config(config: SandboxConfigSnapshot) -> GetSandboxConfigResponse {
    let SandboxConfigSnapshot {
        policy,
        version,
        policy_hash,
        settings,
        config_revision,
        policy_source,
        global_policy_version,
        provider_env_revision,
        supervisor_middleware_services,
        workspace,
        policy_validation_failure_mode,
        extension_authentication_enabled,
        configuration_admitted,
        provider_attachment_epoch,
        configuration_instance_id,
        configuration_error,
        settings_revision,
    } = config;
    GetSandboxConfigResponse {
        policy,
        version,
        policy_hash,
        settings,
        config_revision,
        policy_source,
        global_policy_version,
        provider_env_revision,
        supervisor_middleware_services,
        workspace,
        policy_validation_failure_mode,
        extension_authentication_enabled,
        configuration_admitted,
        provider_attachment_epoch,
        configuration_instance_id,
        configuration_error,
        settings_revision,
    }
}

/// What a polling supervisor can deal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    pub static_credential_bindings: bool,
    pub stable_placeholders: bool,
}

impl From<&GetSandboxProviderEnvironmentRequest> for Support {
    fn from(request: &GetSandboxProviderEnvironmentRequest) -> Self {
        Self {
            static_credential_bindings: request.supports_static_credential_bindings,
            stable_placeholders: request.supports_stable_placeholder_environment_keys,
        }
    }
}

/// The environment half as an answer. A credential whose binding the supervisor would not keep is withheld.
#[must_use]
pub fn environment(
    environment: ProviderEnvironmentSnapshot,
    support: Support,
) -> GetSandboxProviderEnvironmentResponse {
    let ProviderEnvironmentSnapshot {
        provider_env_revision,
        values,
        dynamic_credentials,
        provider_attachment_epoch,
        policy_hash,
        readiness_reason,
        files,
    } = environment;
    let mut response = GetSandboxProviderEnvironmentResponse {
        provider_env_revision,
        dynamic_credentials,
        provider_attachment_epoch,
        policy_hash,
        readiness_reason,
        files,
        supports_stable_placeholder_environment_keys: support.stable_placeholders,
        ..Default::default()
    };
    for value in values {
        add(&mut response, value, support);
    }
    response
}

fn add(response: &mut GetSandboxProviderEnvironmentResponse, value: ProviderEnvironmentValue, support: Support) {
    let open = value.classification() == Classification::NonSecret;
    if !open && !support.static_credential_bindings {
        response.set_readiness_reason(ProviderReadinessReason::UnsupportedSupervisor);
        return;
    }
    let name = value.name;
    if open {
        response.non_secret_environment_keys.push(name.clone());
    }
    if value.stable_placeholder && support.stable_placeholders {
        response.stable_placeholder_environment_keys.push(name.clone());
    }
    if let Some(binding) = value.static_credential_binding {
        response.static_credential_bindings.insert(name.clone(), binding);
    }
    if let Some(time) = value.expiration_time {
        response.credential_expiration_times.insert(name.clone(), time);
    }
    response.environment.insert(name, value.value);
}
