//! Get and list of workload templates and services.

use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_store::mutation::Write;
use roadstead_store::row;
use tonic::Code;
use uuid::Uuid;

use crate::reads::{everywhere, in_workspace};
use crate::world::{World, admin, now, sandbox, user};

fn template(workspace: &row::Workspace, name: &str, tier: &str) -> row::WorkloadTemplate {
    row::WorkloadTemplate {
        id: Uuid::new_v4(),
        workspace_id: workspace.id,
        workspace_name: workspace.name.clone(),
        name: name.into(),
        labels: [("tier".to_owned(), tier.to_owned())].into(),
        annotations: row::Pairs::new(),
        resource_version: 1,
        created_at: now(),
        spec: v1::SandboxWorkloadTemplateSpec { workload: Some(Default::default()), ..Default::default() },
    }
}

fn service(sandbox: &row::Sandbox, name: &str) -> row::ServiceEndpoint {
    row::ServiceEndpoint {
        id: Uuid::new_v4(),
        sandbox_id: sandbox.id,
        workspace_name: sandbox.workspace_name.clone(),
        sandbox_name: sandbox.name.clone(),
        service: name.into(),
        target_port: 8080,
        authorization_mode: v1::ServiceAuthorizationMode::Strip,
        resource_version: 1,
        created_at: now(),
    }
}

/// Names in all pages of two.
async fn templates(world: &World, request: v1::ListSandboxTemplatesRequest) -> Vec<String> {
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListSandboxTemplatesRequest { page_size: 2, page_token, ..request.clone() };
        let page: v1::ListSandboxTemplatesResponse =
            world.ask(Method::ListSandboxTemplates, admin(), request).await.unwrap();
        names.extend(page.templates.into_iter().map(|shown| shown.metadata.unwrap().name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return names;
        }
    }
}

/// Names in all pages of two.
async fn services(world: &World, request: v1::ListServicesRequest) -> Vec<String> {
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListServicesRequest { page_size: 2, page_token, ..request.clone() };
        let page: v1::ListServicesResponse = world.ask(Method::ListServices, admin(), request).await.unwrap();
        names.extend(page.services.into_iter().map(|shown| shown.endpoint.unwrap().metadata.unwrap().name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return names;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_shown_and_listed_by_workspace_by_label_and_everywhere() {
    let world = World::new().await;
    let (one, other) = (world.workspace("one").await, world.workspace("other").await);
    for (workspace, name, tier) in [(&one, "a", "x"), (&one, "b", "y"), (&one, "c", "x"), (&other, "d", "x")] {
        world.write_silently(vec![Write::InsertTemplate(template(workspace, name, tier))]).await;
    }
    let get = |name: &str| v1::GetSandboxTemplateRequest { workspace_scope: in_workspace("one"), name: name.into() };
    let shown: v1::SandboxTemplateResponse = world.ask(Method::GetSandboxTemplate, admin(), get("a")).await.unwrap();
    let metadata = shown.template.unwrap().metadata.unwrap();
    assert_eq!((metadata.name.as_str(), metadata.workspace.as_str()), ("a", "one"));
    for (name, code) in [("none", Code::NotFound), ("", Code::InvalidArgument)] {
        let refused = world.ask::<_, v1::SandboxTemplateResponse>(Method::GetSandboxTemplate, admin(), get(name)).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }

    let list = |workspace_scope, label_selector: &str| v1::ListSandboxTemplatesRequest {
        workspace_scope,
        label_selector: label_selector.into(),
        ..Default::default()
    };
    assert_eq!(templates(&world, list(in_workspace("one"), "")).await, ["a", "b", "c"]);
    assert_eq!(templates(&world, list(in_workspace("one"), "tier=x")).await, ["a", "c"]);
    assert_eq!(templates(&world, list(everywhere(), "")).await, ["a", "b", "c", "d"]);
    assert_eq!(templates(&world, list(everywhere(), "tier=x")).await, ["a", "c", "d"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_shown_with_their_urls_and_listed_by_workspace_by_sandbox_and_everywhere() {
    let world = World::new().await;
    let (one, other) = (world.workspace("one").await, world.workspace("other").await);
    let (a, b, c) = (sandbox(&one, "a", &[]), sandbox(&one, "b", &[]), sandbox(&other, "c", &[]));
    world.write_silently([&a, &b, &c].map(|row| Write::InsertSandbox(row.clone())).into()).await;
    for (sandbox, name) in [(&a, "web"), (&b, ""), (&a, ""), (&a, "api"), (&c, "web")] {
        world.write_silently(vec![Write::InsertService(service(sandbox, name))]).await;
    }
    let get = |sandbox: &str, name: &str| v1::GetServiceRequest {
        workspace_scope: in_workspace("one"),
        sandbox: sandbox.into(),
        name: name.into(),
    };
    for (name, url) in [("web", "https://one--a--web.apps.example.com/"), ("", "https://one--a.apps.example.com/")] {
        let shown: v1::ServiceEndpointResponse = world.ask(Method::GetService, admin(), get("a", name)).await.unwrap();
        let endpoint = shown.endpoint.unwrap();
        assert_eq!((endpoint.name.as_str(), endpoint.domain, shown.url.as_str()), (name, true, url));
    }
    for (sandbox, name, code) in
        [("a", "none", Code::NotFound), ("none", "web", Code::NotFound), ("", "web", Code::InvalidArgument)]
    {
        let refused =
            world.ask::<_, v1::ServiceEndpointResponse>(Method::GetService, admin(), get(sandbox, name)).await;
        assert_eq!(refused.unwrap_err().code(), code, "{sandbox} {name}");
    }

    let list = |workspace_scope, sandbox: &str| v1::ListServicesRequest {
        workspace_scope,
        sandbox: sandbox.into(),
        ..Default::default()
    };
    assert_eq!(services(&world, list(in_workspace("one"), "")).await, ["a--web", "b", "a", "a--api"]);
    assert_eq!(services(&world, list(in_workspace("one"), "a")).await, ["a--web", "a", "a--api"]);
    assert_eq!(services(&world, list(everywhere(), "")).await.len(), 5);
    for (request, code) in
        [(list(everywhere(), "a"), Code::InvalidArgument), (list(in_workspace("one"), "none"), Code::NotFound)]
    {
        let refused = world.ask::<_, v1::ListServicesResponse>(Method::ListServices, admin(), request).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }

    // A token is bound to the sandbox that was asked for.
    let first = v1::ListServicesRequest { page_size: 1, ..list(in_workspace("one"), "a") };
    let page: v1::ListServicesResponse = world.ask(Method::ListServices, admin(), first).await.unwrap();
    let elsewhere = v1::ListServicesRequest { page_token: page.next_page_token, ..list(in_workspace("one"), "b") };
    let refused = world.ask::<_, v1::ListServicesResponse>(Method::ListServices, admin(), elsewhere).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_see_templates_and_services_of_their_workspace_and_strangers_learn_nothing() {
    let world = World::new().await;
    let workspace = world.workspace("team").await;
    world.member(&workspace, "ann").await;
    let row = sandbox(&workspace, "box", &[]);
    world
        .write_silently(vec![
            Write::InsertTemplate(template(&workspace, "t", "x")),
            Write::InsertSandbox(row.clone()),
            Write::InsertService(service(&row, "web")),
        ])
        .await;
    let get_template =
        |name: &str| v1::GetSandboxTemplateRequest { workspace_scope: in_workspace(name), name: "t".into() };
    let get_service = |name: &str| v1::GetServiceRequest {
        workspace_scope: in_workspace(name),
        sandbox: "box".into(),
        name: "web".into(),
    };
    let template = |as_user, workspace| {
        world.ask::<_, v1::SandboxTemplateResponse>(Method::GetSandboxTemplate, as_user, get_template(workspace))
    };
    let service = |as_user, workspace| {
        world.ask::<_, v1::ServiceEndpointResponse>(Method::GetService, as_user, get_service(workspace))
    };
    template(user("ann"), "team").await.unwrap();
    service(user("ann"), "team").await.unwrap();
    for workspace in ["team", "nowhere"] {
        assert_eq!(template(user("eve"), workspace).await.unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(service(user("eve"), workspace).await.unwrap_err().code(), Code::PermissionDenied);
    }
    let all = v1::ListSandboxTemplatesRequest { workspace_scope: everywhere(), ..Default::default() };
    let refused =
        world.ask::<_, v1::ListSandboxTemplatesResponse>(Method::ListSandboxTemplates, user("ann"), all).await;
    assert!(refused.unwrap_err().message().contains("platform admin role required"));
    let all = v1::ListServicesRequest { workspace_scope: everywhere(), ..Default::default() };
    let refused = world.ask::<_, v1::ListServicesResponse>(Method::ListServices, user("ann"), all).await;
    assert!(refused.unwrap_err().message().contains("platform admin role required"));
    world.stop().await;
}
