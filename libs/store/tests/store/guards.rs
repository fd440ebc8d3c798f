//! Each condition of the second flight is broken between the flights.

use std::collections::BTreeSet;

use roadstead_proto::api::v1::{PolicyStatus, ProviderMutationKind, SandboxPhase, WorkspaceRole};
use roadstead_store::FlightError;
use roadstead_store::error::Unique;
use roadstead_store::mutation::{Command, Conclusion, Ledger, Locks, Write};
use roadstead_store::row;
use uuid::Uuid;

use crate::world::{
    CALLER, World, claimed, command, effect, member, next, policy, provider, refusal, response, sandbox, service,
    setting, template, workspace,
};

/// Every kind of one of the store's enums, and which kind a value is. A kind that is new does not compile until it is
/// listed, and what is listed must be broken below.
macro_rules! kinds {
    ($all:ident, $of:ident, $type:ident: $($kind:ident)*) => {
        const $all: &[&str] = &[$(stringify!($kind)),*];

        fn $of(value: &$type) -> &'static str {
            match value {
                $($type::$kind { .. } => stringify!($kind),)*
            }
        }
    };
}

kinds!(WRITES, write_kind, Write:
    InsertWorkspace UpdateWorkspace DeleteWorkspace
    InsertMember DeleteMember
    InsertTemplate DeleteTemplate
    InsertService UpdateService DeleteService
    InsertProvider UpdateProvider DeleteProvider
    InsertSandbox UpdateSandbox DeleteSandbox
    Attach Detach
    InsertReceipts SettleReceipts PutObservation
    InsertPolicyRevision SettlePolicy
    PutSetting DeleteSetting SetSettingsRevision
);
kinds!(CONCLUSIONS, conclusion_kind, Conclusion: Effect Refusal Replay);

/// Writes that hold under any condition, and so have none to break.
const UNCONDITIONAL: [&str; 2] = ["PutSetting", "SettleReceipts"];

/// Begins a mutation, runs `sql` beside it, and concludes: what came of it. Nothing may be left of it.
async fn broken(world: &mut World, sql: &str, writes: Vec<Write>) -> FlightError {
    let command = command();
    let in_flight = world.first(&command, &Locks::default()).await.unwrap();
    world.sql.run(sql).await;
    // A write in front shows that all of it is undone.
    let all = [vec![Write::InsertWorkspace(workspace("canary"))], writes].concat();
    let error = in_flight.conclude(effect(all)).await.unwrap_err();
    assert_eq!(world.sql.value("select count(*) from roadstead.workspace where name = 'canary'").await, "0");
    let ledger = format!("select count(*) from roadstead.command where id = '{}'", command.id);
    assert_eq!(world.sql.value(&ledger).await, "0");
    error
}

struct Objects {
    w: row::Workspace,
    s: row::Sandbox,
    p: row::Provider,
    t: row::WorkloadTemplate,
    web: row::ServiceEndpoint,
}

impl Objects {
    fn new() -> Self {
        let w = workspace("w");
        let s = sandbox(&w, "s");
        Self { p: provider(&w, "p"), t: template(&w, "t"), web: service(&s, "web"), s, w }
    }

    async fn store(&self, world: &World) {
        let Self { w, s, p, t, web } = self;
        world
            .write(vec![
                Write::InsertWorkspace(w.clone()),
                Write::InsertMember(member(w, "ann", WorkspaceRole::User)),
                Write::InsertSandbox(s.clone()),
                Write::InsertProvider(p.clone()),
                Write::InsertTemplate(t.clone()),
                Write::InsertService(web.clone()),
                Write::InsertPolicyRevision(policy(Some(s.id), 1)),
                Write::PutSetting { scope: Some(s.id), key: "k".into(), value: setting("v") },
                Write::SetSettingsRevision { scope: Some(s.id), revision: 1 },
            ])
            .await;
    }
}

/// What happens between the flights, and the write that must not hold then; each after those before it.
fn misses(objects: &Objects) -> Vec<(String, Write)> {
    let Objects { w, s, p, t, web } = objects;
    let updated = |row: &row::Workspace| row::Workspace { resource_version: row.resource_version + 1, ..row.clone() };
    let update_provider = row::Provider { resource_version: 2, ..p.clone() };
    let settle = |version| Write::SettlePolicy {
        scope: Some(s.id),
        version,
        status: PolicyStatus::Loaded,
        error: String::new(),
    };
    let bump = |table: &str| format!("update roadstead.{table} set resource_version = resource_version + 1");
    vec![
        (bump("workspace"), Write::UpdateWorkspace(updated(w))),
        (bump("sandbox"), Write::UpdateSandbox(next(s, |row| row.phase = SandboxPhase::Ready))),
        (bump("provider"), Write::UpdateProvider(update_provider)),
        ("delete from roadstead.member".into(), Write::DeleteMember { workspace_id: w.id, subject: "ann".into() }),
        ("delete from roadstead.setting".into(), Write::DeleteSetting { scope: Some(s.id), key: "k".into() }),
        (
            "update roadstead.settings_revision set revision = 7".into(),
            Write::SetSettingsRevision { scope: Some(s.id), revision: 2 },
        ),
        (
            "delete from roadstead.settings_revision".into(),
            Write::SetSettingsRevision { scope: Some(s.id), revision: 2 },
        ),
        (
            format!(
                "insert into roadstead.policy_revision select scope, 2, hash, policy, status from roadstead.policy_revision where scope = '{}'",
                s.id
            ),
            Write::InsertPolicyRevision(policy(Some(s.id), 2)),
        ),
        ("delete from roadstead.policy_revision".into(), settle(1)),
        (
            format!("insert into roadstead.attachment (sandbox_id, provider_id) values ('{}', '{}')", s.id, p.id),
            Write::Attach { sandbox_id: s.id, provider_id: p.id },
        ),
        ("delete from roadstead.workload_template".into(), Write::DeleteTemplate(t.id)),
        (
            "update roadstead.service_endpoint set resource_version = 7".into(),
            Write::UpdateService(row::ServiceEndpoint { resource_version: 2, ..web.clone() }),
        ),
        ("select 1".into(), Write::InsertService(service(s, "web"))),
        ("delete from roadstead.service_endpoint".into(), Write::DeleteService(web.id)),
        // Still attached.
        ("select 1".into(), Write::DeleteProvider(p.id)),
        ("delete from roadstead.attachment".into(), Write::Detach { sandbox_id: s.id, provider_id: p.id }),
        // Not empty.
        ("select 1".into(), Write::DeleteWorkspace(w.id)),
        ("delete from roadstead.provider".into(), Write::Attach { sandbox_id: s.id, provider_id: p.id }),
        ("select 1".into(), Write::DeleteProvider(p.id)),
        ("delete from roadstead.sandbox".into(), Write::DeleteSandbox(s.id)),
        ("select 1".into(), Write::InsertService(service(s, "x"))),
        ("select 1".into(), Write::InsertReceipts(vec![receipt(s, p)])),
        ("select 1".into(), Write::PutObservation(observation(s))),
        ("delete from roadstead.workspace where name = 'w'".into(), Write::InsertSandbox(sandbox(w, "x"))),
        ("select 1".into(), Write::InsertProvider(provider(w, "x"))),
        ("select 1".into(), Write::InsertTemplate(template(w, "x"))),
        ("select 1".into(), Write::InsertMember(member(w, "bob", WorkspaceRole::User))),
        ("select 1".into(), Write::DeleteWorkspace(w.id)),
    ]
}

fn receipt(s: &row::Sandbox, p: &row::Provider) -> row::ProviderReceipt {
    row::ProviderReceipt {
        id: Uuid::now_v7(),
        sandbox_id: s.id,
        mutation_id: Uuid::now_v7(),
        kind: ProviderMutationKind::Attach,
        provider_id: p.id,
        provider_name: p.name.clone(),
        provider_version: p.resource_version,
        attachment_epoch: s.attachment_epoch,
        persisted_at: s.created_at,
        completion: row::Completion::pending(),
    }
}

fn observation(s: &row::Sandbox) -> row::Observation {
    row::Observation {
        sandbox_id: s.id,
        session_id: Uuid::now_v7(),
        readiness_announced: true,
        readiness_number: 0,
        readiness: None,
        readiness_at: s.created_at,
        endpoint_sequence: 0,
    }
}

/// Who takes a name between the flights, the write that wanted it, and what that is told.
fn taken(w: &row::Workspace) -> Vec<(String, Write, Unique)> {
    let v = format!("('{}', 'w'", w.id);
    vec![
        (
            "insert into roadstead.workspace (id, name) values (gen_random_uuid(), 'x')".to_owned(),
            Write::InsertWorkspace(workspace("x")),
            Unique::WorkspaceName,
        ),
        (
            format!(
                "insert into roadstead.sandbox (workspace_id, workspace_name, id, name, phase, attachment_epoch) values {v}, gen_random_uuid(), 'x', 1, gen_random_uuid())"
            ),
            Write::InsertSandbox(sandbox(w, "x")),
            Unique::SandboxName,
        ),
        (
            format!(
                "insert into roadstead.provider (workspace_id, workspace_name, id, name, kind) values {v}, gen_random_uuid(), 'x', 'k')"
            ),
            Write::InsertProvider(provider(w, "x")),
            Unique::ProviderName,
        ),
        (
            format!(
                "insert into roadstead.member (workspace_id, workspace_name, id, subject, role) values {v}, gen_random_uuid(), 'x', 1)"
            ),
            Write::InsertMember(member(w, "x", WorkspaceRole::Admin)),
            Unique::Member,
        ),
        (
            format!(
                "insert into roadstead.workload_template (workspace_id, workspace_name, id, name) values {v}, gen_random_uuid(), 'x')"
            ),
            Write::InsertTemplate(template(w, "x")),
            Unique::TemplateName,
        ),
    ]
}

#[test]
fn the_condition_of_every_kind_of_write_is_broken_here() {
    let objects = Objects::new();
    let taken = taken(&objects.w).into_iter().map(|(_, write, _)| write);
    let broken = misses(&objects).into_iter().map(|(_, write)| write).chain(taken);
    let broken = broken.map(|write| write_kind(&write)).collect::<BTreeSet<_>>();
    let all = WRITES.iter().copied().filter(|kind| !UNCONDITIONAL.contains(kind)).collect::<BTreeSet<_>>();
    assert_eq!(broken, all);
}

#[tokio::test]
async fn a_write_that_misses_its_row_undoes_everything() {
    let mut world = World::new().await;
    let objects = Objects::new();
    objects.store(&world).await;
    for (sql, write) in misses(&objects) {
        let what = format!("{sql}: {write:?}");
        let error = broken(&mut world, &sql, vec![write]).await;
        assert!(matches!(error, FlightError::Guard(_)), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn a_name_taken_between_the_flights_is_a_conflict() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    for (sql, write, expected) in taken(&w) {
        let error = broken(&mut world, &sql, vec![write]).await;
        assert!(matches!(error, FlightError::Conflict(unique) if unique == expected), "{error:?}");
    }
}

/// Has `act` done by Postgres itself right after `event`: no other transaction sees the ledger's rows before the
/// commit, so a trigger plays one that could.
async fn play(world: &mut World, event: &str, act: &str) {
    let sql = format!(
        "create or replace function roadstead.steal() returns trigger language plpgsql as $$ begin {act}; return null; end $$;
         drop trigger if exists steal on roadstead.claim; drop trigger if exists steal on roadstead.command;
         create trigger steal after {event} for each statement execute function roadstead.steal()"
    );
    world.sql.run(&sql).await;
}

fn conclusions() -> [Conclusion; 3] {
    let replay = Conclusion::Replay(response("done"));
    let conclusions = [effect(vec![Write::InsertWorkspace(workspace("x"))]), refusal(), replay];
    assert_eq!(conclusions.each_ref().map(conclusion_kind).as_slice(), CONCLUSIONS);
    conclusions
}

/// A command whose request id is new, or taken already where the conclusion is a replay.
async fn asked(world: &World, conclusion: &Conclusion) -> Command {
    let request_id = Uuid::new_v4();
    if let Conclusion::Replay(_) = conclusion {
        let earlier = world.first(&claimed("w", request_id), &Locks::default()).await.unwrap();
        earlier.conclude(effect(Vec::new())).await.unwrap();
    }
    claimed("w", request_id)
}

#[tokio::test]
async fn without_its_row_in_the_ledger_nothing_is_concluded() {
    let mut world = World::new().await;
    for conclusion in conclusions() {
        world.sql.run("drop trigger if exists steal on roadstead.claim").await;
        let (kind, command) = (conclusion_kind(&conclusion), asked(&world, &conclusion).await);
        play(&mut world, "insert on roadstead.claim", "delete from roadstead.command where outcome is null").await;
        let in_flight = world.first(&command, &Locks::default()).await.unwrap();
        let error = in_flight.conclude(conclusion).await.unwrap_err();
        assert!(matches!(error, FlightError::Guard(_)), "{kind}: {error:?}");
        let left = format!(
            "select (select count(*) from roadstead.workspace where name = 'x') + \
             (select count(*) from roadstead.claim where command_id = '{}')",
            command.id
        );
        assert_eq!(world.sql.value(&left).await, "0", "{kind}");
    }
}

#[tokio::test]
async fn without_its_claim_nothing_is_concluded_that_needs_one() {
    let mut world = World::new().await;
    for conclusion in conclusions() {
        let (kind, command) = (conclusion_kind(&conclusion), asked(&world, &conclusion).await);
        play(&mut world, "update on roadstead.command", "delete from roadstead.claim where completed_at is null").await;
        let in_flight = world.first(&command, &Locks::default()).await.unwrap();
        // A replay has no claim of its own.
        let own = matches!(in_flight.loaded().ledger, Ledger::Fresh);
        let concluded = in_flight.conclude(conclusion).await;
        match own {
            true => assert!(matches!(concluded, Err(FlightError::Guard(_))), "{kind}: {concluded:?}"),
            false => assert!(concluded.is_ok(), "{kind}: {concluded:?}"),
        }
        let left = format!("select count(*) from roadstead.command where id = '{}'", command.id);
        assert_eq!(world.sql.value(&left).await, if own { "0" } else { "1" }, "{kind}");
        world.sql.run("drop trigger steal on roadstead.command").await;
    }
}

#[tokio::test]
async fn a_quota_filled_between_the_flights_is_full() {
    let mut world = World::new().await;
    let command = claimed("w", Uuid::new_v4());
    let in_flight = world.first(&command, &Locks::default()).await.unwrap();
    let caller = CALLER.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let fill = format!(
        "insert into roadstead.quota_slot (caller, slot, used)
         select decode('{caller}', 'hex'), slot, 125 from generate_series(0, 7) slot"
    );
    world.sql.run(&fill).await;
    let error = in_flight.conclude(effect(vec![Write::InsertWorkspace(workspace("x"))])).await.unwrap_err();
    assert!(matches!(error, FlightError::QuotaExceeded), "{error:?}");
    let left = "select (select count(*) from roadstead.workspace where name = 'x') + (select count(*) from roadstead.claim) + \
        (select count(*) from roadstead.command)";
    assert_eq!(world.sql.value(left).await, "0");
}

#[tokio::test]
async fn a_settled_policy_supersedes_what_is_open_below_it() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let s = world.sandbox(&w, "s").await;
    let other = world.sandbox(&w, "other").await;
    let insert = |scope, version| Write::InsertPolicyRevision(policy(scope, version));
    let settle = |scope, version, status| Write::SettlePolicy { scope, version, status, error: "why".into() };
    let mut writes: Vec<_> = (1..=5).map(|version| insert(Some(s.id), version)).collect();
    writes.push(insert(Some(other.id), 1));
    writes.push(insert(None, 1));
    world.write(writes).await;
    let of = |scope: Uuid| {
        format!(
            "select string_agg(status::text, '' order by version) from roadstead.policy_revision where scope = '{scope}'"
        )
    };

    world.write(vec![settle(Some(s.id), 2, PolicyStatus::Loaded)]).await;
    assert_eq!(world.sql.value(&of(s.id)).await, "42111");
    world.write(vec![settle(Some(s.id), 4, PolicyStatus::Failed)]).await;
    assert_eq!(world.sql.value(&of(s.id)).await, "42431");
    world.write(vec![settle(Some(s.id), 5, PolicyStatus::Loaded)]).await;
    assert_eq!(world.sql.value(&of(s.id)).await, "44432");
    assert_eq!(
        (world.sql.value(&of(other.id)).await, world.sql.value(&of(Uuid::nil())).await),
        ("1".into(), "1".into())
    );
    let stamped = format!(
        "select string_agg(version::text, '' order by version) from roadstead.policy_revision where loaded_at is not null and scope = '{}'",
        s.id
    );
    assert_eq!(world.sql.value(&stamped).await, "25");
}
