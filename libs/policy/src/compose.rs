//! Composition: from everything that bears on one sandbox, read at one moment, both halves of what it runs with.
//!
//! What does not compose is not an error: it is a configuration that says so (`configuration_admitted` false and a
//! bounded reason), so that a supervisor can register and a user can repair.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use prost::Message as _;
use roadstead_proto::api::sandbox::{
    PolicySource, SandboxConfigSnapshot, SandboxPolicy, SettingValue, SupervisorMiddlewareService,
};
use roadstead_proto::api::v1::ProviderEnvironmentSnapshot;

use crate::environment::{self, Values};
pub use crate::environment::{Credential, Provider};
use crate::refusal::{Path, Reason, Refusal};
use crate::{budget, canonical, check, revision, settings};

/// All that bears on one sandbox, read in one statement.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Name of the sandbox's workspace.
    pub workspace: String,
    pub attachment_epoch: String,
    /// Instance that registered last.
    pub configuration_instance_id: String,
    /// The policy of the sandbox's creation.
    pub spec_policy: Option<SandboxPolicy>,
    /// Newest revision of the sandbox's policy.
    pub sandbox_policy: Option<PolicyRevision>,
    /// Newest revision of the global policy, if there is a global policy.
    pub global_policy: Option<PolicyRevision>,
    pub sandbox_settings: Settings,
    pub global_settings: Settings,
    /// Attached providers, in any order.
    pub providers: Vec<Provider>,
}

/// One revision of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRevision {
    pub version: u32,
    pub policy: SandboxPolicy,
}

/// The settings of one scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// 0 if never written.
    pub revision: u64,
    pub values: BTreeMap<String, SettingValue>,
}

/// What a supervisor does with a configuration that it cannot take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureMode {
    /// Closes the sandbox's network.
    #[default]
    FailClosed,
    /// Goes on with the last one that it took.
    RetainLastValid,
}

impl FailureMode {
    /// The word on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FailClosed => "fail_closed",
            Self::RetainLastValid => "retain_last_valid",
        }
    }
}

/// What the deployment says for every sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deployment {
    pub failure_mode: FailureMode,
    pub extension_authentication: bool,
    /// At most [`budget::MIDDLEWARE_BYTES`] together.
    pub middleware: Vec<SupervisorMiddlewareService>,
}

/// Both halves. They agree in attachment epoch, environment revision and policy hash.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    pub config: SandboxConfigSnapshot,
    /// Holds secrets in the clear.
    pub environment: ProviderEnvironmentSnapshot,
}

/// Composes both halves as of `now`. Equal inputs give equal halves.
#[must_use]
pub fn compose(mut inputs: Inputs, deployment: &Deployment, now: SystemTime) -> Composed {
    inputs.providers.sort_by(|a, b| a.id.cmp(&b.id));
    let effective = effective_policy(&inputs);
    let verdict = check(&effective, &inputs.providers);
    let values = match &verdict {
        Ok(()) => environment::values(&inputs.providers, effective.policy, now),
        Err(_) => environment::withheld(&inputs.providers),
    };
    let composed = assemble(&inputs, deployment, &effective, verdict.err(), values);
    if size(&composed) <= budget::SNAPSHOT_BYTES {
        return composed;
    }
    let refusal = Refusal::new("configuration", Reason::TooLarge { limit: budget::SNAPSHOT_BYTES });
    assemble(&inputs, deployment, &effective, Some(refusal), environment::withheld(&inputs.providers))
}

/// The size of both halves as one stored value, in bytes.
#[must_use]
pub fn size(composed: &Composed) -> usize {
    composed.config.encoded_len() + composed.environment.encoded_len() + budget::ENVELOPE_BYTES
}

struct Effective<'a> {
    policy: Option<&'a SandboxPolicy>,
    version: u32,
    source: PolicySource,
    global_version: u32,
}

/// The global policy replaces everything; else the sandbox's newest revision; else what it was created with, which
/// is its revision 1; else none, and the supervisor brings one.
fn effective_policy(inputs: &Inputs) -> Effective<'_> {
    let own = match (&inputs.sandbox_policy, &inputs.spec_policy) {
        (Some(revision), _) => Some((&revision.policy, revision.version)),
        (None, Some(policy)) => Some((policy, 1)),
        (None, None) => None,
    };
    match (&inputs.global_policy, own) {
        (Some(global), own) => Effective {
            policy: Some(&global.policy),
            version: own.map_or(1, |(_, version)| version),
            source: PolicySource::Global,
            global_version: global.version,
        },
        (None, Some((policy, version))) => {
            Effective { policy: Some(policy), version, source: PolicySource::Sandbox, global_version: 0 }
        }
        (None, None) => Effective { policy: None, version: 0, source: PolicySource::Sandbox, global_version: 0 },
    }
}

fn check(effective: &Effective<'_>, providers: &[Provider]) -> Result<(), Refusal> {
    Path::Root("providers").at_most_of("providers", providers.len(), budget::PROVIDERS)?;
    environment::check_unique(providers.iter().map(Provider::keys))?;
    let Some(policy) = effective.policy else { return Ok(()) };
    let attached = providers.iter().map(|provider| provider.name.clone()).collect::<BTreeSet<_>>();
    let scope = match effective.source {
        PolicySource::Global => check::Scope::Global,
        PolicySource::Sandbox | PolicySource::Unspecified => check::Scope::Sandbox { attached: &attached },
    };
    check::policy(policy, scope)
}

fn assemble(
    inputs: &Inputs,
    deployment: &Deployment,
    effective: &Effective<'_>,
    refusal: Option<Refusal>,
    values: Values,
) -> Composed {
    let policy_hash = effective.policy.map(canonical::hash).unwrap_or_default();
    let provider_env_revision = revision::of_environment(&inputs.providers, &values, effective.global_version);
    let mut config = SandboxConfigSnapshot {
        policy: effective.policy.filter(|policy| policy.encoded_len() <= budget::POLICY_BYTES).map(composed_policy),
        version: effective.version,
        policy_hash: policy_hash.clone(),
        settings: settings::effective(&inputs.global_settings.values, &inputs.sandbox_settings.values),
        config_revision: 0,
        policy_source: effective.source.into(),
        global_policy_version: effective.global_version,
        provider_env_revision,
        supervisor_middleware_services: deployment.middleware.clone(),
        workspace: inputs.workspace.clone(),
        policy_validation_failure_mode: deployment.failure_mode.name().to_owned(),
        extension_authentication_enabled: deployment.extension_authentication,
        configuration_admitted: refusal.is_none() && effective.policy.is_some(),
        provider_attachment_epoch: inputs.attachment_epoch.clone(),
        configuration_instance_id: inputs.configuration_instance_id.clone(),
        configuration_error: refusal.map(|refusal| refusal.to_string()).unwrap_or_default(),
        settings_revision: inputs.sandbox_settings.revision,
    };
    config.config_revision = revision::of_config(&config);
    let environment = ProviderEnvironmentSnapshot {
        provider_env_revision,
        values: values.values,
        dynamic_credentials: BTreeMap::new(),
        provider_attachment_epoch: inputs.attachment_epoch.clone(),
        policy_hash,
        readiness_reason: values.readiness.into(),
        files: BTreeMap::new(),
    };
    Composed { config, environment }
}

/// The policy with the marks that composition derives in place of any that were stored.
fn composed_policy(policy: &SandboxPolicy) -> SandboxPolicy {
    let mut policy = canonical::authored(policy.clone());
    for endpoint in canonical::endpoints_mut(&mut policy) {
        endpoint.provider_credentialed = endpoint.credential_binding.is_some();
    }
    policy
}
