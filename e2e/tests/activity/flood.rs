use std::time::Duration;

use roadstead_e2e::api::scope;
use roadstead_e2e::{Toggle, toggle};
use roadstead_proto::api::v1::{GetSandboxLogsRequest, SandboxStreamEvent, WatchSandboxRequest};
use roadstead_testkit::soak;
use tokio::time::{MissedTickBehavior, interval};
use tonic::Streaming;

use crate::world::{Shown, World, next};

/// Lines in a batch.
const BATCH: u32 = 100;
/// Time of a batch at the limit, 5,000 lines a second.
const LIMIT: Duration = Duration::from_millis(20);
const FLOOD: Duration = Duration::from_secs(4);
/// How soon what others log and do is to be seen everywhere meanwhile. The flood alone keeps a machine busy here; what it
/// costs where the program is built for use is measured by `roadstead bench watch`.
const BOUND: Duration = Duration::from_secs(10);

/// Logs a batch in each of these times; how many lines.
pub(crate) async fn flood(world: &World, name: &str, sandbox_id: &str, every: Duration, period: Duration) -> u32 {
    let pushing = world.push(1, name, sandbox_id);
    let mut clock = interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let batches = u32::try_from(period.as_millis() / every.as_millis()).unwrap();
    for batch in 0..batches {
        clock.tick().await;
        pushing.batch(batch * BATCH..(batch + 1) * BATCH).await;
    }
    pushing.end().await.unwrap();
    batches * BATCH
}

/// Each stream shows it in time.
async fn seen(streams: &mut [Streaming<SandboxStreamEvent>], what: &str, wanted: impl Fn(&Shown) -> bool) {
    for stream in streams {
        let shown = async { while !wanted(&next(stream).await) {} };
        assert!(tokio::time::timeout(BOUND, shown).await.is_ok(), "not within {BOUND:?}: {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_at_its_limit_of_lines_holds_up_no_line_and_no_state_of_another_and_evicts_none() {
    let world = World::start().await;
    let (noisy_id, quiet_id) = (world.sandbox("noisy").await, world.sandbox("quiet").await);
    toggle::prepare(&world.stack.edge(1), &world.workspace).await;
    let mut toggle = Toggle::of(&world.stack.edge(1), &world.workspace, "quiet");
    let listen = async |edge, name| {
        let request = WatchSandboxRequest { follow_status: true, ..world.follow(name) };
        world.watch(edge, request).await.unwrap()
    };
    let mut quiet = [listen(1, "quiet").await, listen(2, "quiet").await];
    let mut noise = listen(1, "noisy").await;

    // All lines go through the same bridge.
    let pushing = world.push(1, "quiet", &quiet_id);
    let mut lines = 0;
    let quiet_going = async {
        loop {
            pushing.batch(lines..lines + 1).await;
            let is_line = |shown: &Shown| matches!(shown, Shown::Line { number, .. } if *number == lines);
            seen(&mut quiet, "a line", is_line).await;
            lines += 1;
            let version = toggle.next().await;
            seen(&mut quiet, "a state", |shown| *shown == Shown::State(version)).await;
        }
    };
    // Somebody listens to the noise, too.
    let listening = async {
        loop {
            next(&mut noise).await;
        }
    };
    tokio::select! {
        _lines = flood(&world, "noisy", &noisy_id, LIMIT, soak::period(FLOOD)) => {}
        () = quiet_going => unreachable!("it goes on"),
        () = listening => unreachable!("it goes on"),
    }
    assert!(lines > 1, "only {lines} lines");

    pushing.end().await.unwrap();
    let request = GetSandboxLogsRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: "quiet".to_owned(),
        ..Default::default()
    };
    let kept = world.edge(2).get_sandbox_logs(request).await.unwrap().into_inner();
    let kept = kept.logs.iter().map(|line| line.message.parse().unwrap()).collect::<Vec<u32>>();
    assert!(kept.len() >= lines as usize && kept.iter().copied().eq(0..kept.len() as u32), "{kept:?} of {lines}");
}
