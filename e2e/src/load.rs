//! Load: mutations with and without request ids through all edges, until it is told to stop.

use std::time::Duration;

use roadstead_proto::api::v1::{CreateSandboxRequest, SandboxSpec, UpdateConfigRequest};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tonic::Status;

use crate::{
    api::{Client, client, is_replay, request_id, scope},
    effect::{Mutation, Told},
    policy,
};

/// Senders at each edge: half of them give request ids.
const SENDERS: usize = 4;
/// A sender's time from one mutation to the next, if the answer does not take longer.
const PACE: Duration = Duration::from_millis(60);
/// How long a mutation with a request id is repeated while its outcome is not certain.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before it is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Mutations on their way. Dropped, it ends.
#[derive(Debug)]
pub struct Load {
    senders: JoinSet<Vec<Mutation>>,
    stop: watch::Sender<bool>,
    done: watch::Receiver<usize>,
}

impl Load {
    /// Starts creating sandboxes in `workspace` and changing the policies of `targets` in it, through all `edges`.
    #[must_use]
    pub fn start(edges: &[String], workspace: &str, targets: &[String]) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (counter, done) = watch::channel(0);
        let mut senders = JoinSet::new();
        for number in 0..SENDERS * edges.len() {
            let first = number % edges.len();
            // Its own edge first, then the others.
            let order = edges.iter().cycle().skip(first).take(edges.len());
            let sender = Sender {
                number,
                edge: first,
                clients: order.map(|edge| client(edge)).collect(),
                has_ids: (number / edges.len()).is_multiple_of(2),
                workspace: workspace.to_owned(),
                targets: targets.to_vec(),
            };
            senders.spawn(sender.run(stopping.clone(), counter.clone()));
        }
        Self { senders, stop, done }
    }

    /// Waits until so many more mutations have succeeded.
    ///
    /// # Panics
    /// Not in time.
    pub async fn progress(&self, more: usize) {
        let goal = *self.done.borrow() + more;
        let mut done = self.done.clone();
        let waited = tokio::time::timeout(PATIENCE, done.wait_for(|done| *done >= goal)).await;
        assert!(
            waited.is_ok(),
            "{more} mutations did not succeed within {PATIENCE:?}: {} of {goal}",
            *self.done.borrow()
        );
    }

    /// Sends no more, waits for what is on its way and returns what was told of each mutation.
    pub async fn stop(mut self) -> Vec<Mutation> {
        self.stop.send_replace(true);
        let mut mutations = Vec::new();
        while let Some(sent) = self.senders.join_next().await {
            mutations.extend(sent.unwrap());
        }
        mutations
    }
}

/// Every mutation has succeeded.
///
/// # Panics
/// One has not.
pub fn assert_none_failed(mutations: &[Mutation]) {
    assert_failures_are(mutations, |_| false);
}

/// Every mutation has succeeded, but for those without a request id that met an outage of what `may_fail` allows.
///
/// # Panics
/// Another one has not.
pub fn assert_failures_are(mutations: &[Mutation], may_fail: impl Fn(&Mutation) -> bool) {
    let is_excused = |one: &Mutation| !one.has_id && one.told.is_outage() && may_fail(one);
    let failed: Vec<_> = mutations.iter().filter(|one| !one.told.is_done() && !is_excused(one)).collect();
    assert!(failed.is_empty(), "{} of {} failed: {:?}", failed.len(), mutations.len(), &failed[..failed.len().min(5)]);
}

/// One sender: one mutation after the other.
struct Sender {
    number: usize,
    edge: usize,
    clients: Vec<Client>,
    has_ids: bool,
    workspace: String,
    targets: Vec<String>,
}

impl Sender {
    async fn run(self, stopping: watch::Receiver<bool>, done: watch::Sender<usize>) -> Vec<Mutation> {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut mutations = Vec::new();
        while !*stopping.borrow() {
            pace.tick().await;
            let mutation = self.mutate(mutations.len()).await;
            done.send_modify(|done| *done += usize::from(mutation.told.is_done()));
            mutations.push(mutation);
        }
        mutations
    }

    async fn mutate(&self, count: usize) -> Mutation {
        let mark = format!("m{}-{count}", self.number);
        let request_id = if self.has_ids { request_id() } else { String::new() };
        let request = self.request(count, &mark, request_id);
        let deadline = Instant::now() + PATIENCE;
        let mut sent = 0;
        let mut clients = self.clients.iter().cycle();
        let told = loop {
            sent += 1;
            let told = request.send(clients.next().unwrap().clone()).await;
            if !told.is_outage() || !self.has_ids || Instant::now() >= deadline {
                break told;
            }
            tokio::time::sleep(PAUSE).await;
        };
        Mutation { mark, edge: self.edge, has_id: self.has_ids, sent, told }
    }

    /// Creations and changes in turn.
    fn request(&self, count: usize, mark: &str, request_id: String) -> Request {
        let workspace_scope = scope(&self.workspace);
        let targets = Some(&self.targets).filter(|targets| !targets.is_empty() && count.is_multiple_of(2));
        match targets.map(|targets| &targets[(self.number + count / 2) % targets.len()]) {
            Some(target) => Request::Policy(Box::new(UpdateConfigRequest {
                workspace_scope,
                sandbox: target.clone(),
                policy: Some(policy::to_host(&format!("{mark}.example.com"), None)),
                annotations: [("mark".to_owned(), mark.to_owned())].into(),
                request_id,
                ..Default::default()
            })),
            None => Request::Create(Box::new(CreateSandboxRequest {
                workspace_scope,
                name: mark.to_owned(),
                spec: Some(SandboxSpec::default()),
                request_id,
                ..Default::default()
            })),
        }
    }
}

#[derive(Clone)]
enum Request {
    Create(Box<CreateSandboxRequest>),
    Policy(Box<UpdateConfigRequest>),
}

impl Request {
    async fn send(&self, mut client: Client) -> Told {
        let answer: Result<bool, Status> = match self.clone() {
            Self::Create(request) => client.create_sandbox(*request).await.map(|answer| is_replay(answer.metadata())),
            Self::Policy(request) => client.update_config(*request).await.map(|answer| is_replay(answer.metadata())),
        };
        answer.map_or_else(|status| Told::by(&status), |replayed| Told::Done { replayed })
    }
}
