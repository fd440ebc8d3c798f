//! The five roles as subcommands.

use clap::Subcommand;
use roadstead_proto::role::Role;
use roadstead_service_kit::shutdown::Shutdown;

/// Runs one role in this process.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// The clients' door: gRPC, authentication, watch streams
    Edge(roadstead_edge::Config),
    /// Every write: ledger, authorization, rules, the transaction, the relay
    Admission(roadstead_admission::Config),
    /// The effective configuration and provider environment of each sandbox
    ConfigSnapshot(roadstead_config_snapshot::Config),
    /// The read side: get and list, and the projection that streams follow
    Watch(roadstead_watch::Config),
    /// The supervisors' door: sessions, push, answers, reports
    SupervisorBridge(roadstead_supervisor_bridge::Config),
}

impl Command {
    pub(crate) async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        match self {
            Self::Edge(config) => Ok(roadstead_edge::run(config, shutdown).await?),
            Self::Admission(config) => {
                roadstead_admission::run(config, roadstead_admission::Served::default(), shutdown).await
            }
            Self::ConfigSnapshot(config) => roadstead_config_snapshot::run(config, shutdown).await,
            Self::Watch(config) => roadstead_watch::run(config, shutdown).await,
            Self::SupervisorBridge(config) => roadstead_supervisor_bridge::run(config, shutdown).await,
        }
    }

    pub(crate) const fn role(&self) -> Role {
        match self {
            Self::Edge(_) => Role::Edge,
            Self::Admission(_) => Role::Admission,
            Self::ConfigSnapshot(_) => Role::ConfigSnapshot,
            Self::Watch(_) => Role::Watch,
            Self::SupervisorBridge(_) => Role::SupervisorBridge,
        }
    }
}
