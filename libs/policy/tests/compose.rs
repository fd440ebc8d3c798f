//! What a sandbox runs with, composed from everything that bears on it.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use roadstead_policy::compose::{
    Composed, Credential, Deployment, FailureMode, Inputs, PolicyRevision, Provider, Settings, compose,
};
use roadstead_policy::{canonical, poll};
use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{
    NetworkCredentialBinding, NetworkEndpoint, NetworkPolicyRule, PolicySource, SandboxPolicy, SettingScope,
    SettingValue, SupervisorMiddlewareService,
};
use roadstead_proto::api::v1::{
    GetSandboxProviderEnvironmentRequest, ProviderEnvironmentValueClassification as Classification,
    ProviderReadinessReason,
};
use secrecy::SecretString;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn composed(inputs: &Inputs) -> Composed {
    let composed = compose(inputs.clone(), &Deployment::default(), NOW);
    agrees(&composed);
    composed
}

/// The halves belong together, and the tokens are never "none".
fn agrees(composed: &Composed) {
    let (config, environment) = (&composed.config, &composed.environment);
    assert_eq!(config.provider_attachment_epoch, environment.provider_attachment_epoch);
    assert_eq!(config.provider_env_revision, environment.provider_env_revision);
    assert_eq!(config.policy_hash, environment.policy_hash);
    assert_ne!(config.provider_env_revision, 0);
    assert_ne!(config.config_revision, 0);
}

fn policy(endpoints: Vec<NetworkEndpoint>) -> SandboxPolicy {
    let rule = NetworkPolicyRule { endpoints, ..Default::default() };
    SandboxPolicy { version: 1, network_policies: [("web".to_owned(), rule)].into(), ..Default::default() }
}

fn bound(provider: &str, host: &str) -> NetworkEndpoint {
    NetworkEndpoint {
        host: host.into(),
        port: 443,
        protocol: "rest".into(),
        credential_binding: Some(NetworkCredentialBinding { provider: provider.into() }),
        ..Default::default()
    }
}

fn provider(name: &str, key: &str) -> Provider {
    Provider {
        id: format!("id-of-{name}"),
        name: name.into(),
        kind: "generic".into(),
        resource_version: 1,
        config: [(format!("{key}_URL"), "https://example.com".to_owned()), ("base-url".to_owned(), "x".to_owned())]
            .into(),
        credentials: vec![Credential { key: key.into(), value: SecretString::from("s3cret"), expires_at: None }],
    }
}

fn revision(version: u32, policy: SandboxPolicy) -> Option<PolicyRevision> {
    Some(PolicyRevision { version, policy })
}

fn inputs() -> Inputs {
    Inputs {
        workspace: "harbour".into(),
        attachment_epoch: "epoch".into(),
        sandbox_policy: revision(3, policy(vec![bound("git", "api.example.com")])),
        providers: vec![provider("git", "GIT_TOKEN")],
        ..Default::default()
    }
}

fn names(composed: &Composed) -> Vec<&str> {
    composed.environment.values.iter().map(|value| value.name.as_str()).collect()
}

#[test]
fn the_global_policy_replaces_the_sandboxs_own() {
    let mut inputs = inputs();
    inputs.global_policy = revision(7, policy(vec![]));
    let composed = composed(&inputs);
    assert_eq!(composed.config.policy_source(), PolicySource::Global);
    assert_eq!((composed.config.version, composed.config.global_policy_version), (3, 7));
    assert_eq!(composed.config.policy, Some(policy(vec![])));
    assert!(composed.config.configuration_admitted);
    assert_eq!(names(&composed), ["GIT_TOKEN_URL"]);
    assert_eq!(composed.environment.readiness_reason(), ProviderReadinessReason::CredentialsWithheld);

    inputs.sandbox_policy = None;
    assert_eq!(compose(inputs, &Deployment::default(), NOW).config.version, 1);
}

#[test]
fn the_newest_revision_comes_before_the_policy_of_creation() {
    let mut inputs = inputs();
    inputs.spec_policy = Some(policy(vec![]));
    assert_eq!(composed(&inputs).config.version, 3);
    inputs.sandbox_policy = None;
    let composed = composed(&inputs);
    assert_eq!((composed.config.version, composed.config.policy_source()), (1, PolicySource::Sandbox));
    assert_eq!(composed.config.policy_hash, canonical::hash(&policy(vec![])));
}

#[test]
fn without_a_policy_the_supervisor_is_to_bring_one() {
    let composed = composed(&Inputs { sandbox_policy: None, ..inputs() });
    let config = &composed.config;
    assert_eq!((config.version, config.policy_hash.as_str(), config.policy.is_some()), (0, "", false));
    assert!(!config.configuration_admitted);
    assert_eq!(config.configuration_error, "");
    assert_eq!(names(&composed), ["GIT_TOKEN_URL"]);
}

#[test]
fn a_bound_credential_is_delivered_with_the_places_it_may_go() {
    let mut inputs = inputs();
    let ports = NetworkEndpoint { ports: vec![8443, 443], path: "/v1/**".into(), ..bound("git", "www.example.com") };
    inputs.sandbox_policy = revision(3, policy(vec![ports, bound("git", "api.example.com")]));
    let composed = composed(&inputs);
    assert_eq!(names(&composed), ["GIT_TOKEN", "GIT_TOKEN_URL"]);
    let value = &composed.environment.values[0];
    assert_eq!((value.value.as_str(), value.classification()), ("s3cret", Classification::StaticCredential));
    let binding = value.static_credential_binding.as_ref().unwrap();
    assert_eq!(binding.credential_identity, "id-of-git:GIT_TOKEN");
    let places = binding.endpoints.iter().map(|at| (at.host.as_str(), at.port, at.path.as_str())).collect::<Vec<_>>();
    assert_eq!(
        places,
        [("api.example.com", 443, "/**"), ("www.example.com", 443, "/v1/**"), ("www.example.com", 8443, "/v1/**")]
    );
    let open = &composed.environment.values[1];
    assert_eq!((open.classification(), open.static_credential_binding.is_none()), (Classification::NonSecret, true));
    assert_eq!(composed.environment.readiness_reason(), ProviderReadinessReason::Unspecified);
    let marks = composed.config.policy.unwrap();
    assert!(marks.network_policies["web"].endpoints.iter().all(|endpoint| endpoint.provider_credentialed));
}

#[test]
fn a_credential_that_nothing_binds_is_withheld() {
    let composed = composed(&Inputs { sandbox_policy: revision(1, policy(vec![])), ..inputs() });
    assert!(composed.config.configuration_admitted);
    assert_eq!(names(&composed), ["GIT_TOKEN_URL"]);
    assert_eq!(composed.environment.readiness_reason(), ProviderReadinessReason::CredentialsWithheld);
}

#[test]
fn an_expired_credential_is_left_out_and_changes_the_token() {
    let mut inputs = inputs();
    inputs.providers[0].credentials[0].expires_at = Some(NOW + Duration::from_secs(60));
    let fresh = composed(&inputs);
    assert!(fresh.environment.values[0].expiration_time.is_some());
    let late = compose(inputs, &Deployment::default(), NOW + Duration::from_secs(60));
    assert_eq!(names(&late), ["GIT_TOKEN_URL"]);
    assert_eq!(late.environment.readiness_reason(), ProviderReadinessReason::CredentialExpired);
    assert_ne!(fresh.config.provider_env_revision, late.config.provider_env_revision);
    assert_eq!(fresh.config.config_revision, late.config.config_revision);
}

#[test]
fn a_withheld_credential_is_not_replaced_by_an_open_value_of_its_name() {
    let mut inputs = inputs();
    inputs.providers[0].config.insert("GIT_TOKEN".into(), "open".into());
    inputs.sandbox_policy = revision(1, policy(vec![]));
    assert_eq!(names(&composed(&inputs)), ["GIT_TOKEN_URL"]);
}

#[test]
fn what_does_not_compose_says_so_and_hands_out_nothing() {
    let collision = Inputs { providers: vec![provider("git", "A"), provider("hub", "A")], ..inputs() };
    let unattached = Inputs { providers: vec![], ..inputs() };
    let uninspected = NetworkEndpoint { protocol: String::new(), ..bound("git", "api.example.com") };
    let uninspected = Inputs { sandbox_policy: revision(3, policy(vec![uninspected])), ..inputs() };
    let bound_globally =
        Inputs { global_policy: revision(1, policy(vec![bound("git", "api.example.com")])), ..inputs() };
    let crowd = (0..33).map(|at| provider(&format!("p{at}"), &format!("K{at}"))).collect();
    let too_many = Inputs { providers: crowd, ..inputs() };
    for (inputs, reason) in [
        (collision, "providers.environment[A]: two providers would set the same environment key"),
        (
            unattached,
            "policy.network_policies[web].endpoints[0].credential_binding.provider: \
             binds a provider that is not attached to the sandbox",
        ),
        (
            uninspected,
            "policy.network_policies[web].endpoints[0].credential_binding: a credentialed endpoint uses L4-only; \
             configure L7 inspection or explicitly set allow_uninspected_credentials: true",
        ),
        (
            bound_globally,
            "policy.network_policies[web].endpoints[0].credential_binding: a global policy may not bind credentials",
        ),
        (too_many, "providers: more than 32 providers"),
    ] {
        let composed = composed(&inputs);
        assert_eq!(composed.config.configuration_error, reason);
        assert!(!composed.config.configuration_admitted);
        assert!(composed.config.policy.is_some());
        assert!(composed.environment.values.is_empty());
    }
}

#[test]
fn a_configuration_over_the_limit_says_so_and_is_small() {
    let mut inputs = inputs();
    inputs.providers[0].credentials[0].value = SecretString::from("x".repeat(3 << 20));
    let composed = composed(&inputs);
    assert_eq!(composed.config.configuration_error, "configuration: larger than 3145728 bytes");
    assert!(composed.environment.values.is_empty());

    let mut inputs = self::inputs();
    inputs.sandbox_policy =
        revision(1, policy(vec![NetworkEndpoint { path: "x".repeat(4 << 20), ..bound("git", "a.b") }]));
    let composed = self::composed(&inputs);
    assert_eq!(composed.config.configuration_error, "policy: larger than 262144 bytes");
    assert_eq!(composed.config.policy, None);
}

/// One change of the inputs, and whether it shows in the configuration token and in the environment token.
type Change = (&'static str, fn(&mut Inputs, &mut Deployment), bool, bool);

const CHANGES: [Change; 15] = [
    ("policy", |inputs, _| inputs.sandbox_policy = revision(3, policy(vec![])), true, true),
    ("policy version", |inputs, _| reissue(inputs), true, false),
    ("global policy", |inputs, _| inputs.global_policy = revision(1, policy(vec![])), true, true),
    ("setting", |inputs, _| set(&mut inputs.sandbox_settings, true), true, false),
    ("global setting", |inputs, _| set(&mut inputs.global_settings, true), true, false),
    ("failure mode", |_, deployment| deployment.failure_mode = FailureMode::RetainLastValid, true, false),
    ("extension authentication", |_, deployment| deployment.extension_authentication = true, true, false),
    ("middleware", |_, deployment| deployment.middleware.push(SupervisorMiddlewareService::default()), true, false),
    ("provider version", |inputs, _| inputs.providers[0].resource_version = 2, false, true),
    ("provider id", |inputs, _| inputs.providers[0].id = "other".into(), false, true),
    ("provider kind", |inputs, _| inputs.providers[0].kind = "other".into(), false, true),
    ("provider added", |inputs, _| inputs.providers.push(provider("hub", "HUB")), false, true),
    ("expiry", |inputs, _| expire(inputs), false, true),
    ("attachment epoch", |inputs, _| inputs.attachment_epoch = "other".into(), false, false),
    ("registration", |inputs, _| inputs.configuration_instance_id = "other".into(), false, false),
];

fn set(settings: &mut Settings, on: bool) {
    settings.revision += 1;
    settings.values.insert("ocsf_json_enabled".into(), SettingValue { value: Some(Value::BoolValue(on)) });
}

fn reissue(inputs: &mut Inputs) {
    inputs.sandbox_policy = inputs.sandbox_policy.take().map(|revision| PolicyRevision { version: 9, ..revision });
}

fn expire(inputs: &mut Inputs) {
    inputs.providers[0].credentials[0].expires_at = Some(NOW + Duration::from_secs(9));
}

#[test]
fn each_token_shows_its_own_changes_and_no_other() {
    let before = composed(&inputs()).config;
    for (name, change, in_config, in_environment) in CHANGES {
        let (mut inputs, mut deployment) = (inputs(), Deployment::default());
        change(&mut inputs, &mut deployment);
        let after = compose(inputs, &deployment, NOW);
        agrees(&after);
        assert_eq!(before.config_revision != after.config.config_revision, in_config, "{name}");
        assert_eq!(before.provider_env_revision != after.config.provider_env_revision, in_environment, "{name}");
        let shown = compose(self::inputs(), &Deployment::default(), NOW) != after;
        assert!(shown, "{name}: a change must be visible somewhere");
    }
}

#[test]
fn the_scope_of_a_setting_shows_in_the_token() {
    let (mut own, mut global) = (inputs(), inputs());
    set(&mut own.sandbox_settings, true);
    set(&mut global.global_settings, true);
    let (own, global) = (composed(&own).config, composed(&global).config);
    assert_eq!(own.settings["ocsf_json_enabled"].scope(), SettingScope::Sandbox);
    assert_eq!(global.settings["ocsf_json_enabled"].scope(), SettingScope::Global);
    assert_ne!(own.config_revision, global.config_revision);
    assert_eq!((own.settings_revision, global.settings_revision), (1, 0));
}

proptest! {
    #[test]
    fn equal_inputs_compose_equally_in_any_order(order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle()) {
        let all = (0..6).map(|at| provider(&format!("p{at}"), &format!("K{at}"))).collect::<Vec<_>>();
        let shuffled = order.iter().map(|at| all[*at].clone()).collect();
        let of = |providers| composed(&Inputs { sandbox_policy: revision(1, policy(vec![bound("p1", "a.example.com")])), providers, ..inputs() });
        prop_assert_eq!(of(all), of(shuffled));
    }
}

#[test]
fn nothing_secret_is_printed() {
    let (inputs, composed) = (inputs(), composed(&inputs()));
    assert!(!format!("{inputs:?}{composed:?}").contains("s3cret"));
}

#[test]
fn a_poll_shows_the_same_values() {
    let composed = composed(&inputs());
    let config = poll::config(composed.config.clone());
    assert_eq!(prost::Message::encode_to_vec(&config), prost::Message::encode_to_vec(&composed.config));

    let all = GetSandboxProviderEnvironmentRequest {
        supports_static_credential_bindings: true,
        supports_stable_placeholder_environment_keys: true,
        ..Default::default()
    };
    let answer = poll::environment(composed.environment.clone(), (&all).into());
    assert_eq!(answer.environment.keys().collect::<Vec<_>>(), ["GIT_TOKEN", "GIT_TOKEN_URL"]);
    assert_eq!(answer.non_secret_environment_keys, ["GIT_TOKEN_URL"]);
    assert_eq!(answer.static_credential_bindings.keys().collect::<Vec<_>>(), ["GIT_TOKEN"]);
    assert_eq!(answer.provider_env_revision, composed.environment.provider_env_revision);
    assert!(answer.supports_stable_placeholder_environment_keys);
    assert_eq!(answer.readiness_reason(), ProviderReadinessReason::Unspecified);
}

#[test]
fn a_supervisor_that_keeps_no_bindings_gets_no_credentials() {
    let request = GetSandboxProviderEnvironmentRequest::default();
    let answer = poll::environment(composed(&inputs()).environment, (&request).into());
    assert_eq!(answer.environment.keys().collect::<Vec<_>>(), ["GIT_TOKEN_URL"]);
    assert!(answer.static_credential_bindings.is_empty());
    assert_eq!(answer.readiness_reason(), ProviderReadinessReason::UnsupportedSupervisor);
}
