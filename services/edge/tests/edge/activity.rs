//! Logs and platform events from outside: what the broker holds, and what clients see of it.

use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_bus::Bus;
use roadstead_proto::activity::{Activity, Kind, LINES};
use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::datamodel::workspace_selector::Selection;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{
    GetSandboxLogsRequest, PlatformEvent, SandboxLogLine, SandboxPhase, SandboxStreamEvent, WatchSandboxRequest,
};
use roadstead_proto::internal::ActivityLine;
use roadstead_proto::internal::activity_line::Content;
use roadstead_proto::role::Role;
use roadstead_testkit::eventually;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use crate::client::Client;
use crate::world::{ALICE, LONG, ROOT, World, bus};

const ID: Uuid = Uuid::from_u128(0x51);
const NAME: &str = "s";

fn scope() -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace("w".to_owned())) })
}

fn follow() -> WatchSandboxRequest {
    WatchSandboxRequest {
        sandbox: NAME.to_owned(),
        workspace_scope: scope(),
        follow_logs: true,
        follow_events: true,
        ..Default::default()
    }
}

fn get() -> GetSandboxLogsRequest {
    GetSandboxLogsRequest { sandbox: NAME.to_owned(), workspace_scope: scope(), ..Default::default() }
}

/// The bridge's and admission's part.
struct Writers {
    bridge: Bus,
    admission: Bus,
}

impl Writers {
    async fn of(world: &World) -> Self {
        let bridge = bus(&world.broker, &world.keyring, Role::SupervisorBridge).await;
        Self { bridge, admission: world.admission.clone() }
    }

    async fn log(&self, level: &str, source: &str, message: impl ToString) {
        let (level, source, message) = (level.to_owned(), source.to_owned(), message.to_string());
        let event_time = message.parse().ok().map(|seconds| Timestamp { seconds, nanos: 0 });
        let line = SandboxLogLine { level, source, message, event_time, ..Default::default() };
        store(&self.bridge, Kind::Log, Content::Log(line)).await;
    }

    /// So many lines, which are their numbers.
    async fn fill(&self, count: usize) {
        let subject = Activity { sandbox_id: ID, kind: Kind::Log }.to_string();
        let line = |number: usize| SandboxLogLine { message: number.to_string(), ..Default::default() };
        let encoded = |line| Bytes::from(ActivityLine { content: Some(Content::Log(line)) }.encode_to_vec());
        let lines = (0..count).map(|number| encoded(line(number))).collect::<Vec<_>>();
        for lines in lines.chunks(100) {
            assert_eq!(self.bridge.enqueue_all(&subject, lines.to_vec()).await, lines.len());
        }
    }

    async fn event(&self, reason: &str) {
        let event = PlatformEvent { reason: reason.to_owned(), ..Default::default() };
        store(&self.admission, Kind::Event, Content::Event(event)).await;
    }
}

async fn store(bus: &Bus, kind: Kind, content: Content) {
    let payload = ActivityLine { content: Some(content) }.encode_to_vec();
    let subject = Activity { sandbox_id: ID, kind }.to_string();
    eventually(LONG, "it is stored", async || match bus.enqueue(subject.clone(), payload.clone().into(), None).await {
        // Not stored: the stream is not there yet. One of which nothing is known might be stored twice.
        Err(error) if error.is_definite() => Err(error),
        Err(error) => panic!("{error}"),
        Ok(()) => Ok(()),
    })
    .await;
}

async fn open(client: &Client, request: WatchSandboxRequest) -> Result<Streaming<SandboxStreamEvent>, Status> {
    let mut stream = timeout(LONG, client.api().watch_sandbox(request)).await.unwrap()?.into_inner();
    let first = timeout(LONG, stream.message()).await.unwrap()?.unwrap();
    assert!(matches!(first.payload, Some(Payload::Sandbox(_))) && first.cursor.is_empty(), "{first:?}");
    Ok(stream)
}

async fn next_payload(stream: &mut Streaming<SandboxStreamEvent>) -> Payload {
    let event = timeout(LONG, stream.message()).await.expect("an event").unwrap().expect("the stream goes on");
    event.payload.unwrap()
}

/// The next line's message or event's reason, and its cursor; `!` for a warning.
async fn next(stream: &mut Streaming<SandboxStreamEvent>) -> (String, String) {
    let event = timeout(LONG, stream.message()).await.expect("an event").unwrap().expect("the stream goes on");
    let text = match event.payload.unwrap() {
        Payload::Log(log) => log.message,
        Payload::Event(event) => event.reason,
        Payload::Warning(_) => "!".to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(event.cursor.is_empty(), text == "!");
    (text, event.cursor)
}

async fn texts(stream: &mut Streaming<SandboxStreamEvent>, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(next(stream).await.0);
    }
    texts
}

async fn messages(client: &Client, request: GetSandboxLogsRequest) -> (Vec<String>, u32) {
    let response = client.api().get_sandbox_logs(request).await.unwrap().into_inner();
    (response.logs.into_iter().map(|log| log.message).collect(), response.buffer_total)
}

#[tokio::test(flavor = "multi_thread")]
async fn tails_are_merged_in_order_and_followed_by_what_is_new() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let (client, writers) = (world.client(ROOT).await, Writers::of(&world).await);
    for number in 1..=3 {
        writers.log("INFO", "sandbox", number).await;
        writers.event(&format!("e{number}")).await;
    }
    let tails = |log_tail_lines, event_tail| WatchSandboxRequest { log_tail_lines, event_tail, ..follow() };
    let mut both = open(&client, tails(2, 2)).await.unwrap();
    let mut lines = open(&client, tails(0, 0)).await.unwrap();
    let mut events = open(&client, WatchSandboxRequest { follow_logs: false, ..tails(0, 1) }).await.unwrap();
    assert_eq!(texts(&mut both, 4).await, ["2", "e2", "3", "e3"]);
    assert_eq!(texts(&mut lines, 3).await, ["1", "2", "3"]);
    assert_eq!(texts(&mut events, 1).await, ["e3"]);

    writers.log("INFO", "sandbox", 4).await;
    writers.event("e4").await;
    assert_eq!(texts(&mut both, 2).await, ["4", "e4"]);
    assert_eq!(texts(&mut lines, 2).await, ["4", "e4"]);
    assert_eq!(texts(&mut events, 1).await, ["e4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_hold_for_the_past_and_the_present() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let (client, writers) = (world.client(ROOT).await, Writers::of(&world).await);
    let write = async |first: u64| {
        for (number, (level, source)) in
            [("ERROR", "sandbox"), ("INFO", "sandbox"), ("WARN", "gateway"), ("WARN", "sandbox")].iter().enumerate()
        {
            writers.log(level, source, first + number as u64).await;
        }
    };
    write(10).await;
    let request = WatchSandboxRequest {
        log_sources: vec!["sandbox".to_owned()],
        log_min_level: "WARN".to_owned(),
        since_time: Some(Timestamp { seconds: 11, nanos: 0 }),
        ..follow()
    };
    let mut stream = open(&client, request).await.unwrap();
    assert_eq!(texts(&mut stream, 1).await, ["13"]);
    write(0).await;
    assert_eq!(texts(&mut stream, 2).await, ["0", "3"], "what is new is not too old");

    let all = ["10", "11", "12", "13", "0", "1", "2", "3"].map(str::to_owned).to_vec();
    assert_eq!(messages(&client, get()).await, (all.clone(), 8));
    let some = GetSandboxLogsRequest { lines: 2, min_level: "error".to_owned(), ..get() };
    assert_eq!(messages(&client, some).await, (vec!["10".to_owned(), "0".to_owned()], 8));
    let recent = GetSandboxLogsRequest { since_time: Some(Timestamp { seconds: 12, nanos: 0 }), ..get() };
    assert_eq!(messages(&client, recent).await, (all[2..4].to_vec(), 8));

    let loud = WatchSandboxRequest { log_min_level: "LOUD".to_owned(), ..follow() };
    assert_eq!(open(&client, loud).await.unwrap_err().code(), Code::InvalidArgument);
    let loud = GetSandboxLogsRequest { min_level: "LOUD".to_owned(), ..get() };
    assert_eq!(client.api().get_sandbox_logs(loud).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_for_members_and_of_sandboxes_that_are_there() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let (alice, root) = (world.client(ALICE).await, world.client(ROOT).await);
    let refusal = async |client: &Client, request| client.api().get_sandbox_logs(request).await.unwrap_err().code();
    assert_eq!(refusal(&alice, get()).await, Code::PermissionDenied);
    world.watch.put_members(&["alice"]).await;
    assert_eq!(messages(&alice, get()).await, (Vec::new(), 0));
    assert_eq!(refusal(&alice, GetSandboxLogsRequest { sandbox: "x".to_owned(), ..get() }).await, Code::NotFound);
    assert_eq!(refusal(&root, GetSandboxLogsRequest { workspace_scope: None, ..get() }).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_goes_on_exactly_after_its_cursor_and_a_bad_one_is_refused() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let other = Uuid::from_u128(0x52);
    world.watch.put(other, "other", 1, SandboxPhase::Provisioning).await;
    let (client, writers) = (world.client(ROOT).await, Writers::of(&world).await);
    for number in 1..=4 {
        writers.log("INFO", "sandbox", number).await;
    }
    let mut stream = open(&client, follow()).await.unwrap();
    let cursor = (next(&mut stream).await, next(&mut stream).await).1.1;
    let resume = |cursor: &str| WatchSandboxRequest { resume_after_cursor: cursor.to_owned(), ..follow() };
    let mut resumed = open(&client, resume(&cursor)).await.unwrap();
    assert_eq!(texts(&mut resumed, 2).await, ["3", "4"]);
    writers.log("INFO", "sandbox", 5).await;
    assert_eq!(texts(&mut resumed, 1).await, ["5"]);

    let of_other = WatchSandboxRequest { sandbox: "other".to_owned(), ..resume(&cursor) };
    for bad in [resume("x"), resume(&cursor[2..]), of_other] {
        assert_eq!(open(&client, bad).await.unwrap_err().code(), Code::InvalidArgument);
    }
    // Also where nothing is followed, a cursor is looked at.
    let status = WatchSandboxRequest { follow_logs: false, follow_events: false, ..resume("x") };
    assert_eq!(open(&client, status).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_broker_loses_no_line_and_repeats_none() {
    let mut world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let (client, writers) = (world.client(ROOT).await, Writers::of(&world).await);
    writers.log("INFO", "sandbox", 1).await;
    let mut stream = open(&client, follow()).await.unwrap();
    assert_eq!(texts(&mut stream, 1).await, ["1"]);
    for number in 2..5 {
        let connects = writers.bridge.connects();
        world.broker.kill().await;
        world.broker.resume().await;
        let again = async || if writers.bridge.connects() > connects { Ok(()) } else { Err("not connected") };
        eventually(LONG, "the writer is connected again", again).await;
        writers.log("INFO", "sandbox", number).await;
        assert_eq!(texts(&mut stream, 1).await, [number.to_string()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_comes_before_lines_that_wait() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let (client, writers) = (world.client(ROOT).await, Writers::of(&world).await);
    writers.fill(LINES as usize).await;
    let narrow = world.narrow_client(ROOT).await;
    let request = WatchSandboxRequest { follow_status: true, log_tail_lines: LINES, ..follow() };
    let mut slow = open(&narrow, request).await.unwrap();
    assert_eq!(texts(&mut slow, 10).await.last().unwrap(), "9");

    let status = WatchSandboxRequest { follow_status: true, follow_logs: false, follow_events: false, ..follow() };
    let mut other = open(&client, status).await.unwrap();
    world.watch.put(ID, NAME, 2, SandboxPhase::Ready).await;
    assert!(matches!(next_payload(&mut other).await, Payload::Sandbox(_)), "the edge knows of it");
    let mut lines = 10;
    loop {
        match next_payload(&mut slow).await {
            Payload::Log(_) => lines += 1,
            Payload::Sandbox(sandbox) => {
                assert_eq!(sandbox.metadata.unwrap().resource_version, 2);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(lines < LINES / 2, "{lines} lines came before it");
    while lines < LINES {
        assert!(matches!(next_payload(&mut slow).await, Payload::Log(_)));
        lines += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_events_alone_loses_nothing_when_lines_are_trimmed() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let (client, writers) = (world.client(ROOT).await, Writers::of(&world).await);
    writers.event("e1").await;
    let events = WatchSandboxRequest { follow_logs: false, event_tail: 1, ..follow() };
    let mut stream = open(&client, events.clone()).await.unwrap();
    let (first, cursor) = next(&mut stream).await;
    assert_eq!(first, "e1");

    writers.fill(LINES as usize + 1).await;
    let resume = |request| WatchSandboxRequest { resume_after_cursor: cursor.clone(), ..request };
    writers.event("e2").await;
    assert_eq!(texts(&mut stream, 1).await, ["e2"], "and no warning");
    let mut resumed = open(&client, resume(events)).await.unwrap();
    assert_eq!(texts(&mut resumed, 1).await, ["e2"]);
    assert_eq!(open(&client, resume(follow())).await.unwrap_err().code(), Code::OutOfRange);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_followers_of_one_sandbox_each_see_every_line_once() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let (client, writers) = (world.client(ROOT).await, Writers::of(&world).await);
    let mut streams = Vec::new();
    for number in 0..20 {
        writers.log("INFO", "sandbox", number).await;
        streams.push(open(&client, follow()).await.unwrap());
    }
    for number in 20..40 {
        writers.log("INFO", "sandbox", number).await;
    }
    let expected = (0..40).map(|number| number.to_string()).collect::<Vec<_>>();
    for stream in &mut streams {
        assert_eq!(texts(stream, 40).await, expected);
    }
}
