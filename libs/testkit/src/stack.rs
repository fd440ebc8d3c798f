//! The whole system for one test: every role a process of its own, as its users run it.

mod keys;
mod node;
mod role;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use roadstead_embedded::port;
use tempfile::TempDir;
use tokio::process::Command;

pub use self::{node::Node, role::Role};
use crate::{Broker, Database, Login, Postgres, Proxy, Run, programs, sql::Session};

/// What a test wants to run.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    replicas: Vec<(Role, usize)>,
    /// With the replica that it is for; none: all.
    flags: Vec<(Role, Option<usize>, String)>,
    own_postgres: bool,
    brokers: Option<usize>,
}

impl Plan {
    /// One of each role, on a database of the run's Postgres.
    #[must_use]
    pub fn single() -> Self {
        Self::default()
    }

    /// Two of each role.
    #[must_use]
    pub fn pairs() -> Self {
        Role::ALL.into_iter().fold(Self::default(), |plan, role| plan.replicas(role, 2))
    }

    /// So many of a role; none is allowed.
    #[must_use]
    pub fn replicas(mut self, role: Role, count: usize) -> Self {
        self.replicas.retain(|(other, _)| *other != role);
        self.replicas.push((role, count));
        self
    }

    /// A further flag for every process of a role, such as `--tokens=FILE`. `{listen}` in it stands for the address where
    /// that process serves.
    #[must_use]
    pub fn flag(mut self, role: Role, flag: impl Into<String>) -> Self {
        self.flags.push((role, None, flag.into()));
        self
    }

    /// The same for one process of a role, numbered from 1.
    #[must_use]
    pub fn flag_of(mut self, role: Role, number: usize, flag: impl Into<String>) -> Self {
        self.flags.push((role, Some(number), flag.into()));
        self
    }

    /// On a Postgres of its own, which the test may kill and restart.
    #[must_use]
    pub fn own_postgres(mut self) -> Self {
        self.own_postgres = true;
        self
    }

    /// On a cluster of so many brokers, which keeps as many copies of everything. It starts in some two seconds.
    #[must_use]
    pub fn brokers(mut self, count: usize) -> Self {
        self.brokers = Some(count);
        self.flag(Role::Admission, format!("--stream-replicas={count}"))
    }

    fn count(&self, role: Role) -> usize {
        self.replicas.iter().find(|(other, _)| *other == role).map_or(1, |(_, count)| *count)
    }
}

/// A running system. Between each process and the broker, and each process and Postgres, stands a [`Proxy`] of its
/// own. Dropped, everything is killed; if the test is failing then, the ends of all logs are printed.
#[derive(Debug)]
pub struct Stack {
    // Declared in this order so that clients end before their servers, and all before the folder.
    nodes: Vec<Node>,
    /// At least one.
    brokers: Vec<Broker>,
    store: Store,
    folder: TempDir,
}

/// Where the system's state is.
#[derive(Debug)]
enum Store {
    Shared(Database),
    Own(Box<Postgres>),
}

impl Stack {
    /// Makes keys, database and broker, starts every process and returns when all are ready.
    pub async fn start(plan: Plan) -> Self {
        let folder = tempfile::Builder::new().prefix("roadstead-stack-").tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let keys = folder.path().join("keys");
        let mut brokers = match plan.brokers {
            Some(count) => Broker::prepare_cluster(count, ""),
            None => vec![Broker::prepare("")],
        };
        keys::keys(&["init"], &keys, &brokers).await;
        for broker in &mut brokers {
            broker.resume().await;
        }
        let store = if plan.own_postgres {
            let postgres = Postgres::start().await;
            migrate(postgres.owner(), &keys).await;
            Store::Own(Box::new(postgres))
        } else {
            Store::Shared(Database::from_template("roadstead_stack", |owner| migrate(owner, &keys)).await)
        };
        let mut stack = Self { nodes: Vec::new(), brokers, store, folder };
        for role in Role::ALL {
            for number in 1..=plan.count(role) {
                let meant = |of: Role, which: Option<usize>| of == role && which.is_none_or(|which| which == number);
                let flags = plan.flags.iter().filter(|(of, which, _)| meant(*of, *which));
                let flags = flags.map(|(_, _, flag)| flag.clone()).collect();
                let node = stack.node_of(role, number, flags).await;
                stack.nodes.push(node);
            }
        }
        for node in &mut stack.nodes {
            node.resume();
        }
        for node in &mut stack.nodes {
            node.ready().await;
        }
        stack
    }

    async fn node_of(&self, role: Role, number: usize, flags: Vec<String>) -> Node {
        let address = || SocketAddr::from((Ipv4Addr::LOCALHOST, port::free().unwrap()));
        let (admin, listen) = (address(), role.listens().then(address));
        // Of a cluster each has a broker of its own, and learns of the others from that.
        let broker = Proxy::before_broker(self.brokers[self.nodes.len() % self.brokers.len()].port()).await;
        let mut arguments = vec![
            role.name().to_owned(),
            format!("--keys={}", self.keys_of(role.name()).display()),
            format!("--nats-url={}", broker.nats_url()),
            format!("--admin-listen={admin}"),
        ];
        arguments.extend(listen.map(|listen| format!("--listen={listen}")));
        let mut postgres = None;
        if role.has_database() {
            let login = self.superuser();
            let proxy = Proxy::before((Ipv4Addr::LOCALHOST, login.port).into()).await;
            arguments.push(format!("--database-url=postgres://{}/{}", proxy.address(), login.database));
            postgres = Some(proxy);
        }
        let listens = listen.map(|listen| listen.to_string()).unwrap_or_default();
        arguments.extend(flags.iter().map(|flag| flag.replace("{listen}", &listens)));
        let log = self.folder.path().join(format!("{}-{number}.log", role.name()));
        Node::new(role, number, admin, listen, arguments, log, broker, postgres)
    }

    /// A process, numbered from 1.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn node(&self, role: Role, number: usize) -> &Node {
        self.nodes.iter().find(|node| node.is(role, number)).unwrap_or_else(|| panic!("there is no {role:?} {number}"))
    }

    /// A process, to do something to.
    ///
    /// # Panics
    /// There is none.
    pub fn node_mut(&mut self, role: Role, number: usize) -> &mut Node {
        let found = self.nodes.iter_mut().find(|node| node.is(role, number));
        found.unwrap_or_else(|| panic!("there is no {role:?} {number}"))
    }

    /// All processes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The URL of an edge, numbered from 1.
    #[must_use]
    pub fn edge(&self, number: usize) -> String {
        self.node(Role::Edge, number).url()
    }

    /// The URL of a bridge, numbered from 1.
    #[must_use]
    pub fn bridge(&self, number: usize) -> String {
        self.node(Role::SupervisorBridge, number).url()
    }

    /// The broker, to do something to; of a cluster the first.
    pub fn broker(&mut self) -> &mut Broker {
        &mut self.brokers[0]
    }

    /// All brokers.
    pub fn brokers(&mut self) -> &mut [Broker] {
        &mut self.brokers
    }

    /// The Postgres of [`Plan::own_postgres`], to do something to.
    ///
    /// # Panics
    /// The plan did not ask for one.
    pub fn postgres(&mut self) -> &mut Postgres {
        match &mut self.store {
            Store::Own(postgres) => postgres,
            Store::Shared(_) => panic!("this system shares the run's Postgres; see Plan::own_postgres"),
        }
    }

    /// How the superuser logs in to the system's database.
    #[must_use]
    pub fn superuser(&self) -> Login {
        match &self.store {
            Store::Shared(database) => database.superuser(),
            Store::Own(postgres) => postgres.superuser(),
        }
    }

    /// A side session to the system's database, as superuser.
    pub async fn session(&self) -> Session {
        Session::open(&self.superuser()).await
    }

    /// A folder for the test's own files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The key file of a role (`edge`, …, `operator`, `owner`).
    #[must_use]
    pub fn keys_of(&self, reader: &str) -> PathBuf {
        self.folder.path().join("keys").join(reader).join("keys.json")
    }

    /// Runs `roadstead keys ACTION…` (`stage`, `rotate`, `retire ID`) and restarts the broker with its new
    /// configuration. Processes have the new keys when they are restarted.
    pub async fn change_keys(&mut self, action: &[&str]) {
        keys::keys(action, &self.folder.path().join("keys"), &self.brokers).await;
        for broker in &mut self.brokers {
            broker.restart().await;
        }
    }

    /// The program with these arguments, told by its environment where this system is: one of the operator's commands,
    /// or a supervisor.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(arguments);
        command
            .env("ROADSTEAD_ENDPOINT", self.edge(1))
            .env("ROADSTEAD_NATS_URL", self.brokers.iter().map(Broker::url).collect::<Vec<_>>().join(","))
            .env("ROADSTEAD_OPERATOR_KEYS", self.keys_of("operator"));
        command
    }

    /// Runs [`Stack::command`] to its end and returns what it printed.
    pub async fn run(&self, arguments: &[&str]) -> String {
        run(self.command(arguments)).await
    }

    /// A token for a sandbox's supervisor, in a file.
    pub async fn token(&self, workspace: &str, sandbox: &str) -> PathBuf {
        let file = self.folder.path().join(format!("{workspace}-{sandbox}.token"));
        let path = file.to_str().expect("a temporary folder's path is text");
        self.run(&["sandbox", "--workspace", workspace, "token", sandbox, "--to", path]).await;
        file
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in &self.nodes {
                eprintln!("--- {} {} ({}):\n{}", node.role().name(), node.number(), node.state(), node.log_tail());
            }
        }
    }
}

async fn migrate(owner: Login, keys: &Path) {
    let mut command = program(&["migrate", "--database-url", &owner.url()]);
    command.env("ROADSTEAD_OWNER_KEYS", keys.join("owner/keys.json"));
    run(command).await;
}

/// The program under test, free of what the environment of the test run says to it.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::roadstead());
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(mut command: Command) -> String {
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{:?} ended with {}: {said}{}",
        command.as_std(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// What all roles of the run log in with.
fn role_password() -> &'static str {
    secrecy::ExposeSecret::expose_secret(Run::get().role_password())
}
