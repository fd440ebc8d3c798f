//! Thousands of old records are cleared away from under a load that does not notice, and nothing of them is logged.

use std::time::{Duration, Instant};

use roadstead_e2e::api::{client, scope};
use roadstead_e2e::{Fleet, Load, effect, load};
use roadstead_proto::api::v1::{CreateSandboxRequest, DeleteSandboxRequest, SandboxSpec};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually, soak};

/// Sweeps come every ten seconds.
const CLEAN: Duration = Duration::from_secs(60);
const CANARY: &str = "canary-5eed";

/// Old records of every kind that retention removes, and one of each that it must not, all with the canary in them.
fn records(claims: u32, commands: u32, set_aside: u32) -> String {
    format!(
        "insert into roadstead.claim (caller, method, scope, request_id, format, protected, key_id, fingerprint,
            command_id, created_at, completed_at, receipt)
         select '{CANARY}', 'CreateSandbox', '{CANARY}', gen_random_uuid(), 1, true, '{CANARY}', '{CANARY}',
            gen_random_uuid(), now() - interval '25 hours',
            case when n > 1 then now() - interval '25 hours' end, '{CANARY}'
         from generate_series(1, {claims}) n;
         insert into roadstead.quota_slot
            select '{CANARY}', slot, roadstead.slot_part({claims}, slot) from generate_series(0, 7) slot;
         insert into roadstead.command (id, method, caller, deadline, created_at, outcome, settled_at, body)
         select gen_random_uuid(), '{CANARY}', '{CANARY}', now(), now() - interval '1 hour',
            case when n > 1 then 1 else 0 end, now() - interval '1 hour', '{CANARY}'
         from generate_series(1, {commands}) n;
         insert into roadstead.set_aside (subject, reason, payload, created_at)
         select '{CANARY}', '{CANARY}', '{CANARY}', now() - case when n > 1 then interval '31 days' else '0' end
         from generate_series(1, {set_aside}) n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn old_records_are_cleared_away_from_under_a_load_and_nothing_of_them_is_logged() {
    let plan = Plan::pairs().flag(Role::Admission, "--log-level=debug");
    let stack = Stack::start(plan).await;
    let fleet = Fleet::start(&stack, 1).await;
    let mut api = client(&stack.edge(1));
    let request = CreateSandboxRequest {
        workspace_scope: scope(fleet.workspace()),
        name: "old".to_owned(),
        spec: Some(SandboxSpec::default()),
        ..Default::default()
    };
    api.create_sandbox(request).await.unwrap();
    let mut side = stack.session().await;
    let revisions = format!(
        "insert into roadstead.policy_revision (scope, version, hash, policy, status)
         select id, n, '{CANARY}', '{CANARY}', 4 from roadstead.sandbox, generate_series(1, {}) n where name = 'old'",
        soak::count(500)
    );
    side.run(&revisions).await;
    side.run(&records(soak::count(2000), soak::count(3000), soak::count(500))).await;

    let load = Load::start(&Fleet::edges(&stack), fleet.workspace(), &fleet.names());
    load.progress(20).await;
    let begun = Instant::now();
    let request = DeleteSandboxRequest {
        workspace_scope: scope(fleet.workspace()),
        name: "old".to_owned(),
        ..Default::default()
    };
    api.delete_sandbox(request).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let left = format!(
        "select (select count(*) from roadstead.claim where caller = '{CANARY}'),
            (select sum(used) from roadstead.quota_slot where caller = '{CANARY}'),
            (select count(*) from roadstead.command where method = '{CANARY}'),
            (select count(*) from roadstead.set_aside where subject = '{CANARY}'),
            (select count(*) from roadstead.policy_revision where hash = '{CANARY}'),
            (select count(*) from roadstead.forgotten)"
    );
    eventually(CLEAN, "what is old is gone, and nothing else", async || {
        let row = stack.session().await.run(&left).await.remove(0);
        if row == ["1", "1", "1", "1", "0", "0"] { Ok(()) } else { Err(format!("{row:?}")) }
    })
    .await;
    load.progress(20).await;
    let mutations = load.stop().await;
    load::assert_none_failed(&mutations);
    effect::assert_sound(&mut side, fleet.workspace(), &mutations).await;

    for node in stack.nodes() {
        let file = stack.folder().join(format!("{}-{}.log", node.role().name(), node.number()));
        let log = std::fs::read_to_string(&file).unwrap();
        assert!(!log.is_empty(), "{} is not its log", file.display());
        assert!(!log.contains(CANARY), "{} has the canary", file.display());
        let hex: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!log.contains(&hex), "{} has the canary in hexadecimal", file.display());
    }
}
