//! S8: all bridges die, and all supervisors come back at once.

use std::time::{Duration, Instant};

use roadstead_e2e::policy::to_host;
use roadstead_testkit::soak;
use roadstead_testkit::stack::{Plan, Role};
use tokio::sync::watch;

use crate::crowd::{large, median, readers};
use crate::world::World;

const SESSIONS: u32 = 40;
/// Bytes of a snapshot.
const SNAPSHOT: usize = 100 * 1024;
/// Until all are back.
const ALL: Duration = Duration::from_secs(60);
/// The last one may wait so many times as long as the one in the middle, and a little for a loaded machine.
const LAST: u32 = 3;
const CROWD: Duration = Duration::from_secs(5);
/// Between changes meanwhile.
const EVERY: Duration = Duration::from_millis(250);
/// Memory that the bridges may come to while all come back, by the tenth of what they had with all at rest.
const PEAK: u64 = 15;
/// Round trips of both admissions: for a session that comes back, for a commit, and for what they do each second anyway.
const TURNS: [u32; 3] = [7, 20, 20];
const BRIDGES: [usize; 2] = [1, 2];

/// Snapshots that were built so far.
async fn builds(world: &World) -> u32 {
    let mut builds = 0;
    for number in [1, 2] {
        let metrics = world.stack.node(Role::ConfigSnapshot, number).metrics().await;
        let counts = metrics.lines().filter(|line| line.starts_with("roadstead_snapshot_builds_total{"));
        builds += counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()).sum::<u32>();
    }
    builds
}

/// Times that the bridges, since they were started, have put a question to all replicas.
async fn repeated(world: &World) -> f64 {
    let mut repeated = 0.0;
    for number in BRIDGES {
        let series = "roadstead_broker_reads_repeated_total{role=\"supervisor-bridge\"}";
        repeated += world.stack.node(Role::SupervisorBridge, number).metric(series).await;
    }
    repeated
}

/// Round trips of a role with the database so far.
fn turns(world: &World, role: Role) -> u64 {
    let nodes = world.stack.nodes().iter().filter(|node| node.role() == role);
    nodes.map(|node| node.postgres.as_ref().unwrap().turns()).sum()
}

/// Changes a sandbox again and again until it is told to stop; how often.
async fn commits(world: &World, stop: watch::Receiver<bool>) -> u32 {
    let mut count = 0;
    while !*stop.borrow() {
        // It unwraps: each must succeed.
        world.set_policy("changed", to_host(&format!("change-{count}.example"), None)).await;
        count += 1;
        tokio::time::sleep(EVERY).await;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn all_supervisors_are_back_soon_after_all_bridges_died_at_little_cost_and_changes_go_on() {
    // The sweeper, which compares snapshots all the time, keeps quiet.
    let mut world = World::start(Plan::pairs().flag(Role::ConfigSnapshot, "--sweep-rate=1")).await;
    let count = soak::count(SESSIONS);
    let crowd = readers(&world, "stormy", count, &large("stormy", SNAPSHOT), ALL).await;
    world.sandbox("changed", &[]).await;
    let resting: u64 =
        BRIDGES.iter().map(|&number| world.stack.node(Role::SupervisorBridge, number).victim().memory()).sum();
    let sessions: Vec<u32> = crowd.iter().map(|reader| reader.newest().sessions).collect();
    for number in BRIDGES {
        world.stack.node_mut(Role::SupervisorBridge, number).kill().await;
    }
    let begun = Instant::now();
    let before = (builds(&world).await, turns(&world, Role::ConfigSnapshot), turns(&world, Role::Admission));
    for number in BRIDGES {
        world.stack.node_mut(Role::SupervisorBridge, number).resume();
    }
    for number in BRIDGES {
        world.stack.node_mut(Role::SupervisorBridge, number).ready().await;
    }

    let opened = Instant::now();
    let (stop, stopping) = watch::channel(false);
    let coming_back = async {
        let mut waits = Vec::new();
        for (reader, before) in crowd.iter().zip(&sessions) {
            let left = ALL.saturating_sub(opened.elapsed());
            let is_back = |seen: &crate::crowd::Seen| seen.sessions > *before && seen.served.is_some();
            let seen = reader.until(left, "is served again", is_back).await;
            waits.push(seen.served.unwrap().saturating_duration_since(opened));
        }
        stop.send_replace(true);
        waits
    };
    let (waits, commits) = tokio::join!(coming_back, commits(&world, stopping));
    let peak: u64 =
        BRIDGES.iter().map(|&number| world.stack.node(Role::SupervisorBridge, number).victim().peak_memory()).sum();
    let (builds, repeated) = (builds(&world).await - before.0, repeated(&world).await);
    let turns = [(Role::ConfigSnapshot, before.1), (Role::Admission, before.2)]
        .map(|(role, before)| turns(&world, role) - before);
    let (middle, last) = (median(waits.clone()), waits.into_iter().max().unwrap());
    let seconds = u32::try_from(begun.elapsed().as_secs()).unwrap();
    let figures = format!(
        "{count} sessions after {middle:?} in the middle and {last:?} at the end; {builds} builds, {repeated} \
         repeated reads and {turns:?} round trips besides {commits} commits in {seconds} s; {resting} bytes at rest, \
         {peak} at most"
    );
    eprintln!("{figures}");
    assert!(last <= middle * LAST + CROWD, "somebody is served far later than others: {figures}");
    // One for each sandbox and each commit, what two sweepers do meanwhile, and on a loaded machine one more by each
    // replica for a bootstrap that took a second; how often it is asked then is not to matter.
    let wanted = f64::from(count + commits + 2 * (seconds + 2)) + 2.0 * repeated.min(f64::from(count));
    assert!(f64::from(builds) <= wanted, "snapshots are built more than once: {figures}");
    let [of_session, of_commit, of_second] = TURNS;
    let afforded = of_session * count + of_commit * commits + of_second * (seconds + 2);
    assert!(turns[1] <= u64::from(afforded), "the database is asked more than {afforded} times: {figures}");
    assert!(peak * 10 <= resting * PEAK, "the bridges take much more memory than at rest: {figures}");
    assert!(commits > 0, "{figures}");
}
