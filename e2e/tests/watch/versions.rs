use std::time::Duration;

use roadstead_proto::api::v1::{SandboxPhase, WatchSandboxRequest};
use roadstead_supervisor::{Settings, Supervisor, TokenSource};
use roadstead_testkit::sql::Session;

use crate::journal::{self, delays};
use crate::watching::Watching;
use crate::world::{CROWD, IN_TIME, SOON, World};

/// Changes by hand, half of them in a burst.
const BY_HAND: usize = 20;
const BOUND: Duration = IN_TIME.saturating_add(CROWD);

/// One stream through each edge.
async fn through_both(world: &World, request: WatchSandboxRequest) -> Vec<Watching> {
    vec![world.watch(1, request.clone()).await.unwrap(), world.watch(2, request).await.unwrap()]
}

/// Every version that Postgres had is shown in time, or a newer one, and the last one itself.
async fn assert_in_time(session: &mut Session, id: &str, streams: &[Watching]) {
    let journal = journal::of(session, id).await;
    for stream in streams {
        let seen = stream.seen();
        let late = delays(&journal, &seen).into_iter().filter(|delay| *delay > BOUND).collect::<Vec<_>>();
        assert!(late.is_empty(), "{late:?} late: {seen:?} of {journal:?}");
        let last = journal.iter().rev().find_map(|entry| entry.version);
        let is_gone = journal.iter().any(|entry| entry.version.is_none());
        assert!(is_gone || Some(seen.version()) == last, "{last:?}: {seen:?}");
        assert_eq!(is_gone, seen.ended.is_some(), "{seen:?}");
    }
}

/// READY by its supervisor, then deleted.
async fn lives_and_goes(world: &World, session: &mut Session) {
    let id = world.sandbox("lives").await;
    let streams = through_both(world, world.status("lives")).await;
    let token = TokenSource::File(world.stack.token(&world.workspace, "lives").await);
    let settings = Settings::new(world.stack.bridge(2), &world.workspace, "lives", token);
    let _supervisor = Supervisor::start(settings).unwrap();
    for stream in &streams {
        stream.until(SOON, "READY", |seen| seen.phases().contains(&SandboxPhase::Ready)).await;
    }
    world.delete(2, "lives").await;
    for stream in &streams {
        assert_eq!(stream.until_end(SOON).await.phases()[0], SandboxPhase::Provisioning);
    }
    assert_in_time(session, &id, &streams).await;
}

/// ERROR because its time is over, which only the database knows.
async fn times_out(world: &World, session: &mut Session) {
    let id = world.sandbox("late").await;
    let streams = through_both(world, world.status("late")).await;
    let stops = through_both(world, WatchSandboxRequest { stop_on_terminal: true, ..world.status("late") }).await;
    let over = format!(
        "update roadstead.sandbox set provisioning_deadline = now() where id = '{id}' and phase = {}",
        i32::from(SandboxPhase::Provisioning)
    );
    session.run(&over).await;
    for stream in &streams {
        stream.until(SOON, "ERROR", |seen| seen.phases().last() == Some(&SandboxPhase::Error)).await;
    }
    for stream in &stops {
        assert_eq!(stream.until_end(SOON).await.phases().last(), Some(&SandboxPhase::Error));
    }
    assert_in_time(session, &id, &streams).await;
}

/// Changed by hand, with its version, one by one and in a burst.
async fn is_touched(world: &World, session: &mut Session) {
    let id = world.sandbox("touched").await;
    let streams = through_both(world, world.status("touched")).await;
    let by_hand = world.by_hand("touched", None);
    for number in 0..BY_HAND {
        session.run(&by_hand).await;
        if number < BY_HAND / 2 {
            let version = journal::of(session, &id).await.last().unwrap().version.unwrap();
            for stream in &streams {
                stream.until_version(SOON, version).await;
            }
        }
    }
    let version = journal::of(session, &id).await.last().unwrap().version.unwrap();
    for stream in &streams {
        stream.until_version(SOON, version).await;
    }
    assert_in_time(session, &id, &streams).await;
}

/// Every kind of stream that stops on a terminal phase, with and without what it may follow beside.
async fn that_stop(world: &World, name: &str) -> Vec<(bool, Watching)> {
    let mut streams = Vec::new();
    for (edge, follow_status, follow_logs) in [(1, true, false), (2, false, false), (1, false, true), (2, true, true)] {
        let request = WatchSandboxRequest { follow_status, follow_logs, stop_on_terminal: true, ..world.status(name) };
        streams.push((follow_status, world.watch(edge, request).await.unwrap()));
    }
    streams
}

async fn stops_there(world: &World, session: &mut Session, phase: SandboxPhase) {
    let name = format!("stops-{}", i32::from(phase));
    let id = world.sandbox(&name).await;
    let later = that_stop(world, &name).await;
    for (_, stream) in &later {
        assert_eq!(stream.until_version(SOON, 1).await.phases(), [SandboxPhase::Provisioning]);
    }
    session.run(&world.by_hand(&name, None)).await;
    for (follows, stream) in &later {
        if *follows {
            let seen = stream.until(SOON, "another state", |seen| seen.states.len() > 1).await;
            assert!(seen.ended.is_none(), "{seen:?}");
        }
    }
    session.run(&world.by_hand(&name, Some(phase))).await;
    let journal = journal::of(session, &id).await;
    let terminal = journal.last().unwrap();
    for (follows, stream) in &later {
        let seen = stream.until_end(SOON).await;
        let last = seen.states.last().unwrap();
        assert_eq!((Some(last.version), last.phase), (terminal.version, phase), "{seen:?}");
        assert!(seen.ended.unwrap().0.duration_since(terminal.at).unwrap_or_default() < BOUND, "{seen:?}");
        assert!(*follows || seen.phases() == [SandboxPhase::Provisioning, phase], "{seen:?}");
    }
    for (_, stream) in &that_stop(world, &name).await {
        assert_eq!(stream.until_end(SOON).await.phases(), [phase], "it was terminal at the beginning");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_shown_once_in_order_and_in_time_and_a_terminal_one_ends_the_streams_that_stop_there() {
    let world = World::start().await;
    let mut session = world.stack.session().await;
    journal::keep(&mut session).await;
    lives_and_goes(&world, &mut session).await;
    times_out(&world, &mut session).await;
    is_touched(&world, &mut session).await;
    for phase in [SandboxPhase::Ready, SandboxPhase::Error, SandboxPhase::Completed, SandboxPhase::Stopped] {
        stops_there(&world, &mut session, phase).await;
    }
}
