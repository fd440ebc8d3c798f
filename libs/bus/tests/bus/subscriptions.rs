use bytes::Bytes;
use roadstead_proto::role::Role;
use tokio::task::JoinSet;

use crate::world::{LONG, World};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_after_an_effective_subscription_is_received() {
    const ROUNDS: usize = 300;
    let world = World::new().await;
    let (listener, speaker) = (world.bus(Role::Edge).await, world.bus(Role::Watch).await);
    let mut rounds = JoinSet::new();
    for round in 0..ROUNDS {
        let (listener, speaker) = (listener.clone(), speaker.clone());
        rounds.spawn(async move {
            let subject = format!("test.{round}");
            let mut subscription = listener.subscribe_effective(subject.clone()).await.unwrap();
            speaker.publish(subject.clone(), Bytes::from(round.to_string())).await.unwrap();
            let message = tokio::time::timeout(LONG, subscription.next()).await.expect("a message was lost").unwrap();
            assert_eq!((message.subject, message.payload), (subject, Bytes::from(round.to_string())));
        });
    }
    while let Some(round) = rounds.join_next().await {
        round.unwrap();
    }
}

#[tokio::test]
async fn a_subscription_made_while_the_broker_is_away_is_effective_when_it_returns() {
    let mut world = World::new().await;
    let (listener, speaker) = (world.bus(Role::Edge).await, world.bus(Role::Watch).await);
    world.broker.stop().await;
    let subscribing = tokio::spawn({
        let listener = listener.clone();
        async move { listener.subscribe_effective("test.away").await }
    });
    world.broker.resume().await;
    let mut subscription = tokio::time::timeout(LONG, subscribing).await.unwrap().unwrap().unwrap();
    tokio::time::timeout(LONG, speaker.connected()).await.unwrap();
    speaker.publish("test.away", "here".into()).await.unwrap();
    assert_eq!(tokio::time::timeout(LONG, subscription.next()).await.unwrap().unwrap().payload, "here");
}
