//! How ready the providers of a sandbox are, as its users are told.

use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1::{
    AttachSandboxProviderRequest, ConfigUpdateOperationState, DetachSandboxProviderRequest, EndpointObservation,
    EndpointResult, GetSandboxProviderStatusRequest, GetSandboxRequest, ProviderDesiredIdentity, ProviderMutationKind,
    ProviderMutationReceipt, ProviderReadinessObservation, ProviderReadinessReason as Reason,
    ProviderReadinessState as State, ProviderReadinessStatus, ReportEndpointStatusRequest,
    ReportProviderReadinessRequest, ReportProviderReadinessResponse, UpdateProviderRequest,
};
use roadstead_supervisor::Settings;
use roadstead_testkit::eventually;
use roadstead_testkit::stack::{Plan, Role};
use tonic::{Code, Request, Status};
use uuid::Uuid;

use crate::world::{SOON, Supervised, World};
use roadstead_e2e::Held;

const NAME: &str = "observed";

impl World {
    async fn attach(&self, provider: &str) -> ProviderMutationReceipt {
        let request = AttachSandboxProviderRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: NAME.to_owned(),
            provider: provider.to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        self.api().attach_sandbox_provider(request).await.unwrap().into_inner().receipt.unwrap()
    }

    async fn detach(&self, provider: &str) -> ProviderMutationReceipt {
        let request = DetachSandboxProviderRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: NAME.to_owned(),
            provider: provider.to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        self.api().detach_sandbox_provider(request).await.unwrap().into_inner().receipt.unwrap()
    }

    async fn asked(&self, edge: usize, provider: &str, receipt: &str) -> Result<ProviderReadinessStatus, Status> {
        let request = GetSandboxProviderStatusRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: NAME.to_owned(),
            provider: provider.to_owned(),
            receipt_id: receipt.to_owned(),
        };
        let answer = client(&self.stack.edge(edge)).get_sandbox_provider_status(request).await?;
        Ok(answer.into_inner().status.unwrap())
    }

    /// State and reason of a receipt.
    async fn state(&self, receipt: &str) -> (State, Reason) {
        let status = self.asked(1, "", receipt).await.unwrap();
        (status.state(), status.reason())
    }

    /// Waits for the end of the operation behind a receipt.
    async fn until_applied(&self, receipt: &str) {
        eventually(SOON, "the operation is applied", async || {
            let status = self.asked(1, "", receipt).await.map_err(|status| status.to_string())?;
            let operation = status.operation.unwrap();
            if operation.state() == ConfigUpdateOperationState::Applied {
                Ok(())
            } else {
                Err(format!("{operation:?}"))
            }
        })
        .await;
    }

    async fn until_state(&self, receipt: &str, state: State) -> ProviderReadinessStatus {
        eventually(SOON, &format!("the receipt is {state:?}"), async || {
            let status = self.asked(1, "", receipt).await.map_err(|status| status.to_string())?;
            if status.state() == state { Ok(status) } else { Err(format!("it is {status:?}")) }
        })
        .await
    }

    /// A supervisor's word on its providers, to one of the bridges.
    async fn observe(
        &self,
        bridge: usize,
        token: &str,
        sandbox_id: &str,
        observation: ProviderReadinessObservation,
    ) -> Result<ReportProviderReadinessResponse, Status> {
        let message =
            ReportProviderReadinessRequest { sandbox_id: sandbox_id.to_owned(), observation: Some(observation) };
        let answer = client(&self.stack.bridge(bridge)).report_provider_readiness(with_token(message, token)).await;
        answer.map(tonic::Response::into_inner)
    }
}

fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

/// All that is desired, installed.
fn installed(session: &str, sequence: u64, desired: &ProviderDesiredIdentity) -> ProviderReadinessObservation {
    ProviderReadinessObservation {
        session_id: session.to_owned(),
        sequence,
        attachment_epoch: desired.attachment_epoch.clone(),
        provider_env_revision: desired.provider_env_revision,
        config_revision: desired.config_revision,
        policy_hash: desired.policy_hash.clone(),
        credentials_installed: true,
        policy_active: true,
        launch_environment_installed: true,
        process_instance_id: Uuid::from_u128(9).to_string(),
        reason: Reason::Unspecified.into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_ready_once_its_supervisor_has_it_and_revoked_once_it_is_gone() {
    let world = World::start(Plan::single().replicas(Role::Edge, 2).replicas(Role::ConfigSnapshot, 2)).await;
    world.provider("first", "FIRST_TOKEN").await;
    world.sandbox(NAME, &[]).await;
    let attached = world.attach("first").await.receipt_id;
    world.set_policy(NAME, to_host("git.example.com", Some("first"))).await;
    assert_eq!(world.state(&attached).await, (State::Persisted, Reason::WaitingForSupervisor));
    let looked = world.asked(1, "first", "").await.unwrap().receipt.unwrap();
    assert_eq!(looked.kind(), ProviderMutationKind::Observe);

    let settings = world.settings(NAME).await;
    let supervised = Supervised::start(Settings { reports_readiness: true, ..settings });
    let ready = world.until_state(&attached, State::Ready).await;
    world.until_applied(&attached).await;
    let (receipt, observed) = (ready.receipt.unwrap(), ready.observed.unwrap());
    let desired = receipt.desired.unwrap();
    assert_eq!(
        (desired.provider_env_revision, desired.config_revision, &desired.policy_hash, &desired.attachment_epoch),
        (observed.provider_env_revision, observed.config_revision, &observed.policy_hash, &observed.attachment_epoch),
    );
    assert!(desired.provider_env_revision > 0 && desired.config_revision > 0 && !desired.policy_hash.is_empty());
    // A receipt of looking holds on every edge.
    assert_eq!(world.asked(2, "first", &looked.receipt_id).await.unwrap().state(), State::Ready);
    for (provider, receipt) in [("other", attached.as_str()), ("", "x"), ("other", "")] {
        assert_eq!(world.asked(1, provider, receipt).await.unwrap_err().code(), Code::NotFound, "{provider} {receipt}");
    }

    // Something newer takes the place of both, and gets there itself.
    let provider = Provider {
        metadata: Some(ObjectMeta { name: "first".into(), ..Default::default() }),
        credentials: [("FIRST_TOKEN".to_owned(), request_id())].into(),
        ..Default::default()
    };
    let request = UpdateProviderRequest {
        workspace_scope: scope(&world.workspace),
        provider: Some(provider),
        request_id: request_id(),
        ..Default::default()
    };
    let updated = world.api().update_provider(request).await.unwrap().into_inner();
    let [target] = updated.target_receipts.as_slice() else { panic!("{:?}", updated.target_receipts) };
    assert_eq!(target.mutation_id, updated.mutation_id);
    for old in [&attached, &looked.receipt_id] {
        assert_eq!(world.state(old).await, (State::Superseded, Reason::DesiredStateChanged));
    }
    world.until_applied(&attached).await;
    world.until_state(&target.receipt_id, State::Ready).await;

    // Without an endpoint for it the provider's credential is held back.
    world.set_policy(NAME, to_host("git.example.com", None)).await;
    let withheld = world.until_state(&target.receipt_id, State::Withheld).await;
    assert_eq!(withheld.reason(), Reason::CredentialsWithheld);

    let detached = world.detach("first").await.receipt_id;
    assert_eq!(world.state(&target.receipt_id).await.0, State::Superseded);
    world.until_state(&detached, State::Revoked).await;
    world.until_applied(&detached).await;
    assert_eq!(world.asked(1, "first", "").await.unwrap_err().code(), Code::NotFound, "nothing is desired of it");

    supervised.supervisor.stop().await;
    let gone = world.until_state(&detached, State::Pending).await;
    assert_eq!(gone.reason(), Reason::SupervisorDisconnected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_observed_counts_while_it_is_the_sandboxs() {
    let mut world = World::start(Plan::single().replicas(Role::SupervisorBridge, 2)).await;
    world.provider("first", "FIRST_TOKEN").await;
    let sandbox = world.sandbox(NAME, &["first"]).await;
    world.set_policy(NAME, to_host("git.example.com", Some("first"))).await;
    let (token, instance) = (world.token(NAME).await, Uuid::new_v4());
    let receipt = world.asked(1, "first", "").await.unwrap().receipt.unwrap();

    let first = Held::open(&world.stack.bridge(1), &token, &sandbox, instance, 1).await.unwrap();
    let status = world.asked(1, "", &receipt.receipt_id).await.unwrap();
    assert_eq!((status.state(), status.reason()), (State::Pending, Reason::WaitingForSupervisor));
    let desired = status.receipt.unwrap().desired.unwrap();

    let seen = installed(&first.session_id, 1, &desired);
    let partly = ProviderReadinessObservation { launch_environment_installed: false, ..seen.clone() };
    let told = world.observe(1, &token, &sandbox, partly.clone()).await.unwrap();
    let seconds = |duration: Option<prost_types::Duration>| duration.unwrap().seconds;
    assert_eq!((told.accepted_sequence, seconds(told.report_interval), seconds(told.observation_ttl)), (1, 5, 15));
    eventually(SOON, "what is missing is told", async || {
        let state = world.state(&receipt.receipt_id).await;
        if state == (State::Pending, Reason::WaitingForProcess) { Ok(()) } else { Err(format!("{state:?}")) }
    })
    .await;
    world.observe(2, &token, &sandbox, partly).await.expect("a retry is safe, and any bridge finds the session");
    let changed = world.observe(2, &token, &sandbox, seen.clone()).await.unwrap_err();
    assert_eq!(changed.code(), Code::FailedPrecondition, "{changed}");
    world.observe(2, &token, &sandbox, ProviderReadinessObservation { sequence: 2, ..seen.clone() }).await.unwrap();
    world.until_state(&receipt.receipt_id, State::Ready).await;

    // Its bridge dies; what it observed ends with the session that takes its place.
    world.stack.node_mut(Role::SupervisorBridge, 1).kill().await;
    let second = Held::open(&world.stack.bridge(2), &token, &sandbox, instance, 2).await.unwrap();
    assert_eq!(world.state(&receipt.receipt_id).await, (State::Pending, Reason::WaitingForSupervisor));
    let late = ProviderReadinessObservation { sequence: 3, ..seen };
    let refused = world.observe(2, &token, &sandbox, late).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    world.observe(2, &token, &sandbox, installed(&second.session_id, 1, &desired)).await.unwrap();
    world.until_state(&receipt.receipt_id, State::Ready).await;

    // What it has seen at endpoints is shown by the sandbox.
    let report = |sequence, result: EndpointResult| {
        let endpoint_id = "git".to_owned();
        ReportEndpointStatusRequest {
            sandbox_id: sandbox.clone(),
            supervisor_session_id: second.session_id.clone(),
            report_sequence: sequence,
            observations: vec![EndpointObservation { endpoint_id, result: result.into(), failure: None }],
            ..Default::default()
        }
    };
    let mut bridge = client(&world.stack.bridge(2));
    let answered = report(2, EndpointResult::HttpResponseReceived);
    bridge.report_endpoint_status(with_token(answered, &token)).await.unwrap();
    let late = bridge.report_endpoint_status(with_token(report(1, EndpointResult::TlsFailed), &token)).await;
    assert_eq!(late.unwrap_err().code(), Code::FailedPrecondition);
    let request = GetSandboxRequest { workspace_scope: scope(&world.workspace), name: NAME.to_owned() };
    let shown = world.api().get_sandbox(request).await.unwrap().into_inner().sandbox.unwrap().status.unwrap();
    let [endpoint] = shown.endpoint_statuses.as_slice() else { panic!("{:?}", shown.endpoint_statuses) };
    assert_eq!((endpoint.endpoint_id.as_str(), endpoint.last_result()), ("git", EndpointResult::HttpResponseReceived));
    assert!(endpoint.last_reported_time.is_some());
}
