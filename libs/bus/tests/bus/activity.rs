use std::time::Duration;

use bytes::Bytes;
use roadstead_bus::activity::{Feed, Limit, Line, News, Reader, Subjects};
use roadstead_bus::{Bus, topology};
use roadstead_proto::activity::{Activity, Kind, LINE_BYTES, LINES};
use roadstead_proto::role::Role;
use roadstead_testkit::eventually;
use uuid::Uuid;

use crate::world::{LONG, World};

const LOUD: Uuid = Uuid::from_u128(1);
const QUIET: Uuid = Uuid::from_u128(2);

const fn of(sandbox_id: Uuid, kind: Option<Kind>) -> Subjects {
    Subjects { sandbox_id, kind }
}

const fn at_most(lines: usize) -> Limit {
    Limit { lines, bytes: 1024 * 1024 }
}

async fn say(bus: &Bus, sandbox_id: Uuid, kind: Kind, text: impl Into<String>) {
    let subject = Activity { sandbox_id, kind }.to_string();
    bus.enqueue(subject, Bytes::from(text.into()), None).await.unwrap();
}

fn texts(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8(line.payload.to_vec()).unwrap()).collect()
}

async fn news(feed: &mut Feed) -> News {
    tokio::time::timeout(LONG, feed.next()).await.expect("no news").unwrap()
}

async fn line(feed: &mut Feed) -> (Line, u64) {
    match news(feed).await {
        News::Stored { line, before } => (line, before),
        News::Gap => panic!("no gap is told"),
    }
}

#[tokio::test]
async fn both_kinds_of_a_sandbox_are_read_in_one_order_and_nothing_of_another() {
    let world = World::new().await;
    let reader = Reader::new(&world.bus(Role::Edge).await);
    assert_eq!(reader.page(of(LOUD, None), 1, at_most(10)).await.unwrap().lines, []);
    assert_eq!(reader.first(of(LOUD, None), 1).await.unwrap(), None);
    for (sandbox, kind, text) in
        [(LOUD, Kind::Log, "a"), (QUIET, Kind::Log, "x"), (LOUD, Kind::Event, "b"), (LOUD, Kind::Log, "c")]
    {
        say(&world.admission, sandbox, kind, text).await;
    }
    let page = reader.page(of(LOUD, None), 1, at_most(10)).await.unwrap();
    assert_eq!((texts(&page.lines), page.remaining), (vec!["a".into(), "b".into(), "c".into()], 3));
    assert_eq!(page.lines[1].of, Activity { sandbox_id: LOUD, kind: Kind::Event });
    let part = reader.page(of(LOUD, None), page.lines[0].sequence + 1, at_most(1)).await.unwrap();
    assert_eq!((texts(&part.lines), part.remaining), (vec!["b".into()], 2));
    assert_eq!(part.lines[0], page.lines[1]);
    let logs = reader.page(of(LOUD, Some(Kind::Log)), 1, at_most(10)).await.unwrap();
    assert_eq!((texts(&logs.lines), logs.remaining), (vec!["a".into(), "c".into()], 2));
    let small = Limit { bytes: 1, ..at_most(10) };
    assert!(reader.page(of(LOUD, None), 1, small).await.unwrap().lines.len() < 3, "a page is bounded in bytes, too");
    let (both, events) = (of(LOUD, None), of(LOUD, Some(Kind::Event)));
    assert_eq!(reader.counts(both).await.unwrap(), [(Kind::Log, 2), (Kind::Event, 1)]);
    assert_eq!(reader.counts(events).await.unwrap(), [(Kind::Log, 0), (Kind::Event, 1)]);

    // The leader says the same, message by message.
    assert_eq!(reader.at(part.lines[0].sequence).await.unwrap().as_ref(), part.lines.first());
    assert_eq!(reader.first(of(LOUD, None), part.lines[0].sequence).await.unwrap().as_ref(), part.lines.first());
    assert_eq!(reader.oldest(LOUD, Kind::Event).await.unwrap().as_ref(), part.lines.first());
    let state = reader.state().await.unwrap();
    assert_eq!((state.first, state.last), (1, 4));
    assert_eq!(reader.at(9).await.unwrap(), None);
}

#[tokio::test]
async fn one_sandbox_evicts_its_own_lines_and_nobody_elses() {
    let world = World::new().await;
    let reader = Reader::new(&world.bus(Role::Edge).await);
    say(&world.admission, QUIET, Kind::Log, "still here").await;
    say(&world.admission, LOUD, Kind::Event, "an event").await;
    let lines = LINES as usize + 50;
    let subject = Activity { sandbox_id: LOUD, kind: Kind::Log }.to_string();
    let payloads = (0..lines).map(|number| Bytes::from(number.to_string())).collect::<Vec<_>>();
    for payloads in payloads.chunks(100) {
        assert_eq!(world.admission.enqueue_all(&subject, payloads.to_vec()).await, payloads.len(), "in their order");
    }

    let mut logs = Vec::new();
    let mut from = 1;
    loop {
        let page = reader.page(of(LOUD, None), from, at_most(500)).await.unwrap();
        let Some(last) = page.lines.last() else { break };
        from = last.sequence + 1;
        logs.extend(page.lines.into_iter().filter(|line| line.of.kind == Kind::Log));
    }
    let expected = (50..lines).map(|number| number.to_string()).collect::<Vec<_>>();
    assert!(texts(&logs) == expected, "from {:?} on", texts(&logs[..1]));
    assert_eq!(reader.oldest(LOUD, Kind::Log).await.unwrap().unwrap().sequence, 53);
    assert_eq!(texts(&[reader.oldest(LOUD, Kind::Event).await.unwrap().unwrap()]), ["an event"]);
    assert_eq!(texts(&[reader.oldest(QUIET, Kind::Log).await.unwrap().unwrap()]), ["still here"]);
}

#[tokio::test]
async fn a_line_over_the_limit_is_refused_whoever_writes_it() {
    let world = World::new().await;
    let subject = Activity { sandbox_id: LOUD, kind: Kind::Log }.to_string();
    let enqueue = |bytes| world.admission.enqueue(subject.clone(), Bytes::from(vec![b'x'; bytes]), None);
    enqueue(LINE_BYTES).await.unwrap();
    assert!(enqueue(2 * LINE_BYTES).await.unwrap_err().is_definite());
}

#[tokio::test]
async fn the_feed_tells_each_line_with_the_one_before_it_on_its_subject() {
    let world = World::new().await;
    let mut feed = Feed::follow(&world.bus(Role::Edge).await).await.unwrap();
    for (sandbox, kind) in [(LOUD, Kind::Log), (QUIET, Kind::Log), (LOUD, Kind::Event), (LOUD, Kind::Log)] {
        say(&world.admission, sandbox, kind, "x").await;
    }
    let reader = Reader::new(&world.admission);
    for (sequence, expected) in [(1, 0), (2, 0), (3, 0), (4, 1)] {
        let (line, before) = line(&mut feed).await;
        assert_eq!((line.sequence, before), (sequence, expected));
        assert_eq!(reader.at(sequence).await.unwrap(), Some(line), "as it is stored");
    }
}

#[tokio::test]
async fn a_reconnect_is_told_as_a_gap_at_once_and_a_wiped_stream_has_another_life() {
    let mut world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let (mut feed, reader) = (Feed::follow(&edge).await.unwrap(), Reader::new(&edge));
    say(&world.admission, LOUD, Kind::Log, "before").await;
    assert_eq!(line(&mut feed).await.0.sequence, 1);
    let before = reader.state().await.unwrap();

    world.broker.kill().await;
    world.broker.resume().await;
    assert_eq!(news(&mut feed).await, News::Gap);
    let restarted =
        eventually(LONG, "the stream answers", || async { reader.state().await.map_err(|error| error.to_string()) });
    assert_eq!(restarted.await, before, "a restart is the same life");

    world.broker.wipe().await;
    assert_eq!(news(&mut feed).await, News::Gap);
    eventually(LONG, "the topology is made again", || async {
        tokio::time::timeout(Duration::from_secs(5), topology::ensure(&world.admission, 1))
            .await
            .map_err(|_| "too slow".to_owned())?
            .map_err(|error| error.to_string())
    })
    .await;
    let after = reader.state().await.unwrap();
    assert_ne!(after.incarnation, before.incarnation);
    say(&world.admission, LOUD, Kind::Log, "after").await;
    assert_eq!(line(&mut feed).await.0.sequence, 1);
}
