//! Relays that stand still in the middle of a batch, and go on when nobody expects it.

use std::time::{Duration, Instant};

use roadstead_e2e::api::{client, scope};
use roadstead_e2e::{Fleet, convergence, policy};
use roadstead_proto::api::v1::UpdateConfigRequest;
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually, soak};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Marks of objects on their way to the broker.
const MARKS: &str = "roadstead.change.";
/// Longest wait for what has no bound of its own.
const SOON: Duration = Duration::from_secs(20);
/// By when a change is seen while one relay is frozen, whoever committed it.
const SEEN: Duration = Duration::from_secs(5);

/// Changes the policy of every sandbox of the fleet so often, one after the other, all sandboxes at once and through the
/// edges in turn. After each, its watches and its supervisor see it in time.
async fn change_and_see(stack: &Stack, fleet: &Fleet, round: u32, times: u32) {
    let edges = Fleet::edges(stack);
    let mut changes = JoinSet::new();
    for (at, member) in fleet.members().iter().enumerate() {
        let (edges, workspace, name) = (edges.clone(), fleet.workspace().to_owned(), member.name.clone());
        let mut status = member.supervisor.status();
        changes.spawn(async move {
            let mut slowest = Duration::ZERO;
            for time in 0..times {
                let request = UpdateConfigRequest {
                    workspace_scope: scope(&workspace),
                    sandbox: name.clone(),
                    policy: Some(policy::to_host(&format!("r{round}-t{time}.example.com"), None)),
                    ..Default::default()
                };
                let mut api = client(&edges[(at + time as usize) % edges.len()]);
                let version = api.update_config(request).await.unwrap().into_inner().version;
                let told = Instant::now();
                let has_it = |seen: &roadstead_supervisor::Status| {
                    seen.config.as_ref().is_some_and(|config| config.policy_version >= version)
                };
                let seen = tokio::time::timeout(SEEN, status.wait_for(has_it)).await;
                assert!(seen.is_ok(), "{name} does not have version {version} {SEEN:?} after it was told");
                slowest = slowest.max(told.elapsed());
            }
            slowest
        });
    }
    let slowest = changes.join_all().await;
    eprintln!("round {round}: seen after at most {:?}", slowest.iter().max());
}

/// Lets an admission commit a change and freezes it just before the first mark of that leaves it; so many times before
/// it was stopped there already. Returns the changes that are still on their way: those that it had taken.
async fn freeze_amid_a_batch(stack: &Stack, fleet: &Fleet, number: usize, before: u64) -> JoinSet<()> {
    let victim = stack.node(Role::Admission, number);
    victim.nats.halt_at(Direction::ToServer, MARKS);
    let (stop, stopping) = watch::channel(false);
    let mut calls = JoinSet::new();
    for (at, member) in fleet.members().iter().enumerate() {
        let (edges, workspace, name) = (Fleet::edges(stack), fleet.workspace().to_owned(), member.name.clone());
        let stopping = stopping.clone();
        calls.spawn(async move {
            for time in 0.. {
                if *stopping.borrow() {
                    return;
                }
                let request = UpdateConfigRequest {
                    workspace_scope: scope(&workspace),
                    sandbox: name.clone(),
                    policy: Some(policy::to_host(&format!("f{number}-{before}-{time}.example.com"), None)),
                    ..Default::default()
                };
                client(&edges[(at + time) % edges.len()]).update_config(request).await.unwrap();
            }
        });
    }
    tokio::time::timeout(SOON, victim.nats.halted(before + 1)).await.expect("it commits a change");
    victim.victim().freeze();
    stop.send_replace(true);
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_is_seen_in_order_and_in_time_while_a_relay_is_frozen_amid_a_batch() {
    let stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, 4).await;
    // Who begins first commits last: one of the two is far from its database.
    let far = stack.node(Role::Admission, 1).postgres.as_ref().unwrap();
    far.slow(Direction::ToServer, Duration::from_millis(15));
    change_and_see(&stack, &fleet, 0, 4).await;

    let frozen = stack.node(Role::Admission, 1);
    let calls = freeze_amid_a_batch(&stack, &fleet, 1, 0).await;
    let until = Instant::now() + soak::period(Duration::from_secs(3));
    let mut round = 1;
    while Instant::now() < until {
        change_and_see(&stack, &fleet, round, 2).await;
        round += 1;
    }
    frozen.victim().thaw();
    frozen.nats.heal();
    calls.join_all().await;
    change_and_see(&stack, &fleet, round, 2).await;
    far.heal();
    convergence::assert_converges(&stack, &fleet).await;
    fleet.assert_ordered();
    fleet.assert_watches_stayed();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_thaws_hides_no_change_that_was_made_while_it_was_frozen() {
    let stack = Stack::start(Plan::pairs().replicas(Role::Admission, 3)).await;
    let fleet = Fleet::start(&stack, 3).await;
    let waiting = "select count(*) from roadstead.outbox";
    let mut halts = [0; 3];
    for round in 0..soak::count(2) {
        let number = 1 + round as usize % 3;
        let victim = stack.node(Role::Admission, number);
        let calls = freeze_amid_a_batch(&stack, &fleet, number, halts[number - 1]).await;
        halts[number - 1] += 1;
        // Longer than the others leave its marks to it: they are published for it, and newer ones follow.
        eventually(SEEN, "others publish what it left behind", async || {
            stack.session().await.value(waiting).await == "0"
        })
        .await;
        change_and_see(&stack, &fleet, round, 1).await;
        // It goes on where it stood, with marks that are old news and rows that are gone, amid new changes.
        let (thawing, changing) = (async { victim.victim().thaw() }, change_and_see(&stack, &fleet, round + 100, 2));
        tokio::join!(changing, thawing);
        victim.nats.heal();
        calls.join_all().await;
        convergence::assert_converges(&stack, &fleet).await;
    }
    fleet.assert_ordered();
}
