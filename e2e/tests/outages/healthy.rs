//! B4: what nobody can renew is not lost. Database and broker are away for longer than processes are taken for gone
//! without a renewal, and no session and no sandbox notices. That mutations get over it too is shown with shorter
//! outages, by this folder's `database` and `broker`.

use std::time::Duration;

use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::{Fleet, Held, convergence};
use roadstead_proto::api::v1::{CreateSandboxRequest, SandboxSpec};
use roadstead_testkit::sql::Session;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Proxy, Stack, eventually, soak};
use tonic::Code;
use uuid::Uuid;

use crate::oracle::SANDBOXES;

/// How long they are away in full.
const DATABASE_AWAY: Duration = Duration::from_secs(30);
const BROKER_AWAY: Duration = Duration::from_secs(20);
/// How much of it is waited for: two renewals are missed, and a new session has been refused. By the rest the renewals
/// that the database knows are made older.
const WAITED: Duration = Duration::from_secs(12);
const SOON: Duration = Duration::from_secs(20);
/// How long it is looked for sandboxes that leave READY after all: a process that has begun to renew again judges others
/// after 20 s; here as long as one that forgot to wait would take.
const LOOKED: Duration = Duration::from_secs(4);
const RENEWALS: &str = r#"roadstead_renewals_total{role="supervisor-bridge"}"#;
const ENDED: &str = "roadstead_sessions_ended_total";

/// A sandbox that nobody supervises yet; its id and a token.
async fn newcomer(stack: &Stack, workspace: &str) -> (String, String) {
    let request = CreateSandboxRequest {
        workspace_scope: scope(workspace),
        name: "newcomer".to_owned(),
        spec: Some(SandboxSpec::default()),
        request_id: request_id(),
        ..Default::default()
    };
    let created = client(&stack.edge(1)).create_sandbox(request).await.unwrap().into_inner();
    let token = std::fs::read_to_string(stack.token(workspace, "newcomer").await).unwrap().trim().to_owned();
    (created.sandbox.unwrap().metadata.unwrap().id, token)
}

/// Waits until so much of an outage is over, and makes the database believe in the rest. A new session is refused.
async fn is_away(bridge: &str, (id, token): &(String, String), side: &mut Session, outage: Duration) {
    let waited = soak::period(WAITED).min(outage);
    let refused = async {
        let refused = Held::open(bridge, token, id, Uuid::new_v4(), 1).await.expect_err("no session begins");
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    };
    tokio::join!(tokio::time::sleep(waited), refused);
    let rest = (outage - waited).as_secs();
    side.run(&format!(
        "update roadstead.process set renewed_at = renewed_at - interval '{rest} s', since = since - interval '{rest} s'"
    ))
    .await;
}

async fn renewals(stack: &Stack) -> [f64; 2] {
    let of = async |number| stack.node(Role::SupervisorBridge, number).metric(RENEWALS).await;
    [of(1).await, of(2).await]
}

/// Renewals go on, and nobody has lost anything, nor does anybody later.
async fn nothing_was_lost(stack: &Stack, fleet: &Fleet, before: [f64; 2]) {
    eventually(SOON, "both bridges renew again", async || {
        let now = renewals(stack).await;
        if now[0] > before[0] + 1.0 && now[1] > before[1] + 1.0 { Ok(()) } else { Err(format!("{before:?}, {now:?}")) }
    })
    .await;
    tokio::time::sleep(LOOKED).await;
    convergence::assert_converges(stack, fleet).await;
    fleet.assert_never_unready(&mut stack.session().await).await;
    fleet.assert_ordered();
    fleet.assert_watches_stayed();
    assert_eq!(fleet.sessions(), [1; SANDBOXES], "a session was lost: {:?}", fleet.ends());
    for number in [1, 2] {
        let metrics = stack.node(Role::SupervisorBridge, number).metrics().await;
        let ended: Vec<_> = metrics.lines().filter(|line| line.starts_with(ENDED)).collect();
        assert!(ended.is_empty(), "a bridge has ended sessions: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_answers_nobody_for_half_a_minute_ends_no_session_and_lets_none_begin() {
    let stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let newcomer = newcomer(&stack, fleet.workspace()).await;
    // Past the proxies.
    let mut side = stack.session().await;
    let databases: Vec<&Proxy> = stack.nodes().iter().filter_map(|node| node.postgres.as_ref()).collect();
    databases.iter().for_each(|database| database.cut());
    let before = renewals(&stack).await;
    is_away(&stack.bridge(1), &newcomer, &mut side, DATABASE_AWAY).await;
    assert_eq!(fleet.sessions(), [1; SANDBOXES], "a session was lost: {:?}", fleet.ends());
    databases.iter().for_each(|database| database.heal());
    nothing_was_lost(&stack, &fleet, before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_for_twenty_seconds_ends_no_session_and_lets_none_begin() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let newcomer = newcomer(&stack, fleet.workspace()).await;
    let mut side = stack.session().await;
    stack.broker().stop().await;
    let before = renewals(&stack).await;
    is_away(&stack.bridge(1), &newcomer, &mut side, BROKER_AWAY).await;
    assert_eq!(fleet.sessions(), [1; SANDBOXES], "a session was lost: {:?}", fleet.ends());
    stack.broker().resume().await;
    nothing_was_lost(&stack, &fleet, before).await;
}
