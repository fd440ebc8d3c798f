use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use roadstead_e2e::Toggle;
use roadstead_e2e::api::scope;
use roadstead_e2e::raw::Raw;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::{ListSandboxesRequest, SandboxPhase};
use roadstead_proto::method::Method;
use roadstead_testkit::soak;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;
use tonic::transport::Channel;

use crate::journal::{self, delays};
use crate::watching::Watching;
use crate::world::{IN_TIME, SOON, World};

/// Lists that are read all the time, page after page.
const LISTS: usize = 10;
/// Sandboxes in the list: two full pages, with those that are watched.
const LISTED: usize = 2000 - WATCHED;
/// Sandboxes that are watched.
const WATCHED: usize = 10;
const FEW: usize = 50;
const MANY: usize = 800;
/// Watches that are being opened at a time.
const OPENING: usize = 16;
/// Streams that a door lets a connection have.
const STREAMS: usize = 1024;
/// Streams beyond that.
const BEYOND: usize = 60;
/// A watched sandbox changes so often.
const CHANGE: Duration = Duration::from_secs(1);
const CHANGES: u32 = 4;

/// Puts sandboxes there that nobody is told of: what counts is the list.
async fn fill(world: &World) {
    let filled = format!(
        "set session_replication_role = replica;
         insert into roadstead.sandbox (id, workspace_id, workspace_name, name, spec, status, phase, attachment_epoch)
         select gen_random_uuid(), workspace_id, workspace_name, 'listed-' || n, spec, status, {}, gen_random_uuid()
         from roadstead.sandbox, generate_series(1, {LISTED}) n
         where workspace_name = '{}' and name = 'w0';
         reset session_replication_role",
        i32::from(SandboxPhase::Stopped),
        world.workspace
    );
    world.stack.session().await.run(&filled).await;
}

/// Reads all pages, over and over again, on this connection; counts them. On a busy machine an answer may not come in
/// time, and is asked for again.
async fn list(connection: Channel, workspace: String, pages: Arc<AtomicU32>) {
    let connection = Raw::over(connection);
    let mut page_token = String::new();
    loop {
        let workspace_scope = scope(&workspace);
        let request = ListSandboxesRequest {
            workspace_scope,
            page_size: 1000,
            page_token: page_token.clone(),
            ..Default::default()
        };
        let answer = connection.call(Method::ListSandboxes, &[], request.encode_to_vec()).await;
        assert!(matches!(answer.code, Code::Ok | Code::Unavailable), "{answer:?}");
        if let Some(page) = answer.first {
            page_token = token(&page);
            pages.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A page's token, without its sandboxes.
fn token(page: &[u8]) -> String {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Token {
        #[prost(string, tag = "2")]
        next_page_token: String,
    }
    Token::decode(page).unwrap().next_page_token
}

/// Opens watches on this connection, each on one of the sandboxes, until there are so many.
async fn open(world: &World, connection: &Channel, streams: &mut Vec<Watching>, count: usize) {
    let open = stream::iter(streams.len()..count).map(|number| {
        let request = world.status(&format!("w{}", number % WATCHED));
        Watching::open(OpenShellClient::new(connection.clone()), request)
    });
    streams.extend(open.buffered(OPENING).map(Result::unwrap).collect::<Vec<_>>().await);
    for stream in streams {
        stream.until_version(SOON, 1).await;
    }
}

/// Changes a watched sandbox a second, through the other edge.
async fn change(toggles: &mut [Toggle]) {
    let mut clock = interval(CHANGE);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0..soak::count(CHANGES) as usize {
        clock.tick().await;
        toggles[number % WATCHED].next().await;
    }
}

/// Of a hundred events, the delay of the slowest but one.
async fn p99(world: &World, ids: &[String], streams: &[Watching]) -> Duration {
    let mut session = world.stack.session().await;
    let mut all = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let journal = journal::of(&mut session, id).await;
        let version = journal.iter().rev().find_map(|entry| entry.version).unwrap_or(1);
        for stream in streams.iter().skip(number).step_by(ids.len()) {
            all.extend(delays(&journal, &stream.until_version(SOON, version).await));
        }
    }
    all.sort_unstable();
    all[(all.len() - 1) * 99 / 100]
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_in_time_on_a_connection_full_of_lists_and_beyond_its_limit_they_wait_their_turn() {
    let world = World::start_with_tls().await;
    world.provider("p").await;
    let mut ids = Vec::new();
    for number in 0..WATCHED {
        ids.push(world.sandbox(&format!("w{number}")).await);
    }
    fill(&world).await;
    let connection = world.tls(1);
    let (mut streams, mut apart) = (Vec::new(), Vec::new());
    open(&world, &world.tls(1), &mut apart, WATCHED).await;
    let mut session = world.stack.session().await;
    journal::keep(&mut session).await;

    let mut toggles = (0..WATCHED).map(|number| world.toggle(2, &format!("w{number}"), "p")).collect::<Vec<_>>();
    for count in [FEW, MANY] {
        open(&world, &connection, &mut streams, count).await;
        let pages = Arc::new(AtomicU32::new(0));
        let list = || list(connection.clone(), world.workspace.clone(), Arc::clone(&pages));
        let lists = (0..LISTS).map(|_| AbortOnDropHandle::new(tokio::spawn(list()))).collect::<Vec<_>>();
        change(&mut toggles).await;
        let (delay, elsewhere) = (p99(&world, &ids, &streams).await, p99(&world, &ids, &apart).await);
        let read = pages.load(Ordering::Relaxed);
        let figures = format!("{count} watches beside {read} pages: {delay:?} at p99, {elsewhere:?} elsewhere");
        eprintln!("{figures}");
        // What a busy machine adds is felt elsewhere too.
        assert!(delay < IN_TIME.max(2 * elsewhere) && read > 0, "{figures}");
        assert!(lists.iter().all(|list| !list.is_finished()), "no list was refused");
    }

    // Beyond the limit of a connection nothing is refused: it waits until another stream has ended.
    open(&world, &connection, &mut streams, STREAMS - BEYOND).await;
    let mut beyond = JoinSet::new();
    for _ in 0..2 * BEYOND {
        beyond.spawn(Watching::open(OpenShellClient::new(connection.clone()), world.status("w0")));
    }
    let mut opened = Vec::new();
    while opened.len() < BEYOND {
        opened.push(beyond.join_next().await.unwrap().unwrap().unwrap());
    }
    let one_more = tokio::time::timeout(CHANGE, beyond.join_next()).await;
    assert!(one_more.is_err(), "more than {STREAMS} streams: {one_more:?}");
    streams.truncate(MANY);
    while let Some(one) = tokio::time::timeout(SOON, beyond.join_next()).await.unwrap() {
        opened.push(one.unwrap().unwrap());
    }
    assert_eq!(opened.len(), 2 * BEYOND);
}
