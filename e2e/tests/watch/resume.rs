use std::sync::Arc;
use std::time::Duration;

use roadstead_e2e::Pushing;
use roadstead_proto::api::v1::WatchSandboxRequest;
use roadstead_testkit::{dice::Dice, eventually, soak};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tonic::Code;

use crate::watching::Seen;
use crate::world::{SOON, World};

const READERS: usize = 4;
/// How long the sandbox changes, and how often through each of the two edges.
const PERIOD: Duration = Duration::from_secs(5);
const CHANGE: Duration = Duration::from_millis(40);
/// Lines in a batch, and the time of one.
const BATCH: u32 = 5;
const EVERY: Duration = Duration::from_millis(50);
/// A stream is broken after less than this.
const BREAK_MS: u64 = 500;
/// Everything that is kept.
const ALL: u32 = 2000;

/// What all streams are to have shown before they end.
#[derive(Clone, Copy, Debug)]
struct Last {
    version: u64,
    lines: u32,
}

/// Changes the sandbox through an edge; how often.
async fn changes(world: Arc<World>, edge: usize, provider: &str) -> u32 {
    let mut toggle = world.toggle(edge, "s", provider);
    let mut clock = interval(CHANGE);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + soak::period(PERIOD);
    let mut count = 0;
    while Instant::now() < end {
        clock.tick().await;
        toggle.next().await;
        count += 1;
    }
    count
}

/// Logs; how many lines.
async fn lines(pushing: Pushing) -> u32 {
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + soak::period(PERIOD);
    let mut count = 0;
    while Instant::now() < end {
        clock.tick().await;
        pushing.batch(count..count + BATCH).await;
        count += BATCH;
    }
    pushing.end().await.unwrap();
    count
}

/// Opens stream after stream, through one edge or the other, each after the last line that the one before has shown,
/// until one has shown the last of all. What each has shown.
async fn reader(world: Arc<World>, breaks: Vec<(usize, u64)>, last: watch::Receiver<Option<Last>>) -> Vec<Seen> {
    let mut streams: Vec<Seen> = Vec::new();
    for (edge, lives_ms) in breaks.into_iter().cycle() {
        let cursor = streams.iter().rev().find_map(|seen| seen.lines.last()).map(|(_, cursor)| cursor.clone());
        let request = WatchSandboxRequest {
            follow_logs: true,
            log_tail_lines: ALL,
            resume_after_cursor: cursor.unwrap_or_default(),
            ..world.status("s")
        };
        let mut events = match world.edge(edge).watch_sandbox(request).await {
            Ok(opened) => opened.into_inner(),
            // A machine that is busy beyond measure says so.
            Err(status) if status.code() == Code::Unavailable => continue,
            Err(status) => panic!("{status}"),
        };
        let mut seen = Seen::default();
        // Once nothing changes any more, the end is read in peace.
        let is_over = last.borrow().is_some();
        let breaks_at = Instant::now() + if is_over { SOON } else { Duration::from_millis(lives_ms) };
        let is_last = |seen: &Seen| {
            let lines = streams.iter().chain([seen]).map(|seen| seen.lines.len()).sum::<usize>();
            last.borrow().is_some_and(|last| seen.version() >= last.version && lines >= last.lines as usize)
        };
        while !is_last(&seen) {
            match timeout_at(breaks_at, events.message()).await {
                Ok(event) => seen.take(event.unwrap().expect("the stream goes on")),
                Err(_) => break,
            }
        }
        let ends = is_last(&seen);
        assert!(ends || !is_over, "not within {SOON:?}: the last of all: {:?} of {seen:?}", *last.borrow());
        streams.push(seen);
        if ends {
            break;
        }
    }
    streams
}

/// Over all streams of a reader: versions do not go back, and every line is shown once, in order.
fn judge(streams: &[Seen], last: Last) {
    let mut newest = 0;
    for seen in streams {
        if let Some(first) = seen.states.first() {
            assert!(first.version >= newest, "{} after {newest}: {streams:?}", first.version);
            newest = seen.version();
        }
    }
    assert_eq!(newest, last.version);
    let lines = streams.iter().flat_map(|seen| &seen.lines).map(|(number, _)| *number).collect::<Vec<_>>();
    assert_eq!(lines, (0..last.lines).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_break_and_resume_again_and_again_never_go_back_and_read_every_line_once() {
    let world = Arc::new(World::start().await);
    let id = world.sandbox("s").await;
    for provider in ["one", "two"] {
        world.provider(provider).await;
    }
    let token = std::fs::read_to_string(world.stack.token(&world.workspace, "s").await).unwrap();

    let (say, last) = watch::channel(None);
    let mut dice = Dice::new();
    let mut roll = || (1 + usize::from(dice.happens(50)), dice.below(BREAK_MS));
    let breaks = (0..READERS).map(|_| (0..1000).map(|_| roll()).collect()).collect::<Vec<_>>();
    let readers = breaks.into_iter().map(|breaks| tokio::spawn(reader(Arc::clone(&world), breaks, last.clone())));
    let readers = readers.collect::<Vec<_>>();
    let pushing = Pushing::open(&world.stack.bridge(1), &token, &id);
    let (one, two, lines) =
        tokio::join!(changes(Arc::clone(&world), 1, "one"), changes(Arc::clone(&world), 2, "two"), lines(pushing));
    let version = u64::from(1 + one + two);
    eventually(SOON, "every change is there", async || {
        let stored = world.version("s").await;
        if stored == version { Ok(()) } else { Err(format!("it is at {stored}, not {version}")) }
    })
    .await;
    let last = Last { version, lines };
    say.send_replace(Some(last));
    let mut streams = 0;
    for reader in readers {
        let seen = tokio::time::timeout(SOON, reader).await.unwrap().unwrap();
        streams += seen.len();
        judge(&seen, last);
    }
    assert!(streams > READERS, "they broke and resumed: {streams} streams, {version} versions, {lines} lines");
}
