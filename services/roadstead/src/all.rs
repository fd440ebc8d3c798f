//! `roadstead all`: every role on this machine, with a nats-server and a Postgres of their own in one data folder.

pub(crate) mod layout;
mod role_process;
pub(crate) mod run_file;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser as _};
use futures_util::future::{select_all, try_join_all};
use roadstead_bus::permissions::{self, Auth};
use roadstead_embedded::postgres::SUPERUSER;
use roadstead_embedded::{Binaries, Embedded, EmbeddedSettings, Kept, RestartPolicy};
use roadstead_proto::role::Role;
use roadstead_service_kit::keyring::{Keyring, OwnerKeys};
use roadstead_service_kit::settings::LogSettings;
use roadstead_service_kit::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::layout::{Counts, Replica};
use self::role_process::RoleProcess;
use self::run_file::{RunFile, RunningReplica};
use crate::client::output::line;
use crate::operate::keys::{Layout, broker_users};
use crate::operate::{health, migrate};
use crate::role;

/// How long all of it may take to become ready.
const READY_TIME: Duration = Duration::from_secs(60);
/// Longer than any role's own deadline for draining.
const ROLE_STOP_TIME: Duration = Duration::from_secs(35);
/// How long the servers may take to stop after the roles have.
const SERVER_STOP_TIME: Duration = Duration::from_secs(10);

/// Run everything on this machine, data in one folder. The first start makes what is missing, a later one recovers it
#[derive(Args, Debug)]
pub(crate) struct Command {
    /// Folder for keys, broker and database
    #[arg(long, env = "ROADSTEAD_DATA", default_value = ".roadstead/data", value_name = "DIR")]
    data: PathBuf,
    /// Run each role as a process of its own instead of all in one
    #[arg(long)]
    separate: bool,
    /// Replicas of a role, one unless said otherwise; needs --separate
    #[arg(long, value_name = "ROLE=N,...", default_value = "", hide_default_value = true, requires = "separate")]
    replicas: Counts,
    /// Listen on free ports instead of the usual ones; run.json in the data folder names them
    #[arg(long)]
    free_ports: bool,
    /// Keep nothing safe against power loss; for tests and trials
    #[arg(long, hide = true)]
    not_durable: bool,
    /// Further flags for every edge, such as --edge-flag=--tokens=FILE
    #[arg(long = "edge-flag", value_name = "FLAG", allow_hyphen_values = true)]
    edge_flags: Vec<String>,
}

/// What every role is told.
struct Deployment {
    keys: Layout,
    nats_url: String,
    database_url: String,
    log: Vec<String>,
    edge_flags: Vec<String>,
}

impl Command {
    /// Runs until shutdown is requested. `log` is passed on to processes that are started.
    pub(crate) async fn run(self, log: &LogSettings, shutdown: Shutdown) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.data).with_context(|| format!("cannot make {}", self.data.display()))?;
        let data = std::fs::canonicalize(&self.data)?;
        RunFile::remove(&data);
        let keys = Layout::new(&data.join("keys"));
        let keyring = keys.keyring()?;
        keys.export(&keyring)?;

        let mut servers = self.start_servers(&data, &keyring).await?;
        let database_url = format!("postgres://127.0.0.1:{}/{}", servers.postgres_port(), migrate::DATABASE);
        let owner = OwnerKeys::load(&keys.owner_file())?;
        migrate::embedded(servers.postgres_port(), SUPERUSER, servers.superuser_password(), &owner).await?;

        let deployment = Deployment {
            keys,
            nats_url: servers.nats_url().to_owned(),
            database_url,
            log: log.arguments(),
            edge_flags: self.edge_flags.clone(),
        };
        let replicas = self.replicas.replicas(self.free_ports, roadstead_embedded::port::free)?;
        let roles = async {
            if self.separate {
                deployment.run_separately(&replicas, &data, &shutdown).await
            } else {
                deployment.run_together(&replicas, &data, &shutdown).await
            }
        };
        let result = tokio::select! {
            result = roles => result,
            name = servers.given_up() => {
                shutdown.request();
                Err(anyhow::anyhow!("{name} keeps dying; its log is in {}", data.display()))
            }
        };
        RunFile::remove(&data);
        servers.stop(SERVER_STOP_TIME).await?;
        result
    }

    async fn start_servers(&self, data: &Path, keyring: &Keyring) -> anyhow::Result<Embedded> {
        let settings = EmbeddedSettings {
            binaries: Binaries::from_env()?,
            folder: data.to_owned(),
            nats_port: (!self.free_ports).then_some(4222),
            nats_config: permissions::limits_and_users(&Auth::Nkeys(broker_users(keyring))),
            postgres_port: (!self.free_ports).then_some(5433),
            postgres_settings: Vec::new(),
            durable: !self.not_durable,
        };
        Ok(Embedded::start(&settings).await?)
    }
}

impl Deployment {
    /// The command line of one replica: the same whether it runs in this process or in its own.
    fn arguments(&self, replica: &Replica) -> Vec<String> {
        let mut arguments = vec![replica.role.name().to_owned()];
        let mut flag = |name: &str, value: &str| arguments.push(format!("--{name}={value}"));
        flag("nats-url", &self.nats_url);
        flag("keys", &self.keys.role_file(replica.role).to_string_lossy());
        flag("admin-listen", &replica.admin.to_string());
        if let Some(listen) = replica.listen {
            flag("listen", &listen.to_string());
            if replica.role == Role::SupervisorBridge {
                flag("advertise", &format!("http://{listen}"));
            }
        }
        if OwnerKeys::ROLES.contains(&replica.role) {
            flag("database-url", &self.database_url);
        }
        if replica.role == Role::Edge {
            arguments.extend(self.edge_flags.iter().cloned());
        }
        arguments
    }

    async fn run_together(&self, replicas: &[Replica], data: &Path, shutdown: &Shutdown) -> anyhow::Result<()> {
        let mut roles = JoinSet::new();
        for replica in replicas {
            let program = std::iter::once("roadstead".to_owned());
            let command = crate::cli::Role::try_parse_from(program.chain(self.arguments(replica)))?;
            roles.spawn(run_role(command.role, shutdown.clone()));
        }
        let all_ready = async {
            for replica in replicas {
                health::wait(replica.admin).await;
            }
        };
        tokio::select! {
            ready = in_time(all_ready, data) => {
                ready?;
                self.announce(replicas, data, |_| Some(std::process::id()))?;
            }
            // A role that ends before all are ready says why below.
            () = shutdown.requested() => {}
        }
        let mut result = Ok(());
        while let Some(ended) = roles.join_next().await {
            // One that ends by itself takes the others along.
            shutdown.request();
            result = result.and(ended?);
        }
        result
    }

    async fn run_separately(&self, replicas: &[Replica], data: &Path, shutdown: &Shutdown) -> anyhow::Result<()> {
        let logs = data.join("logs");
        std::fs::create_dir_all(&logs)?;
        let starting = replicas.iter().map(|replica| {
            let log = logs.join(format!("{}-{}.log", replica.role, replica.number));
            let arguments = self.log.iter().cloned().chain(self.arguments(replica)).collect();
            let process = RoleProcess { replica: replica.clone(), arguments, log };
            Kept::start(process, RestartPolicy::default())
        });
        let kept = tokio::select! {
            kept = in_time(try_join_all(starting), data) => kept??,
            () = shutdown.requested() => return Ok(()),
        };
        let mut pids: Vec<_> = kept.iter().map(Kept::pids).collect();
        let mut result = self.announce(replicas, data, |at| kept[at].pid());
        while result.is_ok() {
            tokio::select! {
                () = shutdown.requested() => break,
                changed = one_changed(&mut pids) => {
                    result = changed.and_then(|()| self.write(replicas, data, |at| kept[at].pid()));
                }
            }
        }
        // Doors first, so that what they have taken in is still answered.
        for kept in kept.into_iter().rev() {
            kept.stop(ROLE_STOP_TIME).await?;
        }
        result
    }

    /// Says where everything is, when all is ready.
    fn announce(&self, replicas: &[Replica], data: &Path, pid: impl Fn(usize) -> Option<u32>) -> anyhow::Result<()> {
        self.write(replicas, data, pid)?;
        for replica in replicas {
            if let Some(listen) = replica.listen {
                line(&format!("{} {} listens on http://{listen}", replica.role, replica.number))?;
            }
        }
        line(&format!("ready; data is in {}", data.display()))
    }

    fn write(&self, replicas: &[Replica], data: &Path, pid: impl Fn(usize) -> Option<u32>) -> anyhow::Result<()> {
        let replicas = replicas.iter().enumerate().map(|(at, replica)| RunningReplica {
            role: replica.role.name().to_owned(),
            replica: replica.number,
            pid: pid(at),
            admin: replica.admin,
            listen: replica.listen,
        });
        RunFile {
            pid: std::process::id(),
            nats_url: self.nats_url.clone(),
            database_url: self.database_url.clone(),
            replicas: replicas.collect(),
        }
        .save(data)
    }
}

async fn run_role(command: role::Command, shutdown: Shutdown) -> anyhow::Result<()> {
    let role = command.role();
    let ended = command.run(shutdown.clone()).await.with_context(|| format!("{role} ended"));
    shutdown.request();
    ended
}

async fn in_time<T>(ready: impl Future<Output = T>, data: &Path) -> anyhow::Result<T> {
    tokio::time::timeout(READY_TIME, ready)
        .await
        .with_context(|| format!("not everything became ready in time; see the logs in {}", data.display()))
}

/// Waits until a process died or was started again; an error if one was given up.
async fn one_changed(pids: &mut [watch::Receiver<Option<u32>>]) -> anyhow::Result<()> {
    let (changed, _, _) = select_all(pids.iter_mut().map(|pid| Box::pin(pid.changed()))).await;
    changed.context("a role keeps dying; see the logs")
}
