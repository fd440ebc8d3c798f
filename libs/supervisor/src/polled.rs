//! Configuration that was asked for, as if it had been pushed: other messages, equal values. Pure.

use roadstead_proto::api::sandbox::{GetSandboxConfigResponse, SandboxConfigSnapshot};
use roadstead_proto::api::v1::{
    GetSandboxProviderEnvironmentResponse, ProviderEnvironmentSnapshot, ProviderEnvironmentValue,
    ProviderEnvironmentValueClassification as Classification,
};

/// The configuration half of an answer.
pub(crate) fn config(response: GetSandboxConfigResponse) -> SandboxConfigSnapshot {
    let GetSandboxConfigResponse {
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
    } = response;
    SandboxConfigSnapshot {
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

/// The environment half of an answer. What the answer does not call open is secret.
pub(crate) fn environment(response: GetSandboxProviderEnvironmentResponse) -> ProviderEnvironmentSnapshot {
    let GetSandboxProviderEnvironmentResponse {
        environment,
        provider_env_revision,
        dynamic_credentials,
        mut static_credential_bindings,
        non_secret_environment_keys,
        provider_attachment_epoch,
        policy_hash,
        readiness_reason,
        files,
        stable_placeholder_environment_keys,
        supports_stable_placeholder_environment_keys: _,
        mut credential_expiration_times,
    } = response;
    let values = environment.into_iter().map(|(name, value)| {
        let open = non_secret_environment_keys.contains(&name);
        let classification = if open { Classification::NonSecret } else { Classification::StaticCredential };
        ProviderEnvironmentValue {
            value,
            expiration_time: credential_expiration_times.remove(&name),
            classification: classification.into(),
            static_credential_binding: static_credential_bindings.remove(&name),
            stable_placeholder: stable_placeholder_environment_keys.contains(&name),
            name,
        }
    });
    ProviderEnvironmentSnapshot {
        provider_env_revision,
        // By name, as they are pushed: the map is ordered.
        values: values.collect(),
        dynamic_credentials,
        provider_attachment_epoch,
        policy_hash,
        readiness_reason,
        files,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use roadstead_policy::compose::{Composed, Credential, Deployment, Inputs, Provider, compose};
    use roadstead_policy::poll::{self, Support};
    use roadstead_proto::api::sandbox::{
        NetworkAccessPreset, NetworkCredentialBinding, NetworkEndpoint, NetworkPolicyRule, SandboxPolicy,
    };

    use super::*;

    /// With open values, and with secret ones that expire and that do not.
    fn composed() -> Composed {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let credential =
            |key: &str, expires_at| Credential { key: key.into(), value: "hush".to_owned().into(), expires_at };
        let provider = Provider {
            id: "00000000-0000-4000-8000-000000000001".into(),
            name: "p".into(),
            kind: "generic".into(),
            resource_version: 3,
            config: [("OPEN".into(), "x".into())].into(),
            credentials: vec![credential("ZULU", None), credential("ALPHA", Some(now + Duration::from_secs(60)))],
        };
        let endpoint = NetworkEndpoint {
            host: "api.example".into(),
            port: 443,
            protocol: "rest".into(),
            access: NetworkAccessPreset::ReadOnly.into(),
            credential_binding: Some(NetworkCredentialBinding { provider: "p".into() }),
            ..Default::default()
        };
        let rule = NetworkPolicyRule { name: "web".into(), endpoints: vec![endpoint], binaries: Vec::new() };
        let policy = SandboxPolicy { network_policies: [("web".into(), rule)].into(), ..crate::default_policy() };
        let inputs = Inputs {
            attachment_epoch: "00000000-0000-4000-8000-000000000002".into(),
            spec_policy: Some(policy),
            providers: vec![provider],
            ..Inputs::default()
        };
        compose(inputs, &Deployment::default(), now)
    }

    #[test]
    fn what_is_asked_for_equals_what_is_pushed() {
        let composed = composed();
        let support = Support { static_credential_bindings: true, stable_placeholders: true };
        assert!(composed.config.configuration_admitted, "{}", composed.config.configuration_error);
        let names = composed.environment.values.iter().map(|value| value.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names, ["ALPHA", "OPEN", "ZULU"]);
        assert_eq!(config(poll::config(composed.config.clone())), composed.config);
        assert_eq!(environment(poll::environment(composed.environment.clone(), support)), composed.environment);
    }
}
