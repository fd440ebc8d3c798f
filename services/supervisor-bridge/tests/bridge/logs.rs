//! `PushSandboxLogs`.

use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_bus::activity::{Feed, News};
use roadstead_proto::activity::{Activity, Kind};
use roadstead_proto::api::v1::{PushSandboxLogsRequest, SandboxLogLine};
use roadstead_proto::internal::ActivityLine;
use roadstead_proto::internal::activity_line::Content;
use roadstead_supervisor_bridge::logs::allowance::{BATCH, LINES};
use roadstead_testkit::eventually;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::world::{BridgeProcess, LONG, World, with_token};

type Pushing = (mpsc::Sender<PushSandboxLogsRequest>, JoinHandle<Result<(), Status>>);

async fn push(world: &World, bridge: &BridgeProcess, token_of: Uuid) -> Pushing {
    push_with(bridge, &world.fresh_token(token_of)).await
}

async fn push_with(bridge: &BridgeProcess, token: &secrecy::SecretString) -> Pushing {
    let (sender, receiver) = mpsc::channel(1);
    let request = with_token(ReceiverStream::new(receiver), token);
    let mut client = bridge.client().await;
    (sender, tokio::spawn(async move { client.push_sandbox_logs(request).await.map(drop) }))
}

fn batch(sandbox_id: Uuid, messages: impl IntoIterator<Item = String>) -> PushSandboxLogsRequest {
    let line = |message| SandboxLogLine { message, source: "gateway".to_owned(), ..Default::default() };
    PushSandboxLogsRequest { sandbox_id: sandbox_id.to_string(), logs: messages.into_iter().map(line).collect() }
}

async fn end((sender, call): Pushing) -> Result<(), Status> {
    drop(sender);
    tokio::time::timeout(LONG, call).await.unwrap().unwrap()
}

/// Listens to what is stored of a sandbox.
async fn listen(world: &World, sandbox_id: Uuid) -> impl AsyncFnMut() -> SandboxLogLine {
    let mut feed = Feed::follow(&world.edge).await.unwrap();
    async move || {
        loop {
            let news = tokio::time::timeout(LONG, feed.next()).await.expect("a line").unwrap();
            let News::Stored { line, .. } = news else { panic!("no gap") };
            if line.of != (Activity { sandbox_id, kind: Kind::Log }) {
                continue;
            }
            match ActivityLine::decode(line.payload).unwrap().content {
                Some(Content::Log(line)) => return line,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_stored_in_their_order_and_say_whose_they_are() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let id = Uuid::new_v4();
    let mut next = listen(&world, id).await;
    let pushing = push(&world, &bridge, id).await;
    for first in [0, 50] {
        pushing.0.send(batch(id, (first..first + 50).map(|number| number.to_string()))).await.unwrap();
    }
    end(pushing).await.unwrap();
    for number in 0..100 {
        let line = next().await;
        assert_eq!((line.message, line.source), (number.to_string(), "sandbox".to_owned()));
        assert_eq!(line.sandbox_id, id.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_of_one_sandbox_and_its_own() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (own, other) = (Uuid::new_v4(), Uuid::new_v4());
    for named in [other.to_string(), String::new()] {
        let pushing = push(&world, &bridge, own).await;
        pushing.0.send(PushSandboxLogsRequest { sandbox_id: named, logs: Vec::new() }).await.unwrap();
        assert_eq!(end(pushing).await.unwrap_err().code(), Code::PermissionDenied);
    }
    let mut next = listen(&world, own).await;
    let pushing = push(&world, &bridge, own).await;
    pushing.0.send(batch(own, ["first".to_owned()])).await.unwrap();
    assert_eq!(next().await.message, "first");
    pushing.0.send(batch(other, ["stolen".to_owned()])).await.unwrap();
    assert_eq!(end(pushing).await.unwrap_err().code(), Code::PermissionDenied);

    let expired = world.token(own, Duration::from_secs(7200), Duration::from_secs(900));
    let (_sender, call) = push_with(&bridge, &expired).await;
    assert_eq!(tokio::time::timeout(LONG, call).await.unwrap().unwrap().unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_is_dropped_and_said_and_harms_nobody_else() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (loud, quiet) = (Uuid::new_v4(), Uuid::new_v4());
    let (mut of_loud, mut of_quiet) = (listen(&world, loud).await, listen(&world, quiet).await);
    let pushing = push(&world, &bridge, loud).await;
    // All at once more than may come in a second.
    let batches = 3 * LINES as usize / BATCH;
    let begun = Instant::now();
    for _ in 0..batches {
        pushing.0.send(batch(loud, (0..BATCH).map(|number| number.to_string()))).await.unwrap();
    }
    let calm = push(&world, &bridge, quiet).await;
    calm.0.send(batch(quiet, ["calm".to_owned()])).await.unwrap();
    end(calm).await.unwrap();
    assert_eq!(of_quiet().await.message, "calm");

    end(pushing).await.unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    let (mut kept, mut dropped) = (0, 0);
    while kept + dropped < batches * BATCH {
        let line = of_loud().await;
        match line.fields.get("dropped") {
            Some(count) => {
                assert_eq!((line.source.as_str(), line.level.as_str()), ("gateway", "WARN"));
                dropped += count.parse::<usize>().unwrap();
            }
            None => kept += 1,
        }
    }
    // As many as in a second may come at once.
    let most = (seconds + 1.0) * f64::from(LINES);
    assert!(kept as f64 <= most, "{kept} kept in {seconds} s, {dropped} dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_only_so_many_lines_are_taken_and_the_rest_is_said() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let id = Uuid::new_v4();
    let mut next = listen(&world, id).await;
    let pushing = push(&world, &bridge, id).await;
    pushing.0.send(batch(id, (0..BATCH + 3).map(|number| number.to_string()))).await.unwrap();
    for number in 0..BATCH {
        assert_eq!(next().await.message, number.to_string());
    }
    assert_eq!(next().await.fields["dropped"], "3");
    end(pushing).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_says_nothing_ends_when_its_tokens_time_is_over() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let id = Uuid::new_v4();
    let mut next = listen(&world, id).await;
    // Expired, but by less than clocks may differ: for a few seconds it is still accepted.
    let token = world.token(id, Duration::from_secs(955), Duration::from_secs(900));
    let (sender, call) = push_with(&bridge, &token).await;
    sender.send(batch(id, ["the only one".to_owned()])).await.unwrap();
    assert_eq!(next().await.message, "the only one");
    let ended = tokio::time::timeout(LONG, call).await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_bridge_stops_and_a_sandbox_has_only_so_many() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let id = Uuid::new_v4();
    let mut next = listen(&world, id).await;
    let mut open = Vec::new();
    for number in 0..4 {
        let pushing = push(&world, &bridge, id).await;
        pushing.0.send(batch(id, [number.to_string()])).await.unwrap();
        assert_eq!(next().await.message, number.to_string());
        open.push(pushing);
    }
    let (_sender, refused) = push(&world, &bridge, id).await;
    let refused = tokio::time::timeout(LONG, refused).await.unwrap().unwrap();
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    end(open.remove(0)).await.unwrap();
    eventually(LONG, "the place is free", async || {
        let pushing = push(&world, &bridge, id).await;
        end(pushing).await
    })
    .await;
    bridge.drain().await;
    for (_sender, call) in open {
        let ended = tokio::time::timeout(LONG, call).await.unwrap().unwrap();
        assert_eq!(ended.unwrap_err().code(), Code::Unavailable);
    }
}
