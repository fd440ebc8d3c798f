//! The most that every part allows, composed, fits what the broker carries.

use std::time::{Duration, SystemTime};

use prost::Message as _;
use roadstead_policy::compose::{Credential, Deployment, Inputs, PolicyRevision, Provider, Settings, compose, size};
use roadstead_policy::{budget, settings};
use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{
    NetworkCredentialBinding, NetworkEndpoint, NetworkPolicyRule, SandboxPolicy, SettingValue,
    SupervisorMiddlewareService,
};
use roadstead_proto::api::v1::ProviderEnvironmentValueClassification as Classification;
use secrecy::SecretString;

const NAME_BYTES: usize = 253;
const CREDENTIALS: usize = 32;
const ENTRIES: usize = 64;

/// A provider with as many and as long keys as allowed, filled up to its budget.
fn provider(at: usize, entries: usize, key_bytes: usize) -> Provider {
    let key = |kind: char, index: usize| format!("{kind}_{at}_{index}_{}", "K".repeat(key_bytes));
    let config = (0..entries).map(|index| (key('C', index), String::new())).collect();
    let credentials = (0..CREDENTIALS).map(|index| Credential {
        key: key('S', index),
        value: SecretString::from(""),
        expires_at: Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::MAX)),
    });
    let mut provider = Provider {
        id: "00000000-0000-4000-8000-000000000000".into(),
        name: name(at),
        kind: "k".repeat(64),
        resource_version: u64::MAX,
        config,
        credentials: credentials.collect(),
    };
    let left = budget::PROVIDER_BYTES - bytes(&provider);
    for credential in &mut provider.credentials {
        credential.value = SecretString::from("x".repeat(left / CREDENTIALS));
    }
    assert!(bytes(&provider) <= budget::PROVIDER_BYTES && bytes(&provider) > budget::PROVIDER_BYTES - CREDENTIALS);
    provider
}

fn bytes(provider: &Provider) -> usize {
    use secrecy::ExposeSecret as _;
    let credentials = provider.credentials.iter().map(|one| (one.key.as_str(), one.value.expose_secret().len()));
    let config = provider.config.iter().map(|(key, value)| (key.as_str(), value.len()));
    assert_eq!(budget::check_provider(credentials.clone(), config.clone()), Ok(()));
    budget::provider_bytes(credentials, config)
}

fn name(at: usize) -> String {
    format!("{at:03}{}", "n".repeat(NAME_BYTES - 3))
}

/// Every provider bound as widely as the policy's own budget for it allows, the rest of the policy filled up.
fn policy(endpoint_for: impl Fn(usize) -> NetworkEndpoint) -> SandboxPolicy {
    let of = |endpoints| {
        let rule = NetworkPolicyRule { endpoints, ..Default::default() };
        SandboxPolicy { network_policies: [("web".to_owned(), rule)].into(), ..Default::default() }
    };
    let attached = (0..budget::PROVIDERS).map(name).collect();
    let accepts = |policy: &SandboxPolicy| {
        roadstead_policy::check::policy(policy, roadstead_policy::check::Scope::Sandbox { attached: &attached }).is_ok()
    };
    let mut endpoints = Vec::new();
    while accepts(&of([endpoints.clone(), vec![endpoint_for(endpoints.len())]].concat())) {
        endpoints.push(endpoint_for(endpoints.len()));
    }
    assert!(!endpoints.is_empty());
    let mut policy = of(endpoints);
    let filler =
        NetworkPolicyRule { name: "x".repeat(budget::POLICY_BYTES - policy.encoded_len() - 64), ..Default::default() };
    policy.network_policies.insert("filler".into(), filler);
    assert!(accepts(&policy) && policy.encoded_len() > budget::POLICY_BYTES - 64);
    policy
}

fn settings() -> Settings {
    let text = SettingValue { value: Some(Value::StringValue("x".repeat(1024))) };
    Settings { revision: u64::MAX, values: settings::keys().map(|key| (key.to_owned(), text.clone())).collect() }
}

fn endpoint(host: String, provider: usize, port: u32) -> NetworkEndpoint {
    NetworkEndpoint {
        host,
        port,
        protocol: "rest".into(),
        credential_binding: Some(NetworkCredentialBinding { provider: name(provider) }),
        ..Default::default()
    }
}

fn check_the_most(policy: SandboxPolicy, entries: usize, key_bytes: usize) -> usize {
    let inputs = Inputs {
        workspace: "w".repeat(19),
        attachment_epoch: "e".repeat(36),
        configuration_instance_id: "i".repeat(256),
        sandbox_policy: Some(PolicyRevision { version: u32::MAX, policy }),
        sandbox_settings: settings(),
        providers: (0..budget::PROVIDERS).map(|at| provider(at, entries, key_bytes)).collect(),
        ..Default::default()
    };
    let service = SupervisorMiddlewareService { name: "x".repeat(budget::MIDDLEWARE_BYTES), ..Default::default() };
    let deployment = Deployment { middleware: vec![service], ..Default::default() };
    let composed = compose(inputs, &deployment, SystemTime::UNIX_EPOCH);
    assert_eq!(composed.config.configuration_error, "");
    assert!(composed.config.configuration_admitted);
    let credentials = composed.environment.values.iter();
    assert!(
        credentials.filter(|value| value.classification() == Classification::StaticCredential).count() >= CREDENTIALS
    );
    // Profiles are not composed yet; their share is kept free.
    let most = size(&composed) + budget::PROVIDERS * budget::PROFILE_BYTES;
    assert!(most <= budget::SNAPSHOT_BYTES, "{most} bytes");
    most
}

#[test]
fn thirty_two_full_providers_a_full_policy_and_full_settings_fit_a_snapshot() {
    // All endpoints bind one provider, whose every credential carries them all.
    let wide = policy(|at| endpoint(format!("h{at}.example.com"), 0, 443));
    let tight = policy(|at| endpoint(format!("{at}.a.b"), 0, 1));
    // Each provider is bound once, so that every credential of all of them is delivered.
    let spread = policy(|at| endpoint(format!("h{at}.example.com"), at % budget::PROVIDERS, 443));
    for policy in [wide, tight, spread] {
        for (entries, key_bytes) in [(0, 1), (ENTRIES, 1), (ENTRIES, 200)] {
            check_the_most(policy.clone(), entries, key_bytes);
        }
    }
}

#[test]
fn the_budgets_add_up() {
    let providers = budget::PROVIDERS * (budget::PROVIDER_BYTES + budget::PROFILE_BYTES);
    let bindings = 32 * budget::BOUND_ENDPOINT_BYTES;
    let rest = budget::POLICY_BYTES + budget::SETTINGS_BYTES + budget::MIDDLEWARE_BYTES + 3 * budget::ENVELOPE_BYTES;
    assert!(providers + bindings + rest <= budget::SNAPSHOT_BYTES);
}
