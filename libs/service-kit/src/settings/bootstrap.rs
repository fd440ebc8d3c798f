use std::path::PathBuf;

use clap::Args;

use crate::bootstrap_token::{BootstrapVerifier, Trust, TrustError};

/// Whose tokens say which sandbox a workload is, before it has the sandbox's own. The same for bridge and admission.
#[derive(Args, Clone, Debug, Default)]
pub struct BootstrapSettings {
    /// Public keys (JSON Web Key Set) of the issuer of service-account tokens by which workloads of a platform have the
    /// token of their sandbox issued. Without it nobody has. Read at the start
    #[arg(long, env = "ROADSTEAD_BOOTSTRAP_KEYS", value_name = "FILE", requires = "bootstrap_issuer")]
    pub bootstrap_keys: Option<PathBuf>,
    /// That issuer, as its tokens name it, such as https://kubernetes.default.svc
    #[arg(long, env = "ROADSTEAD_BOOTSTRAP_ISSUER", value_name = "URL")]
    pub bootstrap_issuer: Option<String>,
    /// Audience that those tokens must have
    #[arg(long, env = "ROADSTEAD_BOOTSTRAP_AUDIENCE", default_value = "roadstead")]
    pub bootstrap_audience: String,
    /// Subject of those tokens; {sandbox_id} stands for the id of the sandbox that the workload is
    #[arg(
        long,
        env = "ROADSTEAD_BOOTSTRAP_SUBJECT",
        default_value = "system:serviceaccount:roadstead-sandboxes:sandbox-{sandbox_id}"
    )]
    pub bootstrap_subject: String,
}

impl BootstrapSettings {
    /// Verifies such tokens; None if nobody issues them.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub fn verifier(&self) -> Result<Option<BootstrapVerifier>, TrustError> {
        let Self { bootstrap_keys, bootstrap_issuer, bootstrap_audience, bootstrap_subject } = self;
        let Some((keys, issuer)) = bootstrap_keys.clone().zip(bootstrap_issuer.clone()) else { return Ok(None) };
        let (audience, subject) = (bootstrap_audience.clone(), bootstrap_subject.clone());
        BootstrapVerifier::load(&Trust { issuer, audience, subject, keys }).map(Some)
    }
}
