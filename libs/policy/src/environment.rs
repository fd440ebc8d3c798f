//! What attached providers put into a sandbox's environment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{
    ProviderEnvironmentValue, ProviderEnvironmentValueClassification as Classification, ProviderReadinessReason,
    StaticCredentialBinding, StaticCredentialEndpointBinding,
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::refusal::{Path, Reason, Refusal};
use crate::{budget, canonical};

/// Keys of this prefix are the supervisor's own.
const RESERVED_PREFIX: &str = "OPENSHELL_";

/// An attached provider with what it brings.
#[derive(Clone, Debug)]
pub struct Provider {
    /// The provider's UUID: part of what a supervisor knows a credential by, so that a namesake is another one.
    pub id: String,
    pub name: String,
    pub kind: String,
    pub resource_version: u64,
    pub config: BTreeMap<String, String>,
    pub credentials: Vec<Credential>,
}

/// One credential in plain text.
#[derive(Clone, Debug)]
pub struct Credential {
    pub key: String,
    pub value: SecretString,
    pub expires_at: Option<SystemTime>,
}

/// The values that a sandbox gets, and why some are missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    /// Ordered by name, each name once.
    pub(crate) values: Vec<ProviderEnvironmentValue>,
    pub(crate) readiness: ProviderReadinessReason,
}

/// Whether a key of a provider becomes an environment variable: `[A-Za-z_][A-Za-z0-9_]*`, not the supervisor's own.
/// Other keys are the provider's private business and are not delivered.
#[must_use]
pub fn is_environment_key(key: &str) -> bool {
    let mut bytes = key.bytes();
    let starts = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !key.starts_with(RESERVED_PREFIX)
}

/// Checks that no two providers set one environment variable. Takes for each provider all its keys, of credentials
/// and of configuration; a key that one provider uses for both is its credential's.
///
/// # Errors
/// `EnvironmentKeyTaken` with the key in the field.
pub fn check_unique<'a, Keys>(providers: impl IntoIterator<Item = Keys>) -> Result<(), Refusal>
where
    Keys: IntoIterator<Item = &'a str>,
{
    let mut taken = BTreeSet::new();
    for keys in providers {
        let keys = keys.into_iter().filter(|key| is_environment_key(key)).collect::<BTreeSet<_>>();
        if let Some(key) = keys.iter().find(|key| taken.contains(*key)) {
            return Err(Path::Root("providers.environment").key(key).refuse(Reason::EnvironmentKeyTaken));
        }
        taken.extend(keys);
    }
    Ok(())
}

impl Provider {
    /// All keys, of credentials and of configuration.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.credentials.iter().map(|credential| credential.key.as_str()).chain(self.config.keys().map(String::as_str))
    }
}

/// Where the credentials of each provider may be sent, by the policy alone.
pub(crate) fn bindings(policy: &SandboxPolicy) -> BTreeMap<&str, Vec<StaticCredentialEndpointBinding>> {
    let mut bindings: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for endpoint in canonical::endpoints(policy) {
        if let Some(binding) = &endpoint.credential_binding {
            bindings.entry(&binding.provider).or_default().extend(budget::bound_endpoints(endpoint));
        }
    }
    for endpoints in bindings.values_mut() {
        endpoints.sort_by(|a, b| (&a.host, a.port, &a.path).cmp(&(&b.host, b.port, &b.path)));
        endpoints.dedup();
    }
    bindings
}

/// The values of all providers under `policy`: configuration in the open; a credential if it has not expired at `now`
/// and some endpoint binds its provider, else it is withheld.
pub(crate) fn values(providers: &[Provider], policy: Option<&SandboxPolicy>, now: SystemTime) -> Values {
    let bindings = policy.map(bindings).unwrap_or_default();
    let mut values = BTreeMap::new();
    let mut readiness = ProviderReadinessReason::Unspecified;
    for provider in providers {
        for (key, value) in &provider.config {
            if is_environment_key(key) {
                values.insert(key.as_str(), open_value(key, value));
            }
        }
        let endpoints = bindings.get(provider.name.as_str());
        for credential in provider.credentials.iter().filter(|credential| is_environment_key(&credential.key)) {
            // A shadowed configuration value must not stand in for a credential that is held back.
            values.remove(credential.key.as_str());
            let expired = credential.expires_at.is_some_and(|at| at <= now);
            match endpoints {
                None => readiness = ProviderReadinessReason::CredentialsWithheld,
                Some(_) if expired => readiness = readiness_after_expiry(readiness),
                Some(endpoints) => {
                    values.insert(&credential.key, bound_value(provider, credential, endpoints));
                }
            }
        }
    }
    Values { values: values.into_values().collect(), readiness }
}

fn readiness_after_expiry(before: ProviderReadinessReason) -> ProviderReadinessReason {
    match before {
        ProviderReadinessReason::Unspecified => ProviderReadinessReason::CredentialExpired,
        other => other,
    }
}

/// Nothing but the reason why credentials, if there are any, are held back.
pub(crate) fn withheld(providers: &[Provider]) -> Values {
    let any = providers.iter().any(|provider| !provider.credentials.is_empty());
    let readiness = if any { ProviderReadinessReason::CredentialsWithheld } else { Default::default() };
    Values { values: Vec::new(), readiness }
}

fn open_value(key: &str, value: &str) -> ProviderEnvironmentValue {
    ProviderEnvironmentValue {
        name: key.to_owned(),
        value: value.to_owned(),
        classification: Classification::NonSecret.into(),
        ..Default::default()
    }
}

fn bound_value(
    provider: &Provider,
    credential: &Credential,
    endpoints: &[StaticCredentialEndpointBinding],
) -> ProviderEnvironmentValue {
    ProviderEnvironmentValue {
        name: credential.key.clone(),
        value: credential.value.expose_secret().to_owned(),
        expiration_time: credential.expires_at.map(Into::into),
        classification: Classification::StaticCredential.into(),
        static_credential_binding: Some(StaticCredentialBinding {
            endpoints: endpoints.to_vec(),
            credential_identity: format!("{}:{}", provider.id, credential.key),
            workload_credential_handle: String::new(),
        }),
        stable_placeholder: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_keys_are_shaped_like_variables() {
        for key in ["GITHUB_TOKEN", "_x", "a1"] {
            assert!(is_environment_key(key), "{key}");
        }
        for key in ["", "1a", "base-url", "a.b", "OPENSHELL_TOKEN", "ü"] {
            assert!(!is_environment_key(key), "{key}");
        }
    }

    #[test]
    fn two_providers_may_not_set_one_variable_but_one_may_use_a_key_twice() {
        assert_eq!(check_unique([vec!["A", "A", "base-url"], vec!["B", "base-url"]]), Ok(()));
        let refusal = check_unique([vec!["A"], vec!["B", "A"]]).unwrap_err();
        assert_eq!(refusal.to_string(), "providers.environment[A]: two providers would set the same environment key");
    }
}
