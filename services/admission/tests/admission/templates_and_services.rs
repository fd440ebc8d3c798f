//! Workload templates, services, and the sandboxes that use both.

use std::collections::BTreeSet;

use prost::Message;
use roadstead_proto::api::datamodel::ObjectMeta;
use roadstead_proto::api::v1::{self, DeletionOutcome};
use roadstead_proto::method::Method;
use tonic::Code;

use crate::world::{Told, World, create_sandbox, fresh_id, reason, root, sandbox_of, scope, user_named};

const DOMAIN: &str = "--service-domain=apps.example.com";

fn create_template(name: &str, image: &str, request_id: &str) -> v1::CreateSandboxTemplateRequest {
    let workload = v1::SandboxWorkloadConfig { image: image.into(), ..Default::default() };
    let template = v1::SandboxWorkloadTemplate {
        metadata: Some(ObjectMeta { name: name.into(), ..Default::default() }),
        spec: Some(v1::SandboxWorkloadTemplateSpec { workload: Some(workload), ..Default::default() }),
    };
    v1::CreateSandboxTemplateRequest {
        workspace_scope: scope("w"),
        template: Some(template),
        request_id: request_id.into(),
    }
}

fn delete_template(name: &str, request_id: &str) -> v1::DeleteSandboxTemplateRequest {
    v1::DeleteSandboxTemplateRequest {
        workspace_scope: scope("w"),
        name: name.into(),
        request_id: request_id.into(),
        ..Default::default()
    }
}

fn from_template(sandbox: &str, template: &str, request_id: &str) -> v1::CreateSandboxRequest {
    v1::CreateSandboxRequest {
        workload_template: template.into(),
        spec: None,
        ..create_sandbox("w", sandbox, request_id)
    }
}

fn expose(name: &str, port: u32, request_id: &str) -> v1::ExposeServiceRequest {
    v1::ExposeServiceRequest {
        workspace_scope: scope("w"),
        sandbox: "box".into(),
        name: name.into(),
        target_port: port,
        request_id: request_id.into(),
        ..Default::default()
    }
}

fn delete_service(name: &str, request_id: &str) -> v1::DeleteServiceRequest {
    v1::DeleteServiceRequest {
        workspace_scope: scope("w"),
        sandbox: "box".into(),
        name: name.into(),
        request_id: request_id.into(),
        ..Default::default()
    }
}

fn exposing(services: &[&str], request_id: &str) -> v1::CreateSandboxRequest {
    let exposure = |service: &&str| v1::SandboxServiceExposure {
        service: (*service).into(),
        target_port: 8080,
        ..Default::default()
    };
    v1::CreateSandboxRequest {
        service_exposures: services.iter().map(exposure).collect(),
        ..create_sandbox("w", "box", request_id)
    }
}

async fn call(world: &World, method: Method, request: &impl Message) -> Told {
    world.edge.user_call(&root(), method, request).await
}

fn decoded<M: Message + Default>(told: Told) -> (M, bool) {
    let (body, replayed) = told.unwrap();
    (M::decode(body).unwrap(), replayed)
}

fn urls(told: Told) -> Vec<String> {
    decoded::<v1::SandboxResponse>(told).0.service_urls.into_values().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_templates_success_is_shown_again_and_its_deletion_spares_a_namesake() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let create = create_template("t", "one", &fresh_id());
    let (first, replayed) =
        decoded::<v1::SandboxTemplateResponse>(call(&world, Method::CreateSandboxTemplate, &create).await);
    assert!(!replayed);
    let again = decoded::<v1::SandboxTemplateResponse>(call(&world, Method::CreateSandboxTemplate, &create).await);
    assert_eq!(again, (first, true));
    let other = create_template("t", "two", &create.request_id);
    let mismatch = call(&world, Method::CreateSandboxTemplate, &other).await.unwrap_err();
    assert_eq!(reason(&mismatch), Some("REQUEST_ID_PAYLOAD_MISMATCH"));

    let delete = delete_template("t", &fresh_id());
    let (gone, _) =
        decoded::<v1::DeleteSandboxTemplateResponse>(call(&world, Method::DeleteSandboxTemplate, &delete).await);
    assert_eq!(gone.outcome(), DeletionOutcome::Completed);
    let unavailable = call(&world, Method::CreateSandboxTemplate, &create).await.unwrap_err();
    assert_eq!(reason(&unavailable), Some("REQUEST_REPLAY_UNAVAILABLE"));
    call(&world, Method::CreateSandboxTemplate, &create_template("t", "two", "")).await.unwrap();
    assert!(call(&world, Method::DeleteSandboxTemplate, &delete).await.unwrap().1);
    assert_eq!(world.count("workload_template").await, 1);
    // Templates are unprotected: their fingerprints need no key.
    assert_eq!(world.count("claim where protected or key_id <> ''").await, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_has_as_many_templates_as_it_may_however_many_come_at_once() {
    let mut world = World::with(2, &["--templates-per-workspace=5"]).await;
    world.workspace("w").await;
    let calls: Vec<_> = (0..16)
        .map(|at| {
            let (edge, request) = (world.edge.clone(), create_template(&format!("t-{at}"), "", ""));
            tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandboxTemplate, &request).await })
        })
        .collect();
    let mut made = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => made += 1,
            Err(refused) => assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}"),
        }
    }
    assert_eq!((made, world.count("workload_template").await), (5, 5));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_from_a_template_keeps_what_it_was_made_from() {
    let world = World::new().await;
    world.workspace("w").await;
    let missing = call(&world, Method::CreateSandbox, &from_template("box", "t", "")).await.unwrap_err();
    assert_eq!((missing.code(), missing.message()), (Code::NotFound, "template 't' does not exist"));

    call(&world, Method::CreateSandboxTemplate, &create_template("t", "image", "")).await.unwrap();
    let request = from_template("box", "t", &fresh_id());
    let made = sandbox_of(call(&world, Method::CreateSandbox, &request).await);
    assert_eq!(made.spec.as_ref().unwrap().template.as_ref().unwrap().image, "image");
    let provenance = made.created_from_workload_template.clone().unwrap();
    assert_eq!((provenance.name.as_str(), provenance.resource_version.as_str()), ("t", "1"));

    call(&world, Method::DeleteSandboxTemplate, &delete_template("t", "")).await.unwrap();
    let (shown, replayed) = decoded::<v1::SandboxResponse>(call(&world, Method::CreateSandbox, &request).await);
    assert!(replayed);
    assert_eq!(shown.sandbox.unwrap().created_from_workload_template, Some(provenance));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_is_made_from_a_template_that_stands_or_not_at_all() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    call(&world, Method::CreateSandboxTemplate, &create_template("t", "image", "")).await.unwrap();
    let calls: Vec<_> = (0..24)
        .map(|at| {
            let edge = world.edge.clone();
            tokio::spawn(async move {
                match at {
                    12 => edge.user_call(&root(), Method::DeleteSandboxTemplate, &delete_template("t", "")).await,
                    _ => {
                        let request = from_template(&format!("box-{at}"), "t", "");
                        edge.user_call(&root(), Method::CreateSandbox, &request).await
                    }
                }
            })
        })
        .collect();
    let mut made = 0;
    for (at, call) in calls.into_iter().enumerate() {
        match call.await.unwrap() {
            Ok(_) if at == 12 => {}
            Ok((body, _)) => {
                let sandbox = v1::SandboxResponse::decode(body).unwrap().sandbox.unwrap();
                assert!(sandbox.created_from_workload_template.is_some());
                made += 1;
            }
            Err(refused) => assert_eq!(refused.code(), Code::NotFound, "{refused:?}"),
        }
    }
    assert_eq!(world.count("sandbox where created_from is not null").await, made);
    assert_eq!((world.count("sandbox").await, world.count("workload_template").await), (made, 0));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exposure_is_shown_again_at_its_version_and_with_the_url_that_was_told() {
    let mut world = World::with(1, &[DOMAIN]).await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let request = expose("web", 8080, &fresh_id());
    let (first, replayed) = decoded::<v1::ServiceEndpointResponse>(call(&world, Method::ExposeService, &request).await);
    assert!(!replayed);
    assert_eq!(first.url, "https://w--box--web.apps.example.com/");
    let again = decoded::<v1::ServiceEndpointResponse>(call(&world, Method::ExposeService, &request).await);
    assert_eq!(again, (first.clone(), true));
    assert_eq!(world.count("claim where protected and key_id <> ''").await, 1);

    let (second, _) =
        decoded::<v1::ServiceEndpointResponse>(call(&world, Method::ExposeService, &expose("web", 9090, "")).await);
    let (one, two) = (first.endpoint.unwrap().metadata.unwrap(), second.endpoint.unwrap().metadata.unwrap());
    assert_eq!((one.id, one.created_time, one.resource_version), (two.id, two.created_time, 1));
    assert_eq!(two.resource_version, 2);
    let unavailable = call(&world, Method::ExposeService, &request).await.unwrap_err();
    assert_eq!(reason(&unavailable), Some("REQUEST_REPLAY_UNAVAILABLE"));

    let delete = delete_service("web", &fresh_id());
    call(&world, Method::DeleteService, &delete).await.unwrap();
    call(&world, Method::ExposeService, &expose("web", 1, "")).await.unwrap();
    assert!(call(&world, Method::DeleteService, &delete).await.unwrap().1);
    assert_eq!(world.count("service_endpoint").await, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_many_expose_at_once_is_one() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let calls: Vec<_> = (1..=16)
        .map(|port| {
            let (edge, request) = (world.edge.clone(), expose("web", port, ""));
            tokio::spawn(async move { edge.user_call(&root(), Method::ExposeService, &request).await })
        })
        .collect();
    let (mut ids, mut versions) = (BTreeSet::new(), BTreeSet::new());
    for call in calls {
        let metadata =
            decoded::<v1::ServiceEndpointResponse>(call.await.unwrap()).0.endpoint.unwrap().metadata.unwrap();
        ids.insert(metadata.id);
        versions.insert(metadata.resource_version);
    }
    assert_eq!((ids.len(), versions), (1, (1..=16).collect()));
    assert_eq!(world.sql.value("select resource_version from roadstead.service_endpoint").await, "16");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_come_and_go_with_their_sandbox() {
    let mut world = World::with(1, &[DOMAIN]).await;
    world.workspace("w").await;
    let request = exposing(&["", "web"], &fresh_id());
    let told = ["https://w--box.apps.example.com/", "https://w--box--web.apps.example.com/"];
    assert_eq!(urls(call(&world, Method::CreateSandbox, &request).await), told);
    assert_eq!(urls(call(&world, Method::CreateSandbox, &request).await), told);
    call(&world, Method::DeleteService, &delete_service("", "")).await.unwrap();
    assert_eq!(urls(call(&world, Method::CreateSandbox, &request).await), told[1..]);

    // A taken name makes neither a sandbox nor a service.
    let taken = call(&world, Method::CreateSandbox, &exposing(&["late"], "")).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    assert_eq!(world.sql.value("select string_agg(name, ' ') from roadstead.service_endpoint").await, "box--web");

    let delete = v1::DeleteSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    call(&world, Method::DeleteSandbox, &delete).await.unwrap();
    assert_eq!(world.count("service_endpoint").await, 0);
    let gone = call(&world, Method::CreateSandbox, &request).await.unwrap_err();
    assert_eq!(reason(&gone), Some("REQUEST_REPLAY_UNAVAILABLE"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_and_services_keep_a_workspace_and_are_told_by_their_kinds() {
    let mut world = World::new().await;
    world.workspace("w").await;
    call(&world, Method::CreateSandboxTemplate, &create_template("t", "", "")).await.unwrap();
    call(&world, Method::CreateSandbox, &exposing(&["web"], "")).await.unwrap();
    let delete = v1::DeleteWorkspaceRequest { name: "w".into(), ..Default::default() };
    let blocked = call(&world, Method::DeleteWorkspace, &delete).await.unwrap_err();
    assert_eq!(blocked.code(), Code::FailedPrecondition);
    assert!(blocked.message().contains("(sandbox, service, template)"), "{}", blocked.message());
    for refused in [
        call(&world, Method::CreateSandboxTemplate, &create_template("u", "", "")).await,
        call(&world, Method::ExposeService, &expose("more", 1, "")).await,
    ] {
        assert!(refused.unwrap_err().message().contains("being deleted"));
    }
    call(&world, Method::DeleteSandboxTemplate, &delete_template("t", "")).await.unwrap();
    call(&world, Method::DeleteService, &delete_service("web", "")).await.unwrap();
    let gone = v1::DeleteSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    call(&world, Method::DeleteSandbox, &gone).await.unwrap();
    call(&world, Method::DeleteWorkspace, &delete).await.unwrap();
    assert_eq!(world.count("workspace where name = 'w'").await, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_exposes_services_and_uses_templates_but_makes_none() {
    let world = World::new().await;
    world.workspace("w").await;
    let member = v1::AddWorkspaceMemberRequest {
        workspace_scope: scope("w"),
        principal_subject: "ann".into(),
        role: v1::WorkspaceRole::User.into(),
        ..Default::default()
    };
    call(&world, Method::AddWorkspaceMember, &member).await.unwrap();
    call(&world, Method::CreateSandboxTemplate, &create_template("t", "", "")).await.unwrap();
    let ann = user_named("ann", false);
    world.edge.user_call(&ann, Method::CreateSandbox, &from_template("box", "t", "")).await.unwrap();
    world.edge.user_call(&ann, Method::ExposeService, &expose("web", 1, "")).await.unwrap();
    world.edge.user_call(&ann, Method::DeleteService, &delete_service("web", "")).await.unwrap();
    for refused in [
        world.edge.user_call(&ann, Method::CreateSandboxTemplate, &create_template("u", "", "")).await,
        world.edge.user_call(&ann, Method::DeleteSandboxTemplate, &delete_template("t", "")).await,
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(refused.message().contains("workspace role 'admin' required"), "{}", refused.message());
    }
    world.stop().await;
}
