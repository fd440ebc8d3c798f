use std::path::PathBuf;
use std::time::Duration;

use roadstead_proto::api::sandbox::SandboxPolicy;
use uuid::Uuid;

use crate::Behaviour;
use crate::backoff::Backoff;
use crate::observed::Observer;
use crate::policy::default_policy;
use crate::token::TokenSource;

/// What a supervisor needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where bridges listen, such as `http://127.0.0.1:17671`. With several, the next one is tried after each failure. A
    /// bridge may hand its supervisor over to one that is not among them.
    pub bridges: Vec<String>,
    /// Certificate authority of the bridges, as a PEM file; for `https` addresses.
    pub ca: Option<PathBuf>,
    /// Name of the sandbox's workspace.
    pub workspace: String,
    /// Name of the sandbox.
    pub sandbox: String,
    /// The sandbox's token.
    pub token: TokenSource,
    /// Folder in which to put what is in effect. None: nothing is written.
    pub folder: Option<PathBuf>,
    /// Policy to propose where there is none. None: wait for a user to give one.
    pub policy: Option<SandboxPolicy>,
    /// Who this supervisor is; another one of the same sandbox takes over only when this one is gone.
    pub instance_id: Uuid,
    /// Whether to say that configuration may be pushed. If not, or if the bridge does not push, it is asked for.
    pub takes_pushes: bool,
    /// Pause between two questions for the configuration, give or take a fifth. After failures it grows, up to ten times.
    pub poll_interval: Duration,
    /// Whether to report, every few seconds, which providers are in effect.
    pub reports_readiness: bool,
    /// How updates are treated at first.
    pub behaviour: Behaviour,
    /// Pauses between attempts to connect.
    pub backoff: Backoff,
    /// Is told everything that happens.
    pub observer: Option<Observer>,
}

impl Settings {
    /// The usual settings: a new instance that takes pushes, proposes the default policy, applies everything, writes
    /// nothing and reports no readiness.
    #[must_use]
    pub fn new(
        bridge: impl Into<String>,
        workspace: impl Into<String>,
        sandbox: impl Into<String>,
        token: TokenSource,
    ) -> Self {
        Self {
            bridges: vec![bridge.into()],
            ca: None,
            workspace: workspace.into(),
            sandbox: sandbox.into(),
            token,
            folder: None,
            policy: Some(default_policy()),
            instance_id: Uuid::new_v4(),
            takes_pushes: true,
            poll_interval: Duration::from_secs(5),
            reports_readiness: false,
            behaviour: Behaviour::default(),
            backoff: Backoff::default(),
            observer: None,
        }
    }
}
