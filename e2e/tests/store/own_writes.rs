//! Whoever was told that something is done sees it at once, through any edge, whichever processes serve the read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use roadstead_e2e::api::{Client, client, scope};
use roadstead_e2e::policy;
use roadstead_proto::api::datamodel::{WorkspaceSelector, workspace_selector::Selection};
use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{GetGatewayConfigRequest, GetSandboxConfigRequest, SettingValue};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, CreateWorkspaceRequest, DeleteSandboxRequest, DeletionOutcome, GetSandboxPolicyStatusRequest,
    GetSandboxRequest, ListSandboxPoliciesRequest, ListSandboxesRequest, SandboxSpec, UpdateConfigRequest,
};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually, generate, soak};
use tokio::task::JoinSet;
use tonic::Code;

const WRITERS: usize = 4;
/// Turns that are over before each kill, and while a process is away.
const TURNS: usize = 2;
const SOON: Duration = Duration::from_secs(60);

/// Writes through one edge and reads through the other. No call of it may fail.
struct Writer {
    number: usize,
    workspace: String,
    writes: Client,
    reads: Client,
}

impl Writer {
    fn scope(&self) -> Option<WorkspaceSelector> {
        scope(&self.workspace)
    }

    /// One life of a sandbox, looked at after each step.
    async fn turn(&mut self, turn: usize) {
        let name = format!("w{}-{turn}", self.number);
        let turn_label = ("turn".to_owned(), name.clone());
        let creation = CreateSandboxRequest {
            workspace_scope: self.scope(),
            name: name.clone(),
            spec: Some(SandboxSpec::default()),
            labels: [turn_label].into(),
            ..Default::default()
        };
        let created = self.writes.create_sandbox(creation).await.unwrap().into_inner().sandbox.unwrap();
        let get = GetSandboxRequest { workspace_scope: self.scope(), name: name.clone() };
        let got = self.reads.get_sandbox(get.clone()).await.unwrap().into_inner().sandbox.unwrap();
        assert_eq!(got.metadata.as_ref().unwrap().id, created.metadata.unwrap().id);
        assert_eq!(self.listed(&name).await, [1, 1], "{name} is not on the lists");

        for revision in 1..=2 {
            self.policies(&name, revision).await;
        }
        self.settings(&name).await;

        let workspace_scope = self.scope();
        let deletion = DeleteSandboxRequest { workspace_scope, name: name.clone(), ..Default::default() };
        let outcome = self.writes.delete_sandbox(deletion).await.unwrap().into_inner().outcome();
        let after = self.reads.get_sandbox(get).await;
        match outcome {
            DeletionOutcome::Completed => {
                assert_eq!(after.unwrap_err().code(), Code::NotFound, "{name} is shown after its deletion");
                assert_eq!(self.listed(&name).await, [0, 0], "{name} is listed after its deletion");
            }
            _ => assert!(
                after.is_err()
                    || after.unwrap().into_inner().sandbox.unwrap().metadata.unwrap().deletion_time.is_some()
            ),
        }
    }

    /// How often a list of the workspace and one of all workspaces show the sandbox of that label.
    async fn listed(&mut self, name: &str) -> [usize; 2] {
        let everywhere = Some(WorkspaceSelector { selection: Some(Selection::AllWorkspaces(Default::default())) });
        let mut shown = [0, 0];
        for (count, workspace_scope) in shown.iter_mut().zip([self.scope(), everywhere]) {
            let label_selector = format!("turn={name}");
            let list = ListSandboxesRequest { workspace_scope, label_selector, ..Default::default() };
            *count = self.reads.list_sandboxes(list).await.unwrap().into_inner().sandboxes.len();
        }
        shown
    }

    async fn policies(&mut self, name: &str, revision: u32) {
        let update = UpdateConfigRequest {
            workspace_scope: self.scope(),
            sandbox: name.to_owned(),
            policy: Some(policy::to_host(&format!("r{revision}.example.com"), None)),
            ..Default::default()
        };
        let told = self.writes.update_config(update).await.unwrap().into_inner();
        let status = GetSandboxPolicyStatusRequest {
            workspace_scope: self.scope(),
            sandbox: name.to_owned(),
            ..Default::default()
        };
        let status = self.reads.get_sandbox_policy_status(status).await.unwrap().into_inner().revision.unwrap();
        let list = ListSandboxPoliciesRequest {
            workspace_scope: self.scope(),
            sandbox: name.to_owned(),
            page_size: 1,
            ..Default::default()
        };
        let list = self.reads.list_sandbox_policies(list).await.unwrap().into_inner().revisions;
        let config = GetSandboxConfigRequest { workspace_scope: self.scope(), name: name.to_owned() };
        let config = self.reads.get_sandbox_config(config).await.unwrap().into_inner();
        assert_eq!([status.version, list[0].version, config.version], [told.version; 3], "{name}");
        assert_eq!([status.policy_hash, list[0].policy_hash.clone()], [told.policy_hash.clone(), told.policy_hash]);
    }

    async fn settings(&mut self, name: &str) {
        let value = |text: &str| Some(SettingValue { value: Some(Value::StringValue(text.to_owned())) });
        let own = UpdateConfigRequest {
            workspace_scope: self.scope(),
            sandbox: name.to_owned(),
            setting_key: "proposal_approval_mode".to_owned(),
            setting_value: value("auto"),
            ..Default::default()
        };
        let told = self.writes.update_config(own).await.unwrap().into_inner();
        let config = GetSandboxConfigRequest { workspace_scope: self.scope(), name: name.to_owned() };
        let config = self.reads.get_sandbox_config(config).await.unwrap().into_inner();
        assert_eq!(config.settings_revision, told.settings_revision);

        let global = UpdateConfigRequest {
            global: true,
            setting_key: "ocsf_schema_version".to_owned(),
            setting_value: value(name),
            ..Default::default()
        };
        let told = self.writes.update_config(global).await.unwrap().into_inner();
        let seen = self.reads.get_gateway_config(GetGatewayConfigRequest {}).await.unwrap().into_inner();
        // Others write it too.
        assert!(seen.settings_revision >= told.settings_revision, "{seen:?} is older than {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_less_than_was_told_at_any_edge_while_readers_are_killed_and_no_read_fails() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let workspace = generate::unique("own");
    let request = CreateWorkspaceRequest { name: workspace.clone(), ..Default::default() };
    client(&stack.edge(1)).create_workspace(request).await.unwrap();

    let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let (workspace, stop, turns) = (workspace.clone(), Arc::clone(&stop), Arc::clone(&turns));
        let [writes, reads] = if number % 2 == 0 { [1, 2] } else { [2, 1] }.map(|edge| client(&stack.edge(edge)));
        let mut writer = Writer { number, workspace, writes, reads };
        writers.spawn(async move {
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                writer.turn(turn).await;
                turn += 1;
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for round in 0..soak::count(1) {
        for role in [Role::Watch, Role::ConfigSnapshot] {
            for number in [1, 2] {
                progress(&mut writers, &turns, TURNS).await;
                stack.node_mut(role, number).kill().await;
                progress(&mut writers, &turns, TURNS).await;
                stack.node_mut(role, number).resume();
                stack.node_mut(role, number).ready().await;
            }
        }
        assert!(turns.load(Ordering::Relaxed) >= (round as usize + 1) * 8 * TURNS);
    }
    stop.store(true, Ordering::Relaxed);
    writers.join_all().await;
}

/// Waits until so many more turns are over. A writer that failed ends the test with what it found.
async fn progress(writers: &mut JoinSet<()>, turns: &AtomicUsize, more: usize) {
    let goal = turns.load(Ordering::Relaxed) + more;
    tokio::select! {
        ended = writers.join_next() => panic!("a writer has ended: {ended:?}"),
        () = eventually(SOON, "reads and writes go on", async || turns.load(Ordering::Relaxed) >= goal) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_read_page_by_page_without_growing_the_processes_that_serve_it() {
    const EACH: u32 = 4096;
    const MEBIBYTE: u64 = 1024 * 1024;
    let stack = Stack::start(Plan::single()).await;
    let many = soak::count(10_000);
    // Without triggers: the projection has no part in this.
    let copies = format!(
        "set session_replication_role = replica;
         insert into roadstead.sandbox (id, workspace_id, workspace_name, name, annotations, phase, attachment_epoch)
         select gen_random_uuid(), w.id, w.name, 's' || n, json_build_object('note', repeat('x', {EACH})), 1,
            gen_random_uuid()
         from roadstead.workspace w, generate_series(1, {many}) n where w.name = 'default'"
    );
    stack.session().await.run(&copies).await;
    let mut api = client(&stack.edge(1));
    let mut whole_list = async || {
        let (mut shown, mut pages, mut page_token) = (0, 0, String::new());
        loop {
            let list = ListSandboxesRequest {
                workspace_scope: scope("default"),
                page_size: 1000,
                page_token,
                ..Default::default()
            };
            let page = api.list_sandboxes(list).await.unwrap().into_inner();
            shown += page.sandboxes.len();
            pages += 1;
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return (shown, pages);
            }
        }
    };
    let memory = || [Role::Watch, Role::Edge].map(|role| stack.node(role, 1).victim().memory());
    let (shown, pages) = whole_list().await;
    assert_eq!(shown, many as usize);
    // A page would be larger than a message; the whole list has eleven times a page.
    assert!(pages >= 11, "{pages} pages");
    // What the allocator takes for its own at first does not count.
    let before = memory();
    whole_list().await;
    for (before, after) in before.into_iter().zip(memory()) {
        assert!(after < before + 16 * MEBIBYTE, "{before} bytes after one time, {after} after the next");
    }
}
