//! Lists while sandboxes come and go and the processes that serve them are replaced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use roadstead_e2e::api::{Client, client, scope};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, CreateWorkspaceRequest, DeleteSandboxRequest, ListSandboxesRequest, ListSandboxesResponse,
    SandboxSpec,
};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, generate, soak};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

const PAGE: i32 = 7;

async fn page(mut api: Client, workspace: &str, size: i32, token: &str) -> Result<ListSandboxesResponse, Status> {
    let request = ListSandboxesRequest {
        workspace_scope: scope(workspace),
        page_size: size,
        page_token: token.to_owned(),
        ..Default::default()
    };
    Ok(api.list_sandboxes(request).await?.into_inner())
}

fn creation(workspace: &str, name: &str) -> CreateSandboxRequest {
    CreateSandboxRequest {
        workspace_scope: scope(workspace),
        name: name.to_owned(),
        spec: Some(SandboxSpec::default()),
        ..Default::default()
    }
}

/// Sandboxes that are created and deleted again, as fast as it goes, until it is stopped.
fn visitors(edge: &str, workspace: &str, stop: &Arc<AtomicBool>, seen: &Arc<AtomicU32>) -> JoinHandle<()> {
    let (mut api, workspace) = (client(edge), workspace.to_owned());
    let (stop, seen) = (Arc::clone(stop), Arc::clone(seen));
    tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            let name = format!("v{}", seen.fetch_add(1, Ordering::Relaxed));
            api.create_sandbox(creation(&workspace, &name)).await.unwrap();
            let workspace_scope = scope(&workspace);
            api.delete_sandbox(DeleteSandboxRequest { workspace_scope, name, ..Default::default() }).await.unwrap();
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_every_lasting_sandbox_once_over_restarts_and_a_token_of_another_says_nothing() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let (workspace, other) = (generate::unique("pages"), generate::unique("other"));
    let mut api = client(&stack.edge(1));
    for name in [&workspace, &other] {
        api.create_workspace(CreateWorkspaceRequest { name: name.clone(), ..Default::default() }).await.unwrap();
        api.create_sandbox(creation(name, "first")).await.unwrap();
    }
    // Created in one burst, all in the same millisecond as the first one: names decide, then ids.
    let burst = soak::count(300);
    let copies = format!(
        "insert into roadstead.sandbox (id, workspace_id, workspace_name, name, spec, status, phase, attachment_epoch,
            created_at)
         select gen_random_uuid(), workspace_id, workspace_name, 'b' || md5(n::text)::char(12), spec, status, phase,
            gen_random_uuid(), created_at
         from roadstead.sandbox, generate_series(1, {burst}) n where workspace_name = '{workspace}'"
    );
    stack.session().await.run(&copies).await;
    let lasting = burst as usize + 1;

    let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let coming_and_going = visitors(&stack.edge(2), &workspace, &stop, &seen);
    let (mut shown, mut token, mut pages) = (Vec::new(), String::new(), 0);
    let mut tokens = Vec::new();
    loop {
        // The edge that gave the token is another one than the one that takes it, and may be a new process.
        let edge = if pages % 2 == 0 { stack.edge(1) } else { stack.edge(2) };
        let listed = page(client(&edge), &workspace, if pages == 5 { 3 } else { PAGE }, &token).await.unwrap();
        shown.extend(listed.sandboxes.into_iter().map(|sandbox| sandbox.metadata.unwrap().name));
        token = listed.next_page_token;
        if token.is_empty() {
            break;
        }
        tokens.push(token.clone());
        pages += 1;
        match pages {
            10 => stack.node_mut(Role::Edge, 1).crash().await,
            20 => {
                for number in [1, 2] {
                    stack.node_mut(Role::Watch, number).kill().await;
                    stack.node_mut(Role::Watch, number).resume();
                    stack.node_mut(Role::Watch, number).ready().await;
                }
            }
            _ => {}
        }
    }
    stop.store(true, Ordering::Relaxed);
    coming_and_going.await.unwrap();
    assert!(seen.load(Ordering::Relaxed) > 5, "nothing came and went");
    let distinct: BTreeSet<&String> = shown.iter().collect();
    assert_eq!(distinct.len(), shown.len(), "a sandbox was listed twice");
    assert_eq!(shown.iter().filter(|name| !name.starts_with('v')).count(), lasting, "one was left out");

    reveals_nothing(&stack, &workspace, &other, &tokens[tokens.len() / 2]).await;
}

/// A token counts for its own list, with any page size, at each edge. Elsewhere, or with any byte changed, it is refused
/// with the same words as nonsense is.
async fn reveals_nothing(stack: &Stack, workspace: &str, other: &str, token: &str) {
    for (number, size) in [(1, PAGE), (2, 100)] {
        let again = page(client(&stack.edge(number)), workspace, size, token).await.unwrap();
        assert!(!again.sandboxes.is_empty());
    }
    let refused = async |workspace: &str, token: &str| {
        let status = page(client(&stack.edge(1)), workspace, PAGE, token).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        status.message().to_owned()
    };
    let nonsense = refused(workspace, "nonsense").await;
    assert_eq!(refused(other, token).await, nonsense);
    for at in 0..token.len() {
        let mut edited = token.as_bytes().to_vec();
        // The last letter may hold bits that are not part of any byte; those must not be ignored either.
        edited[at] = if edited[at] == b'A' { b'B' } else { b'A' };
        let edited = String::from_utf8(edited).unwrap();
        assert_eq!(refused(workspace, &edited).await, nonsense, "letter {at}");
    }
    for name in [workspace, other] {
        assert!(!nonsense.contains(name));
    }
}
