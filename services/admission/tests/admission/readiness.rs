//! Receipts of changes of providers, and what sessions observe.

use prost::Message as _;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1::{self, ProviderReadinessObservation};
use roadstead_proto::internal::{RegisterSession, SessionReadiness};
use roadstead_proto::method::Method;
use roadstead_proto::subject::Report;
use tonic::Code;
use uuid::Uuid;

use crate::sessions::register;
use crate::world::{World, root, scope};

pub(crate) async fn attach(world: &World, sandbox: &str, request_id: &str) -> v1::AttachSandboxProviderResponse {
    let request = v1::AttachSandboxProviderRequest {
        workspace_scope: scope("w"),
        sandbox: sandbox.into(),
        provider: "p".into(),
        request_id: request_id.into(),
        ..Default::default()
    };
    let (body, _) = world.edge.user_call(&root(), Method::AttachSandboxProvider, &request).await.unwrap();
    v1::AttachSandboxProviderResponse::decode(body).unwrap()
}

pub(crate) async fn update(world: &World) -> v1::ProviderResponse {
    let metadata = Some(ObjectMeta { name: "p".into(), ..Default::default() });
    let credentials = [("TOKEN".to_owned(), "y".to_owned())].into();
    let provider = Some(Provider { metadata, credentials, ..Default::default() });
    let request = v1::UpdateProviderRequest { workspace_scope: scope("w"), provider, ..Default::default() };
    let (body, _) = world.edge.user_call(&root(), Method::UpdateProvider, &request).await.unwrap();
    v1::ProviderResponse::decode(body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_that_was_told_is_kept_once_among_the_newest_of_its_sandbox_and_goes_with_it() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.provider("w", "p").await;
    for name in ["one", "two"] {
        world.sandbox("w", name).await;
    }
    let id = Uuid::new_v4().to_string();
    let first = attach(&world, "one", &id).await.receipt.unwrap();
    assert_eq!(attach(&world, "one", &id).await.receipt.as_ref(), Some(&first), "shown again, and not written again");
    let again = attach(&world, "one", "").await;
    assert!(!again.attached);
    assert_eq!(again.receipt.as_ref(), Some(&first), "no change, so the receipt that stands");
    attach(&world, "two", "").await;
    assert_eq!(world.count("provider_receipt").await, 2);
    let of_first = format!(
        "select count(*) from roadstead.provider_receipt where id = '{}' and attachment_epoch = '{}' and kind = 1",
        first.receipt_id,
        first.desired.unwrap().attachment_epoch
    );
    assert_eq!(world.sql.value(&of_first).await, "1");

    let updated = update(&world).await;
    assert_eq!(updated.target_receipts.len(), 2);
    for receipt in &updated.target_receipts {
        assert_eq!(receipt.mutation_id, updated.mutation_id);
        assert_eq!(receipt.desired.as_ref().unwrap().provider_resource_version, 2);
    }

    // As many as a sandbox keeps, and then some.
    world
        .sql
        .run(
            "insert into roadstead.provider_receipt (id, sandbox_id, mutation_id, kind, provider_id, provider_name,
                provider_version, attachment_epoch, persisted_at)
             select gen_random_uuid(), s.id, gen_random_uuid(), 3, gen_random_uuid(), 'p', 1, s.attachment_epoch, now()
             from roadstead.sandbox s, generate_series(1, 205) where s.name = 'one'",
        )
        .await;
    update(&world).await;
    let of = |name: &str| {
        format!(
            "select count(*) from roadstead.provider_receipt r join roadstead.sandbox s on s.id = r.sandbox_id
             where s.name = '{name}'"
        )
    };
    assert_eq!(world.sql.value(&of("one")).await, "200");
    assert_eq!(world.sql.value(&of("two")).await, "3");
    let newest = attach(&world, "two", "").await.receipt.unwrap();
    assert_eq!(newest.desired.unwrap().provider_resource_version, 3, "as the newest version's update left it");
    assert_eq!(world.sql.value(&of("two")).await, "3");
    assert_eq!(world.sql.value(&of_first).await, "0", "the oldest went");

    let delete = v1::DeleteSandboxRequest { name: "one".into(), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    assert_eq!(world.count("provider_receipt").await, 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_observes_is_fenced_by_it_and_touches_no_object() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let id = world.sandbox("w", "box").await.metadata.unwrap().id;
    let supervisor = world.supervisor(&id, 1);
    let observe = |session: u128, number: u64, observed: bool| SessionReadiness {
        session_id: Uuid::from_u128(session).to_string(),
        number,
        observation: observed.then(|| ProviderReadinessObservation { sequence: number, ..Default::default() }),
    };
    let announced = |session, epoch| RegisterSession { provider_readiness: true, ..register(session, 10, epoch) };
    let kept = "select session_id, readiness_number, readiness is not null from roadstead.observation";
    let version = "select resource_version from roadstead.sandbox";

    world.bridge.report(&supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
    let refused = world.bridge.report(&supervisor, Report::SessionReadiness, &observe(1, 1, true)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "it was not announced");

    world.bridge.report(&supervisor, Report::RegisterSession, &announced(2, 2)).await.unwrap();
    world.quiet().await;
    let before = world.sql.value(version).await;
    for (number, observed) in [(1, true), (3, true), (2, false)] {
        world.bridge.report(&supervisor, Report::SessionReadiness, &observe(2, number, observed)).await.unwrap();
    }
    let late = world.bridge.report(&supervisor, Report::SessionReadiness, &observe(1, 9, true)).await.unwrap_err();
    assert_eq!(late.code(), Code::Aborted, "another session's by now");
    let row = |session: u128, number: &str, observed: &str| {
        [[Uuid::from_u128(session).to_string(), number.to_owned(), observed.to_owned()]]
    };
    assert_eq!(world.sql.run(kept).await, row(2, "3", "t"));
    assert_eq!((world.sql.value(version).await, world.count("outbox").await), (before, 0), "nobody is told");

    world.bridge.report(&supervisor, Report::SessionReadiness, &observe(2, 4, false)).await.unwrap();
    assert_eq!(world.sql.run(kept).await, row(2, "4", "f"), "a lapse");
    world.bridge.report(&supervisor, Report::RegisterSession, &announced(3, 3)).await.unwrap();
    assert_eq!(world.sql.run(kept).await, row(3, "0", "f"), "the next session begins with nothing");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoint_statuses_are_shown_replaced_and_gone_with_their_session() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let id = world.sandbox("w", "box").await.metadata.unwrap().id;
    let supervisor = world.supervisor(&id, 1);
    let report = |session: u128, report_sequence: u64, ids: &[&str]| v1::ReportEndpointStatusRequest {
        sandbox_id: id.clone(),
        supervisor_session_id: Uuid::from_u128(session).to_string(),
        report_sequence,
        observed_endpoint_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    };
    let shown = "select encode(status, 'escape') like '%endpoint-%' from roadstead.sandbox";
    world.bridge.report(&supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
    world.bridge.report(&supervisor, Report::ReportEndpointStatus, &report(1, 5, &["endpoint-1"])).await.unwrap();
    assert_eq!(world.sql.value(shown).await, "t");
    for (session, sequence) in [(1, 4), (2, 9)] {
        let late = report(session, sequence, &[]);
        let refused = world.bridge.report(&supervisor, Report::ReportEndpointStatus, &late).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{session} {sequence}");
    }
    assert_eq!(world.sql.value(shown).await, "t");
    world.bridge.report(&supervisor, Report::RegisterSession, &register(3, 10, 2)).await.unwrap();
    assert_eq!(world.sql.value(shown).await, "f", "what another session saw says nothing any more");
    world.bridge.report(&supervisor, Report::ReportEndpointStatus, &report(3, 1, &["endpoint-2"])).await.unwrap();
    assert_eq!(world.sql.value(shown).await, "t");
    world.stop().await;
}
