//! Get and list.

use std::collections::BTreeSet;

use roadstead_proto::api::datamodel::{AllWorkspaces, WorkspaceSelector, workspace_selector::Selection};
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_store::mutation::Write;
use tonic::Code;

use crate::world::{World, admin, sandbox, user};

pub(crate) fn in_workspace(name: &str) -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace(name.into())) })
}

pub(crate) fn everywhere() -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::AllWorkspaces(AllWorkspaces {})) })
}

fn get(workspace: &str, name: &str) -> v1::GetSandboxRequest {
    v1::GetSandboxRequest { workspace_scope: in_workspace(workspace), name: name.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stable_item_is_listed_exactly_once_while_others_come_and_go() {
    let world = World::new().await;
    let workspace = world.workspace("pages").await;
    // All created in one burst: equal times, so names and ids decide.
    let stable: Vec<_> = (0..40).map(|number| sandbox(&workspace, &format!("box-{number}"), &[])).collect();
    world.write_silently(stable.iter().cloned().map(Write::InsertSandbox).collect()).await;

    let (mut shown, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let request = v1::ListSandboxesRequest {
            workspace_scope: in_workspace("pages"),
            page_size: [7, 3][pages % 2],
            page_token: token,
            ..Default::default()
        };
        let page: v1::ListSandboxesResponse = world.ask(Method::ListSandboxes, admin(), request).await.unwrap();
        shown.extend(page.sandboxes.into_iter().map(|sandbox| sandbox.metadata.unwrap().id));
        token = page.next_page_token;
        pages += 1;
        if token.is_empty() {
            break;
        }
        let visitor = sandbox(&workspace, &format!("visitor-{pages}"), &[]);
        world.write_silently(vec![Write::InsertSandbox(visitor.clone())]).await;
        world.write_silently(vec![Write::DeleteSandbox(visitor.id)]).await;
    }
    let distinct: BTreeSet<_> = shown.iter().collect();
    assert_eq!(distinct.len(), shown.len(), "an item was listed twice");
    assert!(stable.iter().all(|sandbox| distinct.contains(&sandbox.id.to_string())), "an item was left out");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_token_counts_only_for_the_call_that_gave_it() {
    let world = World::new().await;
    let (one, other) = (world.workspace("one").await, world.workspace("other").await);
    for workspace in [&one, &other] {
        let rows = (0..3).map(|number| Write::InsertSandbox(sandbox(workspace, &format!("box-{number}"), &[])));
        world.write_silently(rows.collect()).await;
    }
    let list = |workspace: &str, selector: &str, token: &str| v1::ListSandboxesRequest {
        workspace_scope: in_workspace(workspace),
        page_size: 1,
        page_token: token.into(),
        label_selector: selector.into(),
    };
    let first: v1::ListSandboxesResponse =
        world.ask(Method::ListSandboxes, admin(), list("one", "", "")).await.unwrap();
    let token = first.next_page_token;
    let edited = format!("A{}", &token[1..]);
    for (what, request) in [
        ("another workspace", list("other", "", &token)),
        ("another selector", list("one", "a=b", &token)),
        ("an edited byte", list("one", "", &edited)),
    ] {
        let refused = world.ask::<_, v1::ListSandboxesResponse>(Method::ListSandboxes, admin(), request).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{what}");
    }
    let providers = v1::ListProvidersRequest {
        workspace_scope: in_workspace("one"),
        page_token: token.clone(),
        ..Default::default()
    };
    let refused = world.ask::<_, v1::ListProvidersResponse>(Method::ListProviders, admin(), providers).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "another method");
    let next = world.ask::<_, v1::ListSandboxesResponse>(Method::ListSandboxes, admin(), list("one", "", &token));
    assert_eq!(next.await.unwrap().sandboxes.len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_learns_the_same_of_a_workspace_that_is_there_and_of_one_that_is_not() {
    let world = World::new().await;
    let workspace = world.workspace("team").await;
    world.member(&workspace, "ann").await;
    world.write_silently(vec![Write::InsertSandbox(sandbox(&workspace, "box", &[]))]).await;
    let ask = |as_user, request| world.ask::<_, v1::SandboxResponse>(Method::GetSandbox, as_user, request);

    assert!(ask(user("ann"), get("team", "box")).await.is_ok());
    let there = ask(user("eve"), get("team", "box")).await.unwrap_err();
    let not_there = ask(user("eve"), get("nowhere", "box")).await.unwrap_err();
    assert_eq!((there.code(), not_there.code()), (Code::PermissionDenied, Code::PermissionDenied));
    assert_eq!(there.message().replace("team", "nowhere"), not_there.message());
    assert!(there.message().contains("not a member of workspace 'team'"), "{}", there.message());

    let missing = ask(user("ann"), get("team", "nothing")).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    let missing = ask(admin(), get("nowhere", "box")).await.unwrap_err();
    assert_eq!((missing.code(), missing.message()), (Code::NotFound, "workspace 'nowhere' does not exist"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_no_rights_is_told_so_whatever_is_wrong_with_the_request() {
    let world = World::new().await;
    let workspace = world.workspace("team").await;
    world.member(&workspace, "ann").await;
    let list = |workspace_scope, page_size, page_token: &str, label_selector: &str| v1::ListSandboxesRequest {
        workspace_scope,
        page_size,
        page_token: page_token.into(),
        label_selector: label_selector.into(),
    };
    let wrong = |scope: &Option<WorkspaceSelector>| {
        let list = |size, token, selector| list(scope.clone(), size, token, selector);
        [list(-1, "", ""), list(0, "nonsense", ""), list(0, "", "a!=b")]
    };
    let cases = [
        ("ann", in_workspace("team"), Code::InvalidArgument),
        ("eve", in_workspace("team"), Code::PermissionDenied),
        ("eve", in_workspace("nowhere"), Code::PermissionDenied),
        ("ann", everywhere(), Code::PermissionDenied),
        ("root", everywhere(), Code::InvalidArgument),
        ("root", in_workspace("nowhere"), Code::NotFound),
    ];
    for (subject, scope, code) in cases {
        let caller = || if subject == "root" { admin() } else { user(subject) };
        for request in wrong(&scope) {
            let refused = world.ask::<_, v1::ListSandboxesResponse>(Method::ListSandboxes, caller(), request).await;
            assert_eq!(refused.unwrap_err().code(), code, "{subject}");
        }
        if scope != everywhere() {
            let request = v1::GetSandboxRequest { workspace_scope: scope, name: String::new() };
            let refused = world.ask::<_, v1::SandboxResponse>(Method::GetSandbox, caller(), request).await;
            assert_eq!(refused.unwrap_err().code(), code, "{subject}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_for_all_workspaces_is_for_platform_admins_and_for_lists() {
    let world = World::new().await;
    for name in ["a", "b"] {
        let workspace = world.workspace(name).await;
        world.write_silently(vec![Write::InsertSandbox(sandbox(&workspace, "box", &[("tier", name)]))]).await;
    }
    let list = |selector: &str| v1::ListSandboxesRequest {
        workspace_scope: everywhere(),
        label_selector: selector.into(),
        ..Default::default()
    };
    let all: v1::ListSandboxesResponse = world.ask(Method::ListSandboxes, admin(), list("")).await.unwrap();
    assert_eq!(all.sandboxes.len(), 2);
    let some: v1::ListSandboxesResponse = world.ask(Method::ListSandboxes, admin(), list("tier=b")).await.unwrap();
    assert_eq!(some.sandboxes[0].metadata.as_ref().unwrap().workspace, "b");
    let refused = world.ask::<_, v1::ListSandboxesResponse>(Method::ListSandboxes, user("ann"), list("")).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("platform admin role required"));

    let one = v1::GetSandboxRequest { workspace_scope: everywhere(), name: "box".into() };
    let refused = world.ask::<_, v1::SandboxResponse>(Method::GetSandbox, admin(), one).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let none = v1::GetSandboxRequest { workspace_scope: None, name: "box".into() };
    let refused = world.ask::<_, v1::SandboxResponse>(Method::GetSandbox, admin(), none).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_are_listed_to_their_members_only_and_default_is_there() {
    let world = World::new().await;
    let mine = world.workspace("mine").await;
    world.workspace("theirs").await;
    world.member(&mine, "ann").await;
    let names = async |as_user| {
        let listed = world.ask(Method::ListWorkspaces, as_user, v1::ListWorkspacesRequest::default());
        let listed: v1::ListWorkspacesResponse = listed.await.unwrap();
        listed.workspaces.into_iter().map(|one| one.metadata.unwrap().name).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(user("ann")).await, BTreeSet::from(["mine".to_owned()]));
    assert_eq!(names(admin()).await, ["default", "mine", "theirs"].map(str::to_owned).into());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_nothing_can_have_is_refused_as_such_and_not_as_a_fault() {
    let world = World::new().await;
    for request in [get("a\0", "box"), get("default", "b\0x"), get("default", "b\nx")] {
        let refused = world.ask::<_, v1::SandboxResponse>(Method::GetSandbox, admin(), request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
    }
    let list = v1::ListSandboxesRequest {
        workspace_scope: in_workspace("default"),
        label_selector: "a=\0".into(),
        ..Default::default()
    };
    let refused = world.ask::<_, v1::ListSandboxesResponse>(Method::ListSandboxes, admin(), list).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    world.stop().await;
}
