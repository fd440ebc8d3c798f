//! Many supervised sandboxes, of each of which only the newest is kept.

use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt as _, stream};
use roadstead_e2e::Mint;
use roadstead_e2e::api::{request_id, scope};
use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_proto::api::v1::{CreateSandboxRequest, SandboxSpec};
use roadstead_supervisor::{
    Backoff, Behaviour, Observation, Observer, Settings, Supervisor, TokenSource, default_policy,
};
use roadstead_testkit::stack::Role;
use tokio::sync::watch;

use crate::world::World;

/// Calls on their way at a time.
const AT_A_TIME: usize = 6;
/// Bytes of one endpoint of a policy.
const ENDPOINT: usize = 4000;
const HOUR: Duration = Duration::from_secs(3600);

/// What a supervisor has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Sessions that were accepted, and since when it has the configuration of the last one.
    pub(crate) sessions: u32,
    pub(crate) served: Option<Instant>,
    /// Updates in all.
    pub(crate) frames: u32,
    /// The newest policy of the whole deployment, and when it came.
    pub(crate) global: (u32, Option<Instant>),
    /// The newest revision of the sandbox's own settings, and when it came.
    pub(crate) settings: (u64, Option<Instant>),
}

impl Seen {
    fn add(&mut self, observation: &Observation) {
        match observation {
            Observation::Accepted { .. } => (self.sessions, self.served) = (self.sessions + 1, None),
            Observation::Received(frame) => {
                self.frames += 1;
                self.served.get_or_insert(frame.at);
                let Some(config) = &frame.config else { return };
                if config.global_policy_version != self.global.0 {
                    self.global = (config.global_policy_version, Some(frame.at));
                }
                if config.settings_revision != self.settings.0 {
                    self.settings = (config.settings_revision, Some(frame.at));
                }
            }
            _ => {}
        }
    }
}

/// A supervised sandbox.
pub(crate) struct Reader {
    pub(crate) name: String,
    supervisor: Supervisor,
    pub(crate) seen: watch::Receiver<Seen>,
}

impl Reader {
    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.supervisor.behave(behaviour);
    }

    pub(crate) fn newest(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until it has seen what is wanted.
    pub(crate) async fn until(&self, within: Duration, what: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(within, seen.wait_for(|seen| wanted(seen))).await;
        let why = || self.supervisor.status().borrow().last_end.clone();
        let Ok(Ok(seen)) = waited else {
            panic!("not within {within:?}: {} {what}: {:?}, {:?}", self.name, self.newest(), why())
        };
        seen.clone()
    }
}

/// Creates sandboxes with this policy; their names and ids.
pub(crate) async fn sandboxes(
    world: &World,
    prefix: &str,
    count: u32,
    policy: &SandboxPolicy,
) -> Vec<(String, String)> {
    let create = async |number: u32| {
        let name = format!("{prefix}-{number}");
        let request = CreateSandboxRequest {
            workspace_scope: scope(&world.workspace),
            name: name.clone(),
            spec: Some(SandboxSpec { policy: Some(policy.clone()), ..Default::default() }),
            request_id: request_id(),
            ..Default::default()
        };
        let created = world.api().create_sandbox(request).await.unwrap().into_inner();
        (name, created.sandbox.unwrap().metadata.unwrap().id)
    };
    stream::iter((0..count).map(create)).buffer_unordered(AT_A_TIME).collect().await
}

/// Sandboxes with this policy and their supervisors, all of which have a configuration. Half of the supervisors know the
/// bridges in one order, half in the other.
pub(crate) async fn readers(
    world: &World,
    prefix: &str,
    count: u32,
    policy: &SandboxPolicy,
    within: Duration,
) -> Vec<Reader> {
    let mint = Mint::of(&world.stack);
    let mut bridges: Vec<String> = world
        .stack
        .nodes()
        .iter()
        .filter(|node| node.role() == Role::SupervisorBridge)
        .map(|node| node.url())
        .collect();
    let mut readers = Vec::new();
    for (name, id) in sandboxes(world, prefix, count, policy).await {
        let token = TokenSource::Given(mint.token(&id, SystemTime::now(), HOUR).into());
        let (sender, seen) = watch::channel(Seen::default());
        let observer = Observer::new(move |observation| sender.send_modify(|seen| seen.add(&observation)));
        bridges.rotate_left(1);
        let settings = Settings {
            bridges: bridges.clone(),
            observer: Some(observer),
            // Who waits long between attempts is served late, and that is its own doing.
            backoff: Backoff { longest: Duration::from_millis(500), ..Backoff::default() },
            ..Settings::new("", &world.workspace, &name, token)
        };
        readers.push(Reader { name, supervisor: Supervisor::start(settings).unwrap(), seen });
    }
    for reader in &readers {
        reader.until(within, "has a configuration", |seen| seen.served.is_some()).await;
    }
    readers
}

/// A policy of so many bytes.
#[must_use]
pub(crate) fn large(mark: &str, bytes: usize) -> SandboxPolicy {
    let endpoint = |number| NetworkEndpoint {
        host: format!("{mark}-{number}.example.com"),
        port: 443,
        protocol: "rest".to_owned(),
        path: format!("/{}", "x".repeat(ENDPOINT - 50)),
        ..Default::default()
    };
    let endpoints = (0..bytes / ENDPOINT).map(endpoint).collect();
    let rule = NetworkPolicyRule { name: "large".to_owned(), endpoints, ..Default::default() };
    SandboxPolicy { network_policies: [("large".to_owned(), rule)].into(), ..default_policy() }
}

/// The one in the middle.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
