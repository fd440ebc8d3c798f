//! One of the replicas that answer reads hangs, and the broker still gives it its share of them.

use std::path::PathBuf;
use std::time::Duration;

use roadstead_e2e::Fleet;
use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::api::v1::{
    CreateSandboxRequest, GetSandboxRequest, ListSandboxesRequest, SandboxSpec, WatchSandboxRequest,
};
use roadstead_supervisor::{Settings, Supervisor, TokenSource};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, Victim, eventually, soak};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::Status;

const READERS: usize = 8;
/// Rounds of each reader.
const ROUNDS: u32 = 4;
const SESSIONS: u32 = 3;
/// By when a session has its first configuration.
const BOUND: Duration = Duration::from_secs(5);

/// One call of each kind: of an object, a list, a configuration, and a watch up to its first event.
async fn round(api: &mut Client, workspace: &str, name: &str) -> Result<Duration, Status> {
    let (workspace_scope, name) = (scope(workspace), name.to_owned());
    let mut longest = Duration::ZERO;
    let mut began = Instant::now();
    let mut lap = || {
        longest = longest.max(began.elapsed());
        began = Instant::now();
    };
    let get = GetSandboxRequest { workspace_scope: workspace_scope.clone(), name: name.clone() };
    api.get_sandbox(get).await?;
    lap();
    let list = ListSandboxesRequest { workspace_scope: workspace_scope.clone(), ..Default::default() };
    api.list_sandboxes(list).await?;
    lap();
    let config = GetSandboxConfigRequest { workspace_scope: workspace_scope.clone(), name: name.clone() };
    api.get_sandbox_config(config).await?;
    lap();
    let watch = WatchSandboxRequest { workspace_scope, sandbox: name, follow_status: true, ..Default::default() };
    assert!(api.watch_sandbox(watch).await?.into_inner().message().await?.is_some());
    lap();
    Ok(longest)
}

/// What the readers of all edges find; no read fails. The longest that one took.
async fn read(stack: &Stack, fleet: &Fleet) -> Duration {
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let mut api = client(&stack.edge(1 + reader % 2));
        let (workspace, name) = (fleet.workspace().to_owned(), fleet.names()[0].clone());
        readers.spawn(async move {
            let mut longest = Duration::ZERO;
            for _ in 0..soak::count(ROUNDS) {
                longest = longest.max(round(&mut api, &workspace, &name).await.expect("no read fails"));
            }
            longest
        });
    }
    readers.join_all().await.into_iter().max().unwrap()
}

/// Sandboxes whose configurations are stored, with their tokens.
async fn settled(stack: &Stack, fleet: &Fleet) -> Vec<(String, PathBuf)> {
    let mut late = Vec::new();
    for number in 0..SESSIONS {
        let name = format!("late-{number}");
        let request = CreateSandboxRequest {
            workspace_scope: scope(fleet.workspace()),
            name: name.clone(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        let mut api = client(&stack.edge(1));
        api.create_sandbox(request).await.unwrap();
        let get = || GetSandboxConfigRequest { workspace_scope: scope(fleet.workspace()), name: name.clone() };
        eventually(BOUND, "it has a configuration", async || api.clone().get_sandbox_config(get()).await).await;
        let token = stack.token(fleet.workspace(), &name).await;
        late.push((name, token));
    }
    late
}

/// How often the edges have put a question to all replicas.
async fn repeated(stack: &Stack) -> f64 {
    let mut repeated = 0.0;
    for number in [1, 2] {
        let series = "roadstead_broker_reads_repeated_total{role=\"edge\"}";
        repeated += stack.node(Role::Edge, number).metric(series).await;
    }
    repeated
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_fails_and_sessions_open_while_a_replica_that_answers_reads_is_frozen() {
    let stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, 1).await;
    let late = settled(&stack, &fleet).await;
    let before = repeated(&stack).await;
    let well = read(&stack, &fleet).await;
    let cost = repeated(&stack).await - before;
    // Nothing is asked twice while all answer, but for what a loaded machine takes a second over.
    let reads = f64::from(soak::count(ROUNDS)) * READERS as f64 * 4.0;
    assert!(cost <= reads / 20.0, "{cost} of {reads} reads were repeated while all was well");

    let frozen = [Role::Watch, Role::ConfigSnapshot].map(|role| stack.node(role, 1).victim());
    frozen.into_iter().for_each(Victim::freeze);
    let before = repeated(&stack).await;
    let took = read(&stack, &fleet).await;
    eprintln!("the longest read took {well:?} before and {took:?} during the freeze");
    assert!(repeated(&stack).await > before, "the frozen ones were asked too");

    // The same for sessions, which begin with a configuration: all is stored before the freeze, so that no news brings it.
    for (name, token) in late {
        let token = TokenSource::File(token);
        let supervisor = Supervisor::start(Settings::new(stack.bridge(1), fleet.workspace(), &name, token)).unwrap();
        let mut status = supervisor.status();
        // It is accepted without one after a second.
        let configured = timeout(BOUND, status.wait_for(|status| status.config.is_some())).await.is_ok();
        assert!(configured, "{name} has no configuration after {BOUND:?}: {:?}", supervisor.status().borrow());
    }
    frozen.into_iter().for_each(Victim::thaw);
}
