//! A workspace with supervised sandboxes that are READY, and a watch on each through each edge.

use std::{collections::BTreeMap, time::Duration};

use roadstead_proto::api::{
    datamodel::{ObjectMeta, Provider},
    v1::{CreateProviderRequest, CreateSandboxRequest, CreateWorkspaceRequest, SandboxPhase, SandboxSpec},
};
use roadstead_supervisor::{Backoff, Recorder, Settings, Status, Supervisor, TokenSource};
use roadstead_testkit::{Stack, generate, sql::Session, stack::Role};

use crate::{
    Watched,
    api::{client, request_id, scope},
    effect,
};

const READY_TIME: Duration = Duration::from_secs(30);
const RECORDED: usize = 10_000;

/// Records every change of a sandbox's phase from then on, seen or not seen by anybody.
const JOURNAL: &str = "
    create schema journal;
    create table journal.phase (at timestamptz default clock_timestamp(), name text, before int, after int);
    create function journal.record() returns trigger language plpgsql security definer as $$
    begin
        insert into journal.phase (name, before, after) values (new.name, old.phase, new.phase);
        return null;
    end $$;
    create trigger journal after update on roadstead.sandbox for each row
        when (old.phase <> new.phase) execute function journal.record()";

/// One supervised sandbox.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub supervisor: Supervisor,
    /// What its supervisor has seen.
    pub recorder: Recorder,
    /// One for each edge.
    pub watches: Vec<Watched>,
}

impl Member {
    /// How its supervisor stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.supervisor.status().borrow().clone()
    }

    /// Waits until its supervisor has had so many sessions, the last of which is open.
    ///
    /// # Panics
    /// Not within `within`.
    pub async fn reconnected(&self, sessions: u64, within: Duration) {
        let mut status = self.supervisor.status();
        let is_so = |status: &Status| status.sessions >= sessions && status.connection.is_some();
        let waited = tokio::time::timeout(within, status.wait_for(is_so)).await;
        let name = &self.name;
        assert!(waited.is_ok(), "{name} has no session number {sessions} within {within:?}: {:?}", self.status());
    }
}

/// Supervised sandboxes. Half of the supervisors know the bridges in one order, half in the other.
#[derive(Debug)]
pub struct Fleet {
    workspace: String,
    members: Vec<Member>,
}

impl Fleet {
    /// The stack's edges.
    #[must_use]
    pub fn edges(stack: &Stack) -> Vec<String> {
        urls(stack, Role::Edge)
    }

    /// Creates a workspace, a provider with a credential and `count` sandboxes that have it, starts their supervisors
    /// and watches, and returns when each watch has shown READY.
    pub async fn start(stack: &Stack, count: usize) -> Self {
        let workspace = generate::unique("fleet");
        let mut api = client(&stack.edge(1));
        let request =
            CreateWorkspaceRequest { name: workspace.clone(), request_id: request_id(), ..Default::default() };
        api.create_workspace(request).await.unwrap();
        let provider = Provider {
            metadata: Some(ObjectMeta { name: "first".to_owned(), ..Default::default() }),
            r#type: "generic".to_owned(),
            credentials: BTreeMap::from([("FIRST_TOKEN".to_owned(), request_id())]),
            ..Default::default()
        };
        let request = CreateProviderRequest {
            workspace_scope: scope(&workspace),
            provider: Some(provider),
            request_id: request_id(),
        };
        api.create_provider(request).await.unwrap();
        let mut members = Vec::new();
        for number in 0..count {
            members.push(Member::start(stack, &workspace, number).await);
        }
        for watch in members.iter().flat_map(|member| &member.watches) {
            watch.until(READY_TIME, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;
        }
        let mut session = stack.session().await;
        session.run(JOURNAL).await;
        effect::note(&mut session).await;
        Self { workspace, members }
    }

    /// Its workspace.
    #[must_use]
    pub fn workspace(&self) -> &str {
        &self.workspace
    }

    /// Its sandboxes.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The names of its sandboxes.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// How many sessions each supervisor has had.
    #[must_use]
    pub fn sessions(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.status().sessions).collect()
    }

    /// Why the last session of each supervisor, or attempt to have one, ended.
    #[must_use]
    pub fn ends(&self) -> Vec<Option<String>> {
        self.members.iter().map(|member| member.status().last_end).collect()
    }

    /// No sandbox has left READY since the start, for however short a time, and no watch has shown it.
    ///
    /// # Panics
    /// One has.
    pub async fn assert_never_unready(&self, session: &mut Session) {
        let names = self.names().join("', '");
        let left = session.run(&format!("select * from journal.phase where name in ('{names}')")).await;
        assert!(left.is_empty(), "sandboxes have left READY: {left:?}");
        for member in &self.members {
            for seen in member.watches.iter().map(Watched::seen) {
                let since = seen.shown().skip_while(|(_, phase)| *phase != SandboxPhase::Ready);
                let other: Vec<_> = since.filter(|(_, phase)| *phase != SandboxPhase::Ready).collect();
                assert!(other.is_empty(), "a watch on {} has shown {other:?}", member.name);
            }
        }
    }

    /// On every watch versions have only risen.
    ///
    /// # Panics
    /// They have not.
    pub fn assert_ordered(&self) {
        for member in &self.members {
            for seen in member.watches.iter().map(Watched::seen) {
                assert_eq!(seen.disorder(), None, "a watch on {} has shown {seen:?}", member.name);
            }
        }
    }

    /// No stream of a watch has broken.
    ///
    /// # Panics
    /// One has.
    pub fn assert_watches_stayed(&self) {
        for member in &self.members {
            for seen in member.watches.iter().map(Watched::seen) {
                let ends: Vec<_> = seen.streams.iter().filter_map(|stream| stream.ended.as_ref()).collect();
                assert!(ends.is_empty(), "watches on {} have ended: {ends:?}", member.name);
            }
        }
    }
}

impl Member {
    async fn start(stack: &Stack, workspace: &str, number: usize) -> Self {
        let name = format!("agent-{number}");
        let request = CreateSandboxRequest {
            workspace_scope: scope(workspace),
            name: name.clone(),
            spec: Some(SandboxSpec { providers: vec!["first".to_owned()], ..Default::default() }),
            request_id: request_id(),
            ..Default::default()
        };
        client(&stack.edge(1)).create_sandbox(request).await.unwrap();
        let mut edges = Fleet::edges(stack);
        let mut watches = Vec::new();
        for _ in 0..edges.len() {
            watches.push(Watched::open(&edges, workspace, &name));
            edges.rotate_left(1);
        }
        let token = TokenSource::File(stack.token(workspace, &name).await);
        let recorder = Recorder::new(RECORDED);
        let mut bridges = urls(stack, Role::SupervisorBridge);
        let first = number % bridges.len();
        bridges.rotate_left(first);
        let settings = Settings {
            bridges,
            observer: Some(recorder.observer()),
            // Here bridges die far more often than they should: that is no reason to be shy.
            backoff: Backoff { steady: Duration::ZERO, ..Backoff::default() },
            ..Settings::new("", workspace, &name, token)
        };
        Self { name, supervisor: Supervisor::start(settings).unwrap(), recorder, watches }
    }
}

/// Where the processes of a door serve.
fn urls(stack: &Stack, role: Role) -> Vec<String> {
    stack.nodes().iter().filter(|node| node.role() == role).map(roadstead_testkit::stack::Node::url).collect()
}
