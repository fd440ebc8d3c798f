//! Who may take a sandbox over from whom, and how fast.

use std::time::Duration;

use roadstead_e2e::api::client;
use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{
    ConfigApplyOutcome, ConfigUpdateResult, GatewayMessage, SandboxPhase, SupervisorHello, SupervisorMessage,
};
use roadstead_testkit::stack::{Plan, Role};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};
use uuid::Uuid;

use crate::world::{CROWD, SOON, World};

/// What a takeover with proof may take.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A session, held by hand.
struct Held {
    to_bridge: mpsc::Sender<SupervisorMessage>,
    from_bridge: Streaming<GatewayMessage>,
    session_id: String,
    first_update: String,
}

impl Held {
    async fn open(bridge: &str, token: &str, sandbox: &str, instance: Uuid, epoch: u64) -> Result<Self, Status> {
        let (to_bridge, messages) = mpsc::channel(8);
        let hello = SupervisorHello {
            sandbox_id: sandbox.to_owned(),
            instance_id: instance.to_string(),
            connection_epoch: epoch,
            supports_config_push: true,
            ..Default::default()
        };
        to_bridge.send(SupervisorMessage { payload: Some(Payload::Hello(hello)) }).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(messages));
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let mut from_bridge = client(bridge).connect_supervisor(request).await?.into_inner();
        match from_bridge.message().await?.and_then(|message| message.payload) {
            Some(FromBridge::SessionAccepted(accepted)) => {
                let first_update = accepted.bootstrap.map(|update| update.update_id).unwrap_or_default();
                Ok(Self { to_bridge, from_bridge, session_id: accepted.session_id, first_update })
            }
            other => panic!("it began with {other:?}"),
        }
    }

    async fn end(&mut self) -> Option<Status> {
        loop {
            match self.from_bridge.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }
}

async fn owner(world: &World, sandbox: &str) -> String {
    let mut session = world.stack.session().await;
    session.value(&format!("select coalesce(session_id::text, '') from roadstead.sandbox where id = '{sandbox}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_connection_of_the_same_instance_takes_over_at_once_and_nobody_else_does_while_the_owner_lives() {
    let world = World::start(Plan::single().replicas(Role::SupervisorBridge, 2)).await;
    let sandbox = world.sandbox("owned", &[]).await;
    let token = std::fs::read_to_string(world.stack.token(&world.workspace, "owned").await).unwrap();
    let token = token.trim();
    let (first, second) = (world.stack.bridge(1), world.stack.bridge(2));
    let (instance, stranger) = (Uuid::new_v4(), Uuid::new_v4());

    let mut old = Held::open(&first, token, &sandbox, instance, 5).await.unwrap();
    assert_eq!(owner(&world, &sandbox).await, old.session_id);
    for (bridge, who, epoch) in [
        (&second, stranger, 1),
        (&second, stranger, 99),
        (&first, stranger, 6),
        (&second, instance, 5),
        (&second, instance, 4),
        (&first, instance, 5),
    ] {
        let refused = Held::open(bridge, token, &sandbox, who, epoch).await.err().expect("it is refused");
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert_eq!(owner(&world, &sandbox).await, old.session_id);
    }

    let asked = Instant::now();
    let mut new = Held::open(&second, token, &sandbox, instance, 6).await.unwrap();
    assert!(asked.elapsed() <= AT_ONCE + CROWD, "it took {:?}", asked.elapsed());
    assert_eq!(owner(&world, &sandbox).await, new.session_id);

    // What the old session says counts no more, and saying it ends it.
    let installed = ConfigUpdateResult {
        update_id: old.first_update.clone(),
        outcome: ConfigApplyOutcome::Applied.into(),
        ..Default::default()
    };
    old.to_bridge.send(SupervisorMessage { payload: Some(Payload::ConfigUpdateResult(installed)) }).await.unwrap();
    let ended = timeout(SOON, old.end()).await.expect("the old session ends").expect("with a status");
    assert_eq!(ended.code(), Code::Aborted, "{ended}");
    assert_eq!(world.phase("owned").await, SandboxPhase::Provisioning);
    assert_eq!(owner(&world, &sandbox).await, new.session_id);

    // Once the owner has gone, anybody of the sandbox may have it.
    drop(new.to_bridge);
    assert!(timeout(SOON, async { while let Ok(Some(_)) = new.from_bridge.message().await {} }).await.is_ok());
    let deadline = Instant::now() + SOON;
    let other = loop {
        match Held::open(&first, token, &sandbox, stranger, 1).await {
            Ok(held) => break held,
            Err(status) => assert!(status.code() == Code::Aborted && Instant::now() < deadline, "{status}"),
        }
    };
    assert_eq!(owner(&world, &sandbox).await, other.session_id);
}

/// By when a supervisor whose bridge is gone has a session elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_whose_bridge_dies_or_cannot_clean_up_has_a_session_elsewhere_within_five_seconds() {
    let mut world = World::start(Plan::single().replicas(Role::SupervisorBridge, 2)).await;
    let watched = world.watch("moves");
    let supervised = world.ready_sandbox("moves", &[]).await;
    let mut status = supervised.supervisor.status();

    // TERM while it can reach nobody: the end of its sessions cannot be told.
    let bridge = world.stack.node(Role::SupervisorBridge, 1);
    bridge.nats.cut();
    bridge.victim().terminate();
    let moved =
        timeout(ELSEWHERE + CROWD, status.wait_for(|status| status.sessions == 2 && status.connection.is_some()));
    assert!(moved.await.is_ok(), "after TERM: {:?}", supervised.supervisor.status().borrow());

    world.stack.node_mut(Role::SupervisorBridge, 1).nats.heal();
    world.stack.node_mut(Role::SupervisorBridge, 1).crash().await;
    world.stack.node_mut(Role::SupervisorBridge, 2).kill().await;
    let moved =
        timeout(ELSEWHERE + CROWD, status.wait_for(|status| status.sessions == 3 && status.connection.is_some()));
    assert!(moved.await.is_ok(), "after KILL: {:?}", supervised.supervisor.status().borrow());

    world.until_phase("moves", SandboxPhase::Ready).await;
    assert!(!watched.seen().has_shown(SandboxPhase::Error), "{:?}", watched.seen());
}
