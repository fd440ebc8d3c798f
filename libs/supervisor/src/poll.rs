//! Asking for the configuration, and telling what became of it: what a supervisor does by single calls where nothing is
//! pushed.

use roadstead_proto::api::sandbox::{GetSandboxConfigRequest, SandboxConfigSnapshot};
use roadstead_proto::api::v1::{
    ConfigUpdate, ConfigUpdateResult, ConfigurationAdmissionState, GetSandboxProviderEnvironmentRequest,
    PolicyLoadResult, PolicyStatus, ReportPolicyStatusRequest, ReportSandboxConfigurationRequest,
    SandboxConfigurationAdmission,
};
use tonic::{Code, Status};

use crate::applied::digest;
use crate::calls::{Api, authorized, in_time};
use crate::observed::EnvironmentSeen;
use crate::polled;
use crate::token::Token;

/// How often one question is asked again because something changed in between.
const ATTEMPTS: usize = 4;

/// Who asks, and what is known already and need not be fetched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Name of the sandbox.
    pub(crate) sandbox: String,
    pub(crate) instance_id: String,
    /// Digest of the configuration with which everything was done.
    pub(crate) config: Option<[u8; 32]>,
    /// The environment in effect.
    pub(crate) environment: Option<EnvironmentSeen>,
}

/// What a question came to.
#[derive(Debug)]
pub(crate) struct Polled {
    /// Whether this instance had to register: what it said of its configuration before does not count any more.
    pub(crate) registered: bool,
    /// What is not known yet. The environment is there if it is another one than is in effect.
    pub(crate) news: Option<News>,
}

/// A configuration that is not known, as if it had been pushed.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) digest: [u8; 32],
    pub(crate) update: ConfigUpdate,
}

/// What is to be told of a configuration, with all that identifies it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    policy: Option<PolicyLoadResult>,
    admission: SandboxConfigurationAdmission,
}

impl Word {
    /// The verdict in an answer. None: it has none.
    pub(crate) fn of(answer: ConfigUpdateResult) -> Option<Self> {
        Some(Self { policy: answer.policy_load, admission: answer.admission? })
    }
}

/// Asks for the configuration, registering this instance first where another one has, and for the environment if that is
/// another one. Both halves belong together.
///
/// # Errors
///
/// What a call was answered; `ABORTED` if the configuration changes faster than it can be read.
pub(crate) async fn fetch(mut api: Api, token: Token, known: Known) -> Result<Polled, Status> {
    let mut registered = false;
    let mut late = Status::aborted("the configuration changes faster than it can be read");
    for _ in 0..ATTEMPTS {
        let config = config(&mut api, &token, &known.sandbox).await?;
        if config.configuration_instance_id != known.instance_id {
            match tell(&mut api, &token, registration(&config, &known.instance_id)).await {
                Ok(()) => registered = true,
                // Another instance was faster; or there is another reason, and it stays.
                Err(status) if status.code() == Code::FailedPrecondition => late = status,
                Err(status) => return Err(status),
            }
            continue;
        }
        let digest = digest(&config);
        if known.config == Some(digest) {
            return Ok(Polled { registered, news: None });
        }
        let mut update = ConfigUpdate { sandbox_config: Some(config), ..ConfigUpdate::default() };
        if !belongs(known.environment.as_ref(), &update) {
            let environment = environment(&mut api, &token).await?;
            let agrees = belongs(Some(&EnvironmentSeen::of(&environment)), &update);
            if !agrees {
                continue;
            }
            update.provider_environment = Some(environment);
        }
        return Ok(Polled { registered, news: Some(News { digest, update }) });
    }
    Err(late)
}

fn belongs(environment: Option<&EnvironmentSeen>, update: &ConfigUpdate) -> bool {
    environment.zip(update.sandbox_config.as_ref()).is_some_and(|(environment, config)| environment.belongs_to(config))
}

async fn config(api: &mut Api, token: &Token, sandbox: &str) -> Result<SandboxConfigSnapshot, Status> {
    // Which workspace it is in says the token.
    let request = GetSandboxConfigRequest { name: sandbox.to_owned(), workspace_scope: None };
    let request = authorized(token, request)?;
    let response = in_time(async { Ok(api.get_sandbox_config(request).await?.into_inner()) }).await?;
    Ok(polled::config(response))
}

async fn environment(
    api: &mut Api,
    token: &Token,
) -> Result<roadstead_proto::api::v1::ProviderEnvironmentSnapshot, Status> {
    let request = GetSandboxProviderEnvironmentRequest {
        sandbox_id: token.sandbox_id().to_string(),
        supports_static_credential_bindings: true,
        supports_stable_placeholder_environment_keys: true,
    };
    let request = authorized(token, request)?;
    let response = in_time(async { Ok(api.get_sandbox_provider_environment(request).await?.into_inner()) }).await?;
    Ok(polled::environment(response))
}

/// This instance will run with the configuration, in place of the one that has registered.
fn registration(config: &SandboxConfigSnapshot, instance_id: &str) -> ReportSandboxConfigurationRequest {
    let admission = SandboxConfigurationAdmission {
        instance_id: instance_id.to_owned(),
        state: ConfigurationAdmissionState::Pending.into(),
        policy_version: config.version,
        policy_hash: config.policy_hash.clone(),
        config_revision: config.config_revision,
        provider_env_revision: config.provider_env_revision,
        error: String::new(),
    };
    ReportSandboxConfigurationRequest {
        sandbox_id: String::new(),
        admission: Some(admission),
        expected_instance_id: config.configuration_instance_id.clone(),
    }
}

async fn tell(api: &mut Api, token: &Token, report: ReportSandboxConfigurationRequest) -> Result<(), Status> {
    let report = ReportSandboxConfigurationRequest { sandbox_id: token.sandbox_id().to_string(), ..report };
    let request = authorized(token, report)?;
    in_time(async { api.report_sandbox_configuration(request).await.map(drop) }).await
}

/// Tells what became of a configuration.
///
/// # Errors
///
/// What was answered. A repeat is harmless.
pub(crate) async fn report(mut api: Api, token: Token, word: Word) -> Result<(), Status> {
    if let Some(policy) = word.policy {
        let status = if policy.loaded { PolicyStatus::Loaded } else { PolicyStatus::Failed };
        let report = ReportPolicyStatusRequest {
            sandbox_id: token.sandbox_id().to_string(),
            version: policy.version,
            status: status.into(),
            load_error: policy.error,
        };
        let request = authorized(&token, report)?;
        match in_time(async { api.report_policy_status(request).await }).await {
            // The history has moved on.
            Err(status) if status.code() != Code::NotFound => return Err(status),
            Ok(_) | Err(_) => {}
        }
    }
    let report = ReportSandboxConfigurationRequest { admission: Some(word.admission), ..Default::default() };
    tell(&mut api, &token, report).await
}
