//! What a session observes of providers.

use std::time::{Duration, Instant};

use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::supervisor_message::Payload as ToBridge;
use roadstead_proto::api::v1::{ProviderReadinessObservation, ReportProviderReadinessRequest, SupervisorHello};
use roadstead_proto::internal::{RegisterSession, SessionReadiness, StandingReply};
use roadstead_service_kit::status::Code as Answered;
use roadstead_supervisor::Behaviour;
use roadstead_supervisor_bridge::readiness::OBSERVATION_TTL;
use roadstead_testkit::eventually;
use secrecy::SecretString;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::calls::{connect, hello};
use crate::desk::refusal;
use crate::shelf::Content;
use crate::world::{BridgeProcess, LONG, World, with_token};

fn seen(session: &str, sequence: u64, config_revision: u64) -> ProviderReadinessObservation {
    let id = Uuid::from_u128(9).to_string();
    ProviderReadinessObservation {
        session_id: session.to_owned(),
        sequence,
        attachment_epoch: id.clone(),
        config_revision,
        process_instance_id: id,
        ..Default::default()
    }
}

async fn report(
    bridge: &BridgeProcess,
    token: &SecretString,
    sandbox_id: Uuid,
    observation: ProviderReadinessObservation,
) -> Result<u64, Status> {
    let request = ReportProviderReadinessRequest { sandbox_id: sandbox_id.to_string(), observation: Some(observation) };
    let told = bridge.client().await.report_provider_readiness(with_token(request, token)).await?;
    Ok(told.into_inner().accepted_sequence)
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_hears_of_changes_and_of_a_lapse_and_of_nothing_between() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let own = Uuid::new_v4();
    world.shelf.put(own, &Content::version(1)).await;
    let ToBridge::Hello(greeting) = hello(own) else { panic!() };
    let greeting = SupervisorHello { supports_provider_readiness: true, ..greeting };
    let (_sender, mut inbound) = connect(&world, &bridge, own, vec![ToBridge::Hello(greeting)]).await.unwrap();
    let first = inbound.message().await.unwrap().unwrap().payload;
    let Some(FromBridge::SessionAccepted(accepted)) = first else { panic!("{first:?}") };
    let (session, token) = (accepted.session_id, world.fresh_token(own));
    assert!(world.desk.wait::<RegisterSession>("RegisterSession", 0).await.provider_readiness);

    // It is told until it is heard, with its number.
    world.desk.answer_next("SessionReadiness", refusal(Answered::Unavailable, "not now"));
    assert_eq!(report(&bridge, &token, own, seen(&session, 1, 5)).await.unwrap(), 1);
    for place in 0..2 {
        let told: SessionReadiness = world.desk.wait("SessionReadiness", place).await;
        assert_eq!((told.number, told.observation.unwrap().config_revision), (1, 5));
    }
    let last = Instant::now();
    for sequence in 2..20 {
        report(&bridge, &token, own, seen(&session, sequence, 5)).await.unwrap();
    }
    for (observation, code) in [
        (seen(&session, 18, 5), Code::FailedPrecondition),
        (seen(&session, 19, 6), Code::FailedPrecondition),
        (seen(&session, 0, 6), Code::InvalidArgument),
        (seen(&Uuid::new_v4().to_string(), 20, 6), Code::FailedPrecondition),
        (ProviderReadinessObservation { attachment_epoch: "x".into(), ..seen(&session, 20, 6) }, Code::InvalidArgument),
    ] {
        assert_eq!(report(&bridge, &token, own, observation).await.unwrap_err().code(), code);
    }
    let other = Uuid::new_v4();
    let foreign = report(&bridge, &world.fresh_token(other), own, seen(&session, 20, 6)).await.unwrap_err();
    assert_eq!(foreign.code(), Code::PermissionDenied);
    let foreign = report(&bridge, &world.fresh_token(other), other, seen(&session, 20, 6)).await.unwrap_err();
    assert_eq!(foreign.code(), Code::FailedPrecondition, "a session of another sandbox is nobody's here");

    // Nothing more is said; nothing but time tells that it is too old.
    let lapsed: SessionReadiness = world.desk.wait("SessionReadiness", 2).await;
    assert_eq!((lapsed.number, lapsed.observation), (2, None));
    assert!(last.elapsed() >= OBSERVATION_TTL && last.elapsed() < OBSERVATION_TTL + Duration::from_secs(5));
    report(&bridge, &token, own, seen(&session, 20, 5)).await.unwrap();
    let again: SessionReadiness = world.desk.wait("SessionReadiness", 3).await;
    assert_eq!((again.number, again.observation.unwrap().sequence), (3, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_asks_once_who_holds_a_session_that_speaks_to_it() {
    let world = World::new().await;
    let (holder, other) = (world.bridge(&[]).await, world.bridge(&[]).await);
    let own = Uuid::new_v4();
    world.shelf.put(own, &Content::version(1)).await;
    let ToBridge::Hello(greeting) = hello(own) else { panic!() };
    let greeting = SupervisorHello { supports_provider_readiness: true, ..greeting };
    let stream = connect(&world, &holder, own, vec![ToBridge::Hello(greeting)]).await.unwrap();
    let registered: RegisterSession = world.desk.wait("RegisterSession", 0).await;
    let (session, token) = (registered.session_id.clone(), world.fresh_token(own));
    *world.shelf.standing.lock().unwrap() =
        (StandingReply { session_id: registered.session_id, bridge_id: registered.bridge_id }, 0);
    let asked = || world.shelf.standing.lock().unwrap().1;

    for sequence in 1..6 {
        assert_eq!(report(&other, &token, own, seen(&session, sequence, 5)).await.unwrap(), sequence);
    }
    assert_eq!(asked(), 1);
    let told: SessionReadiness = world.desk.wait("SessionReadiness", 0).await;
    assert_eq!(told.session_id, session);
    let invalid = report(&other, &token, own, seen(&session, 0, 5)).await.unwrap_err();
    assert_eq!((invalid.code(), asked()), (Code::InvalidArgument, 1), "the holder has said so itself");

    // The session ends: its holder knows nothing of it any more, and what was remembered is not believed for ever.
    drop(stream);
    *world.shelf.standing.lock().unwrap() = (StandingReply::default(), 0);
    eventually(LONG, "the session is nobody's", || async {
        let refused = report(&other, &token, own, seen(&session, 6, 5)).await.err()?;
        (refused.code() == Code::FailedPrecondition && asked() > 0).then_some(())
    })
    .await;
    let before = asked();
    assert_eq!(report(&other, &token, own, seen(&session, 7, 5)).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(asked(), before + 1, "nothing is remembered of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_did_not_announce_it_may_not_report_readiness_and_the_kits_supervisor_does_both() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (silent, _watched) = world.supervised(&bridge, Behaviour::Apply).await;
    let session = world.desk.session(silent).unwrap();
    let refused = report(&bridge, &world.fresh_token(silent), silent, seen(&session, 1, 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");

    let observing = Uuid::new_v4();
    world.shelf.put(observing, &Content::version(1)).await;
    let watched = world.supervisor(&[&bridge], observing, |settings| settings.reports_readiness = true);
    let told: SessionReadiness = world.desk.wait("SessionReadiness", 0).await;
    assert_eq!(Some(told.session_id), world.desk.session(observing));
    watched.applied(1).await;
}
