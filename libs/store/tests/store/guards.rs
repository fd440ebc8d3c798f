//! Each condition of the second flight is broken between the flights.

use roadstead_proto::api::v1::{PolicyStatus, SandboxPhase, WorkspaceRole};
use roadstead_store::FlightError;
use roadstead_store::error::Unique;
use roadstead_store::mutation::{Locks, Write};
use roadstead_store::row;
use uuid::Uuid;

use crate::world::{
    World, claimed, command, effect, member, next, policy, provider, refusal, sandbox, service, setting, template,
    workspace,
};

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

async fn objects(world: &World) -> Objects {
    let w = world.workspace("w").await;
    world.member(&w, "ann", WorkspaceRole::User).await;
    let (s, p) = (world.sandbox(&w, "s").await, world.provider(&w, "p").await);
    let (t, web) = (template(&w, "t"), service(&s, "web"));
    world
        .write(vec![
            Write::InsertTemplate(t.clone()),
            Write::InsertService(web.clone()),
            Write::InsertPolicyRevision(policy(Some(s.id), 1)),
            Write::PutSetting { scope: Some(s.id), key: "k".into(), value: setting("v") },
            Write::SetSettingsRevision { scope: Some(s.id), revision: 1 },
        ])
        .await;
    Objects { w, s, p, t, web }
}

#[tokio::test]
async fn a_write_that_misses_its_row_undoes_everything() {
    let mut world = World::new().await;
    let Objects { w, s, p, t, web } = objects(&world).await;
    let updated = |row: &row::Workspace| row::Workspace { resource_version: row.resource_version + 1, ..row.clone() };
    let update_provider = row::Provider { resource_version: 2, ..p.clone() };
    let settle = |version| Write::SettlePolicy {
        scope: Some(s.id),
        version,
        status: PolicyStatus::Loaded,
        error: String::new(),
    };
    let bump = |table: &str| format!("update roadstead.{table} set resource_version = resource_version + 1");
    let cases: Vec<(String, Write)> = vec![
        (bump("workspace"), Write::UpdateWorkspace(updated(&w))),
        (bump("sandbox"), Write::UpdateSandbox(next(&s, |row| row.phase = SandboxPhase::Ready))),
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
        ("select 1".into(), Write::InsertService(service(&s, "web"))),
        ("delete from roadstead.service_endpoint".into(), Write::DeleteService(web.id)),
        // Still attached.
        ("select 1".into(), Write::DeleteProvider(p.id)),
        ("delete from roadstead.attachment".into(), Write::Detach { sandbox_id: s.id, provider_id: p.id }),
        // Not empty.
        ("select 1".into(), Write::DeleteWorkspace(w.id)),
        ("delete from roadstead.provider".into(), Write::Attach { sandbox_id: s.id, provider_id: p.id }),
        ("select 1".into(), Write::DeleteProvider(p.id)),
        ("delete from roadstead.sandbox".into(), Write::DeleteSandbox(s.id)),
        ("select 1".into(), Write::InsertService(service(&s, "x"))),
        ("delete from roadstead.workspace where name = 'w'".into(), Write::InsertSandbox(sandbox(&w, "x"))),
        ("select 1".into(), Write::InsertProvider(provider(&w, "x"))),
        ("select 1".into(), Write::InsertTemplate(template(&w, "x"))),
        ("select 1".into(), Write::InsertMember(member(&w, "bob", WorkspaceRole::User))),
        ("select 1".into(), Write::DeleteWorkspace(w.id)),
    ];
    for (sql, write) in cases {
        let what = format!("{sql}: {write:?}");
        let error = broken(&mut world, &sql, vec![write]).await;
        assert!(matches!(error, FlightError::Guard(_)), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn a_name_taken_between_the_flights_is_a_conflict() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let v = format!("('{}', 'w'", w.id);
    let cases = [
        (
            "insert into roadstead.workspace (id, name) values (gen_random_uuid(), 'x')".to_owned(),
            Write::InsertWorkspace(workspace("x")),
            Unique::WorkspaceName,
        ),
        (
            format!(
                "insert into roadstead.sandbox (workspace_id, workspace_name, id, name, phase, attachment_epoch) values {v}, gen_random_uuid(), 'x', 1, gen_random_uuid())"
            ),
            Write::InsertSandbox(sandbox(&w, "x")),
            Unique::SandboxName,
        ),
        (
            format!(
                "insert into roadstead.provider (workspace_id, workspace_name, id, name, kind) values {v}, gen_random_uuid(), 'x', 'k')"
            ),
            Write::InsertProvider(provider(&w, "x")),
            Unique::ProviderName,
        ),
        (
            format!(
                "insert into roadstead.member (workspace_id, workspace_name, id, subject, role) values {v}, gen_random_uuid(), 'x', 1)"
            ),
            Write::InsertMember(member(&w, "x", WorkspaceRole::Admin)),
            Unique::Member,
        ),
        (
            format!(
                "insert into roadstead.workload_template (workspace_id, workspace_name, id, name) values {v}, gen_random_uuid(), 'x')"
            ),
            Write::InsertTemplate(template(&w, "x")),
            Unique::TemplateName,
        ),
    ];
    for (sql, write, expected) in cases {
        let error = broken(&mut world, &sql, vec![write]).await;
        assert!(matches!(error, FlightError::Conflict(unique) if unique == expected), "{error:?}");
    }
}

#[tokio::test]
async fn a_ledger_row_that_is_gone_undoes_everything() {
    let mut world = World::new().await;
    // No other transaction can see the rows before the commit; a trigger plays one that could.
    world
        .sql
        .run(
            "create function roadstead.steal() returns trigger language plpgsql as $$ begin
                 delete from roadstead.claim; return null; end $$;
             create trigger steal after insert on roadstead.workspace execute function roadstead.steal()",
        )
        .await;
    let in_flight = world.first(&claimed("w", Uuid::new_v4()), &Locks::default()).await.unwrap();
    let error = in_flight.conclude(effect(vec![Write::InsertWorkspace(workspace("w"))])).await.unwrap_err();
    assert!(matches!(error, FlightError::Guard(_)), "{error:?}");

    world.sql.run("create or replace function roadstead.steal() returns trigger language plpgsql as $$ begin delete from roadstead.command; return null; end $$").await;
    let in_flight = world.first(&command(), &Locks::default()).await.unwrap();
    let error = in_flight.conclude(effect(vec![Write::InsertWorkspace(workspace("w"))])).await.unwrap_err();
    assert!(matches!(error, FlightError::Guard(_)), "{error:?}");
    assert_eq!(world.sql.value("select count(*) from roadstead.workspace where name = 'w'").await, "0");
    world.first(&command(), &Locks::default()).await.unwrap().conclude(refusal()).await.unwrap();
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
