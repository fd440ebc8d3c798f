//! Nothing is changed, while everything is restarted and looked over: nobody is told of a change.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_e2e::{Fleet, convergence};
use roadstead_proto::api::v1::SandboxPhase;
use roadstead_supervisor::Frame;
use roadstead_testkit::sql::Session;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, soak};
use tokio::time::sleep;

const SANDBOXES: u32 = 6;
/// How long everybody is watched after each disturbance.
const IDLE: Duration = Duration::from_secs(1);
/// By when a supervisor whose bridge was restarted has a session again.
const RECONNECTED: Duration = Duration::from_secs(20);

/// A frame without what differs from session to session.
fn content(frame: &Frame) -> Frame {
    Frame { session_id: String::new(), order: 0, update_id: String::new(), bootstrap: false, bytes: 0, ..frame.clone() }
}

/// What each supervisor holds, as it is told to one that begins; and how many frames it has had.
fn held(fleet: &Fleet) -> Vec<(Frame, usize)> {
    let of = |member: &roadstead_e2e::fleet::Member| {
        let frames = member.recorder.frames();
        let mut newest = content(frames.last().unwrap());
        // A frame may carry one half.
        newest.config = frames.iter().rev().find_map(|frame| frame.config.clone());
        newest.environment = frames.iter().rev().find_map(|frame| frame.environment.clone());
        (newest, frames.len())
    };
    fleet.members().iter().map(of).collect()
}

/// What Postgres counts up when something changes.
async fn counted(session: &mut Session) -> BTreeMap<&'static str, Vec<Vec<String>>> {
    let mut counted = BTreeMap::new();
    for (what, query) in [
        ("sandboxes", "select id, resource_version, phase, attachment_epoch from roadstead.sandbox order by id"),
        ("policies", "select scope, version, hash from roadstead.policy_revision order by scope, version"),
        ("settings", "select scope, revision from roadstead.settings_revision order by scope"),
    ] {
        counted.insert(what, session.run(query).await);
    }
    counted
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_told_of_a_change_while_everything_is_restarted_and_repaired_and_nothing_changes() {
    let plan = Plan::pairs().own_postgres().flag(Role::SupervisorBridge, "--reread-seconds=1");
    let mut stack = Stack::start(plan.flag(Role::ConfigSnapshot, "--sweep-rate=1000")).await;
    let fleet = Fleet::start(&stack, soak::count(SANDBOXES).min(200) as usize).await;
    convergence::assert_converges(&stack, &fleet).await;
    // What supervisors have answered by then has been taken in.
    sleep(IDLE).await;
    let mut session = stack.session().await;
    let (before, counted_before) = (held(&fleet), counted(&mut session).await);
    let shown = |fleet: &Fleet| -> Vec<_> {
        fleet.members().iter().flat_map(|member| member.watches.iter().map(|watch| watch.seen())).collect()
    };
    let shown_before = shown(&fleet);

    sleep(soak::period(IDLE)).await;
    stack.broker().restart().await;
    sleep(soak::period(IDLE)).await;
    drop(session);
    stack.postgres().stop().await;
    stack.postgres().resume().await;
    sleep(soak::period(IDLE)).await;
    for role in Role::ALL.into_iter().filter(|role| *role != Role::SupervisorBridge) {
        restart(&mut stack, &fleet, role).await;
    }
    sleep(soak::period(IDLE)).await;
    convergence::assert_converges(&stack, &fleet).await;
    let mut session = stack.session().await;
    assert_eq!(counted(&mut session).await, counted_before);
    for (member, (_, count)) in fleet.members().iter().zip(&before) {
        let frames = &member.recorder.frames()[*count..];
        assert!(frames.is_empty(), "{}: nothing has changed, and it was sent {frames:#?}", member.name);
    }
    for (before, after) in shown_before.into_iter().zip(shown(&fleet)) {
        let (open, current) = (before.streams.len() - 1, before.current().unwrap());
        assert_eq!(current.1, SandboxPhase::Ready);
        let first = after.streams[open].shown[before.streams[open].shown.len()..].iter();
        // A stream that was opened anew begins with what stands, and that is all.
        let anew = after.streams[open + 1..].iter().flat_map(|stream| stream.shown.iter().skip(1));
        assert_eq!(first.chain(anew).collect::<Vec<_>>(), Vec::<&(u64, SandboxPhase)>::new());
        assert!(after.streams[open + 1..].iter().all(|stream| stream.shown.first().is_none_or(|one| *one == current)));
        assert!(after.streams.len() > open + 1, "every edge was restarted");
    }

    // A session that begins elsewhere is told the same, and that it is another one is all that is counted.
    restart(&mut stack, &fleet, Role::SupervisorBridge).await;
    sleep(soak::period(IDLE)).await;
    convergence::assert_converges(&stack, &fleet).await;
    let mut counted_after = counted(&mut session).await;
    let moved: Vec<_> = fleet.sessions().into_iter().map(|sessions| sessions - 1).collect();
    assert!(moved.iter().all(|moved| *moved >= 1), "every bridge was restarted: {moved:?}");
    let names = session.run("select name from roadstead.sandbox order by id").await;
    for (sandbox, name) in counted_after.get_mut("sandboxes").unwrap().iter_mut().zip(names) {
        let at = fleet.members().iter().position(|member| member.name == name[0]).unwrap();
        // Its registration, and its word that it holds what it was told.
        let version = sandbox[1].parse::<u64>().unwrap() - 2 * moved[at];
        sandbox[1] = version.to_string();
    }
    assert_eq!(counted_after, counted_before);
    for (member, (held, count)) in fleet.members().iter().zip(before) {
        for frame in &member.recorder.frames()[count..] {
            assert_eq!(frame.order, 1, "{}: nothing has changed, and it was sent {frame:#?}", member.name);
            assert_eq!(Frame { at: held.at, ..content(frame) }, held, "{}", member.name);
        }
    }
    fleet.assert_never_unready(&mut session).await;
}

/// Restarts both processes of a role, one after the other.
async fn restart(stack: &mut Stack, fleet: &Fleet, role: Role) {
    for number in [1, 2] {
        let node = stack.node_mut(role, number);
        node.stop().await;
        node.resume();
        node.ready().await;
        for member in fleet.members() {
            member.reconnected(1, RECONNECTED).await;
        }
    }
}
