//! `roadstead supervisor`: a small supervisor of one sandbox.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args, ValueEnum};
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_supervisor::{Log, Observation, Observer, Settings, Supervisor, TokenSource};

/// Stand in for a sandbox's supervisor: connect, apply to a folder what is pushed or asked for, answer, stay connected
#[derive(Args, Debug)]
pub(crate) struct Command {
    /// Name of the sandbox
    #[arg(long)]
    sandbox: String,
    /// Workspace of the sandbox
    #[arg(short, long, env = "ROADSTEAD_WORKSPACE", default_value = "default")]
    workspace: String,
    /// Address of a bridge; may be repeated
    #[arg(long = "bridge", env = "ROADSTEAD_BRIDGE", value_name = "URL", default_value = "http://127.0.0.1:17671")]
    bridges: Vec<String>,
    /// File with the sandbox's token, as `roadstead sandbox token NAME --to FILE` writes it; refreshed tokens go there
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Folder for the configuration and the environment that are in effect; secrets are readable by you alone
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Certificate authority of the bridges (PEM), for https
    #[arg(long, env = "ROADSTEAD_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Whether it says that configuration may be pushed to it. If not, and of a bridge that does not push, it asks
    #[arg(long, env = "ROADSTEAD_SUPERVISOR_CONFIG_DELIVERY_MODE", value_enum, default_value_t = Delivery::Push)]
    config_delivery_mode: Delivery,
    /// Seconds between two questions, about
    #[arg(long, env = "ROADSTEAD_POLL_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    poll_seconds: u64,
}

/// How configuration comes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// As the bridge has it.
    Push,
    /// By questions only.
    Poll,
}

impl Command {
    pub(crate) async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let Self { sandbox, workspace, bridges, token_file, dir, ca, config_delivery_mode, poll_seconds } = self;
        // The log comes with the supervisor, which does not observe anything before it has connected.
        let log = Arc::new(OnceLock::<Log>::new());
        let logged = Arc::clone(&log);
        let observer = Observer::new(move |observation| {
            if let (Some(log), Some((level, line))) = (logged.get(), notable(&observation))
                && !log.say(level, "roadstead.supervisor", line)
            {
                tracing::debug!("a line has no room in the log");
            }
        });
        let settings = Settings {
            bridges,
            ca,
            folder: Some(dir),
            observer: Some(observer),
            reports_readiness: true,
            takes_pushes: config_delivery_mode == Delivery::Push,
            poll_interval: Duration::from_secs(poll_seconds),
            ..Settings::new("", workspace, sandbox, TokenSource::File(token_file))
        };
        let supervisor = Supervisor::start(settings)?;
        log.get_or_init(|| supervisor.log().clone());
        shutdown.requested().await;
        supervisor.stop().await;
        Ok(())
    }
}

/// What of a supervisor's doings its sandbox's log shows.
fn notable(observation: &Observation) -> Option<(&'static str, String)> {
    use roadstead_proto::api::v1::ConfigApplyOutcome as Outcome;
    match observation {
        Observation::Accepted { session_id, .. } => Some(("INFO", format!("connected, session {session_id}"))),
        Observation::Answered { update_id, outcome, .. } => {
            let level = if matches!(outcome, Outcome::Applied | Outcome::IgnoredDuplicate | Outcome::IgnoredStale) {
                "INFO"
            } else {
                "WARN"
            };
            let what = if update_id.is_empty() { "polled" } else { update_id };
            Some((level, format!("update {what}: {}", outcome.as_str_name())))
        }
        Observation::PolicySynced { version, .. } => {
            Some(("INFO", format!("default policy accepted as version {version}")))
        }
        Observation::TokenRefreshed { .. } => Some(("DEBUG", "token refreshed".to_owned())),
        Observation::Ended { reason, .. } => Some(("WARN", format!("not connected: {reason}"))),
        Observation::Received(_) => None,
    }
}
