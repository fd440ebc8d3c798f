//! How the operations behind receipts end: each once, whatever comes later.

use roadstead_policy::compose::{Credential, Deployment, Inputs, Provider, compose};
use roadstead_proto::api::v1::{
    self, ConfigApplyOutcome as Outcome, ConfigUpdateOperationState as State, ConfigurationAdmissionState,
    SandboxConfigurationAdmission,
};
use roadstead_proto::internal::{EndSession, HalfResult, SessionResult};
use roadstead_proto::method::Method;
use roadstead_proto::subject::Report;
use uuid::Uuid;

use crate::readiness::{attach, update};
use crate::sessions::register;
use crate::world::{World, root, scope};

/// What the supervisor of the sandbox `box` says of what is composed for it now.
struct Said {
    admission: SandboxConfigurationAdmission,
    epoch: Uuid,
}

impl Said {
    async fn now(world: &mut World) -> Self {
        let provider = Provider {
            id: world.sql.value("select id from roadstead.provider").await,
            name: "p".into(),
            kind: "generic".into(),
            resource_version: world.sql.value("select resource_version from roadstead.provider").await.parse().unwrap(),
            config: Default::default(),
            credentials: vec![Credential { key: "TOKEN".into(), value: "x".into(), expires_at: None }],
        };
        let composed = compose(
            Inputs { providers: vec![provider], ..Default::default() },
            &Deployment::default(),
            std::time::SystemTime::now(),
        );
        let admission = SandboxConfigurationAdmission {
            state: ConfigurationAdmissionState::Accepted.into(),
            policy_hash: composed.config.policy_hash,
            config_revision: composed.config.config_revision,
            provider_env_revision: composed.config.provider_env_revision,
            ..Default::default()
        };
        let epoch = world.sql.value("select attachment_epoch from roadstead.sandbox").await.parse().unwrap();
        Self { admission, epoch }
    }

    fn result(&self, session: u128, number: u64, outcome: Outcome) -> SessionResult {
        let error = if outcome == Outcome::Applied { String::new() } else { "disk full".to_owned() };
        let attachment_epoch = self.epoch.as_bytes().to_vec().into();
        let half = Some(HalfResult { outcome: outcome.into(), error, attachment_epoch, ..Default::default() });
        let (config, environment) = (half.clone(), half);
        SessionResult {
            session_id: Uuid::from_u128(session).to_string(),
            number,
            config,
            environment,
            admission: Some(self.admission.clone()),
            ..Default::default()
        }
    }
}

async fn state(world: &mut World, receipt: &str) -> State {
    let sql = format!("select operation from roadstead.provider_receipt where id = '{receipt}'");
    State::try_from(world.sql.value(&sql).await.parse::<i32>().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_ends_once_over_late_results_lost_sessions_stops_and_restarts() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.provider("w", "p").await;
    let id = world.sandbox("w", "box").await.metadata.unwrap().id;
    let supervisor = world.supervisor(&id, 1);
    world.bridge.report(&supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
    let attached = attach(&world, "box", "").await.receipt.unwrap().receipt_id;
    assert_eq!(state(&mut world, &attached).await, State::Pending);

    // A word on equal content of earlier attachments is none on these.
    let said = Said::now(&mut world).await;
    let before = Said { epoch: Uuid::nil(), admission: said.admission.clone() };
    for result in [before.result(1, 1, Outcome::Applied), said.result(9, 9, Outcome::Applied)] {
        drop(world.bridge.report(&supervisor, Report::SessionResult, &result).await);
        assert_eq!(state(&mut world, &attached).await, State::Pending);
    }
    world.bridge.report(&supervisor, Report::SessionResult, &said.result(1, 3, Outcome::Applied)).await.unwrap();
    assert_eq!(state(&mut world, &attached).await, State::Applied);
    let again = attach(&world, "box", "").await.receipt.unwrap().receipt_id;
    assert_eq!(state(&mut world, &again).await, State::Applied, "equal content, and nobody will speak of it again");
    for (number, outcome) in [(2, Outcome::FailedClosed), (4, Outcome::FailedClosed)] {
        world.bridge.report(&supervisor, Report::SessionResult, &said.result(1, number, outcome)).await.unwrap();
        assert_eq!(state(&mut world, &attached).await, State::Applied, "{number}");
    }

    let target = |response: v1::ProviderResponse| response.target_receipts[0].receipt_id.clone();
    let failed = target(update(&world).await);
    world.bridge.report(&supervisor, Report::SessionResult, &said.result(1, 5, Outcome::Applied)).await.unwrap();
    assert_eq!(state(&mut world, &failed).await, State::Pending, "of the version before");
    let said = Said::now(&mut world).await;
    world.bridge.report(&supervisor, Report::SessionResult, &said.result(1, 6, Outcome::FailedClosed)).await.unwrap();
    world.bridge.report(&supervisor, Report::SessionResult, &said.result(1, 7, Outcome::Applied)).await.unwrap();
    assert_eq!(state(&mut world, &failed).await, State::Failed);
    let why = format!("select outcome, error from roadstead.provider_receipt where id = '{failed}'");
    assert_eq!(world.sql.run(&why).await, [["7", "disk full"]]);

    // What a session leaves pending, the next one ends, also behind another admission.
    let superseded = target(update(&world).await);
    let pending = target(update(&world).await);
    assert_eq!(state(&mut world, &superseded).await, State::Superseded);
    let end = |session: u128| EndSession {
        session_id: Uuid::from_u128(session).to_string(),
        number: 1,
        reason: String::new(),
    };
    world.bridge.report(&supervisor, Report::EndSession, &end(1)).await.unwrap();
    world.kill_all();
    world.start_replica().await;
    world.bridge.report(&supervisor, Report::RegisterSession, &register(2, 10, 2)).await.unwrap();
    assert_eq!(state(&mut world, &pending).await, State::Pending);
    let said = Said::now(&mut world).await;
    world.bridge.report(&supervisor, Report::SessionResult, &said.result(2, 1, Outcome::Applied)).await.unwrap();
    assert_eq!(state(&mut world, &pending).await, State::Applied);

    let inactive = target(update(&world).await);
    let stop = v1::StopSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::StopSandbox, &stop).await.unwrap();
    world.bridge.report(&supervisor, Report::EndSession, &end(2)).await.unwrap();
    let stopped = target(update(&world).await);
    let start = v1::StartSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::StartSandbox, &start).await.unwrap();
    let supervisor = world.supervisor(&id, 2);
    world.bridge.report(&supervisor, Report::RegisterSession, &register(3, 11, 1)).await.unwrap();
    let said = Said::now(&mut world).await;
    world.bridge.report(&supervisor, Report::SessionResult, &said.result(3, 1, Outcome::Applied)).await.unwrap();
    let cancelled = target(update(&world).await);
    let delete = v1::DeleteSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    let refused = target(update(&world).await);
    for (receipt, end) in [
        (&attached, State::Applied),
        (&again, State::Applied),
        (&failed, State::Failed),
        (&superseded, State::Superseded),
        (&pending, State::Applied),
        (&inactive, State::Inactive),
        (&stopped, State::Inactive),
        (&cancelled, State::Cancelled),
        (&refused, State::Cancelled),
    ] {
        assert_eq!(state(&mut world, receipt).await, end);
    }
    world.stop().await;
}
