//! The tokens by which a supervisor sees that something changed. Equal content gives an equal token on every replica;
//! they have no order.

use prost::Message as _;
use roadstead_proto::api::sandbox::SandboxConfigSnapshot;

use crate::digest::Digest;
use crate::environment::{Provider, Values};

/// Token of all that a supervisor can see in the configuration half and that is not a token or a counter itself.
pub(crate) fn of_config(config: &SandboxConfigSnapshot) -> u64 {
    let mut digest = Digest::new("roadstead config revision v1");
    digest.number(config.policy_source as u64);
    digest.number(config.version.into());
    digest.number(config.global_policy_version.into());
    digest.text(&config.policy_hash);
    digest.flag(config.policy.is_some());
    digest.text(&config.policy_validation_failure_mode);
    digest.flag(config.extension_authentication_enabled);
    digest.flag(config.configuration_admitted);
    digest.text(&config.configuration_error);
    digest.number(config.settings.len() as u64);
    for (key, setting) in &config.settings {
        digest.text(key);
        digest.bytes(&setting.encode_to_vec());
    }
    digest.number(config.supervisor_middleware_services.len() as u64);
    for service in &config.supervisor_middleware_services {
        digest.bytes(&service.encode_to_vec());
    }
    digest.token()
}

/// Token of the environment half. Values stay out of it: the provider's version stands for them.
pub(crate) fn of_environment(providers: &[Provider], values: &Values, global_policy_version: u32) -> u64 {
    let mut digest = Digest::new("roadstead environment revision v1");
    digest.number(global_policy_version.into());
    digest.number(values.readiness as u64);
    digest.number(providers.len() as u64);
    for provider in providers {
        digest.text(&provider.id);
        digest.text(&provider.name);
        digest.text(&provider.kind);
        digest.number(provider.resource_version);
    }
    digest.number(values.values.len() as u64);
    for value in &values.values {
        digest.text(&value.name);
        digest.number(value.classification as u64);
        digest.flag(value.stable_placeholder);
        digest.bytes(&value.expiration_time.map(|time| time.encode_to_vec()).unwrap_or_default());
        digest.bytes(&value.static_credential_binding.as_ref().map(|bound| bound.encode_to_vec()).unwrap_or_default());
    }
    digest.token()
}
