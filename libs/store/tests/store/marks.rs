use roadstead_proto::api::v1::{PolicyStatus, WorkspaceRole};
use roadstead_proto::subject::Kind;
use roadstead_store::mutation::{Command, Locks, Write};
use roadstead_store::row;
use roadstead_testkit::eventually;
use std::time::Duration;
use uuid::Uuid;

use crate::world::{World, command, effect, next, policy, provider, sandbox, setting, summary, workspace};

/// What one plain statement leaves in the outbox.
async fn marks_of(world: &mut World, sql: &str) -> Vec<(String, String, bool)> {
    world.sql.run("delete from roadstead.outbox").await;
    world.sql.run(sql).await;
    let rows = world.sql.run("select kind, object_id, configuration from roadstead.outbox order by kind, object_id");
    let mut marks: Vec<_> = rows.await.into_iter().map(|row| (row[0].clone(), row[1].clone(), row[2] == "t")).collect();
    marks.sort();
    marks
}

fn marked(kind: &str, ids: &[Uuid], configuration: bool) -> Vec<(String, String, bool)> {
    let mut marks: Vec<_> = ids.iter().map(|id| (kind.to_owned(), id.to_string(), configuration)).collect();
    marks.sort();
    marks
}

#[tokio::test]
async fn plain_sql_leaves_one_mark_for_each_object_it_changes() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (one, two) = (world.sandbox(&w, "one").await, world.sandbox(&w, "two").await);
    let p = world.provider(&w, "p").await;
    let m = world.member(&w, "ann", WorkspaceRole::User).await;
    let both = [one.id, two.id];
    world.write(vec![Write::InsertPolicyRevision(policy(Some(one.id), 1))]).await;
    let (s, v) = (format!("where id = '{}'", one.id), format!("'{}'", one.id));

    let cases = [
        (
            "update roadstead.workspace set labels = '{}' where name = 'w'".to_owned(),
            marked("workspace", &[w.id], false),
        ),
        ("update roadstead.member set role = 2".to_owned(), marked("member", &[m.id], false)),
        ("update roadstead.provider set labels = '{}'".to_owned(), marked("provider", &[p.id], true)),
        // Status is no configuration.
        (format!("update roadstead.sandbox set phase = 2 {s}"), marked("sandbox", &[one.id], false)),
        ("update roadstead.sandbox set current_policy_version = 7".to_owned(), marked("sandbox", &both, false)),
        (format!("update roadstead.sandbox set spec = 'x' {s}"), marked("sandbox", &[one.id], true)),
        (
            "update roadstead.sandbox set attachment_epoch = gen_random_uuid()".to_owned(),
            marked("sandbox", &both, true),
        ),
        (
            format!("update roadstead.sandbox set configuration_instance_id = 'i' {s}"),
            marked("sandbox", &[one.id], true),
        ),
        (
            format!("insert into roadstead.attachment (sandbox_id, provider_id) values ({v}, '{}')", p.id),
            marked("sandbox", &[one.id], true),
        ),
        ("delete from roadstead.attachment".to_owned(), marked("sandbox", &[one.id], true)),
        (
            format!(
                "insert into roadstead.policy_revision (scope, version, hash, policy, status) values \
                 ({v}, 8, '', '', 1), ({v}, 9, '', '', 1)"
            ),
            marked("sandbox", &[one.id], true),
        ),
        // How a revision fared is not part of any configuration.
        ("update roadstead.policy_revision set status = 3".to_owned(), Vec::new()),
        ("update roadstead.policy_revision set hash = 'other'".to_owned(), marked("sandbox", &[one.id], true)),
        ("delete from roadstead.policy_revision where version = 9".to_owned(), marked("sandbox", &[one.id], true)),
        (
            format!("insert into roadstead.setting values ({v}, 'k', ''), ({v}, 'l', '')"),
            marked("sandbox", &[one.id], true),
        ),
        ("update roadstead.setting set value = 'x'".to_owned(), marked("sandbox", &[one.id], true)),
        ("delete from roadstead.setting".to_owned(), marked("sandbox", &[one.id], true)),
        (format!("insert into roadstead.settings_revision values ({v}, 1)"), marked("sandbox", &[one.id], true)),
        (
            "update roadstead.settings_revision set revision = 2".to_owned(),
            [marked("global", &[Uuid::nil()], true), marked("sandbox", &[one.id], true)].concat(),
        ),
        (
            format!(
                "insert into roadstead.policy_revision (scope, version, hash, policy, status) values ('{}', 1, '', '', 2)",
                Uuid::nil()
            ),
            marked("global", &[Uuid::nil()], true),
        ),
        (
            format!("insert into roadstead.setting values ('{}', 'k', '')", Uuid::nil()),
            marked("global", &[Uuid::nil()], true),
        ),
        ("delete from roadstead.sandbox".to_owned(), marked("sandbox", &both, true)),
        ("delete from roadstead.provider".to_owned(), marked("provider", &[p.id], true)),
        (
            "delete from roadstead.workspace where name = 'w'".to_owned(),
            [marked("member", &[m.id], false), marked("workspace", &[w.id], false)].concat(),
        ),
        ("update roadstead.sandbox set phase = 2".to_owned(), Vec::new()),
    ];
    for (sql, expected) in cases {
        assert_eq!(marks_of(&mut world, &sql).await, expected, "{sql}");
    }
    for table in ["workspace", "member", "provider", "sandbox", "attachment", "policy_revision", "setting"] {
        let refused = world.sql.try_run(&format!("truncate roadstead.{table} cascade")).await.unwrap_err();
        assert_eq!(refused.state, "P0001", "{table}");
    }
}

#[tokio::test]
async fn a_transaction_marks_an_object_once_and_carries_its_trace() {
    let world = World::new().await;
    let w = world.workspace("w").await;
    let (p, s) = (provider(&w, "p"), sandbox(&w, "s"));
    let traced = Command { traceparent: "00-ab-cd-01".into(), ..command() };
    let in_flight = world.first(&traced, &Locks::default()).await.unwrap();
    let writes = vec![
        Write::InsertProvider(p.clone()),
        Write::InsertSandbox(s.clone()),
        Write::Attach { sandbox_id: s.id, provider_id: p.id },
        Write::InsertPolicyRevision(policy(Some(s.id), 1)),
        Write::PutSetting { scope: Some(s.id), key: "k".into(), value: setting("v") },
        Write::SetSettingsRevision { scope: Some(s.id), revision: 1 },
    ];
    let marks = in_flight.conclude(effect(writes)).await.unwrap().outbox;
    assert_eq!(summary(&marks), [(("provider", p.id), (1, true)), (("sandbox", s.id), (1, true))].into());
    assert!(marks.iter().all(|mark| mark.traceparent == "00-ab-cd-01" && mark.mark.workspace_id == w.id));

    // A status first and a configuration after it make one mark of configuration.
    let later = next(&s, |row| row.generation = 2);
    let detach = Write::Detach { sandbox_id: s.id, provider_id: p.id };
    let marks = world.write(vec![Write::UpdateSandbox(later.clone()), detach]).await;
    assert_eq!(summary(&marks), [(("sandbox", s.id), (1, true))].into());
    assert!(marks[0].traceparent.is_empty());

    // The other way round as well.
    let attach = Write::Attach { sandbox_id: s.id, provider_id: p.id };
    let marks = world.write(vec![attach, Write::UpdateSandbox(next(&later, |row| row.generation = 3))]).await;
    assert_eq!(summary(&marks), [(("sandbox", s.id), (1, true))].into());
}

#[tokio::test]
async fn a_replica_gets_its_own_marks_only_and_what_is_left_behind_is_found() {
    let mut world = World::new().await;
    // What the first rows left.
    let first = eventually(Duration::from_secs(20), "marks are old enough", async || {
        Some(world.store.left_behind(100).await.unwrap()).filter(|marks| marks.len() == 2)
    })
    .await;
    assert!(first.iter().any(|row| row.mark.kind == Kind::Global && row.mark.object_id.is_nil()));
    world.store.delete_marks(first.iter().map(|row| row.id).collect()).await.unwrap();
    assert_eq!(world.store.waiting_marks().await.unwrap(), 0);

    let (one, other) = tokio::join!(
        world.write(vec![Write::InsertWorkspace(workspace("one"))]),
        world.write(vec![Write::InsertWorkspace(workspace("other"))]),
    );
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_ne!(one[0].mark, other[0].mark);
    world.sql.run("insert into roadstead.workspace (id, name) values (gen_random_uuid(), 'plain')").await;
    let sorted = |mut rows: Vec<row::OutboxRow>| {
        rows.sort_by_key(|row| row.id);
        rows
    };
    let behind = eventually(Duration::from_secs(20), "marks are old enough", async || {
        Some(world.store.left_behind(100).await.unwrap()).filter(|marks| marks.len() == 3)
    })
    .await;
    assert_eq!(behind[..2], sorted([one, other].concat()));
    assert_eq!(world.store.left_behind(1).await.unwrap(), behind[..1]);
    let ids: Vec<_> = behind.iter().map(|row| row.id).collect();
    let (one, other) = tokio::join!(world.store.delete_marks(ids.clone()), world.store.delete_marks(ids));
    assert_eq!(one.unwrap() + other.unwrap(), 3, "each is counted once, whoever deletes it");
    assert!(world.store.left_behind(100).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_hangs_on_a_sandbox_goes_with_it() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (s, p) = (world.sandbox(&w, "s").await, world.provider(&w, "p").await);
    let global = policy(None, 1);
    world
        .write(vec![
            Write::Attach { sandbox_id: s.id, provider_id: p.id },
            Write::InsertPolicyRevision(policy(Some(s.id), 1)),
            Write::InsertPolicyRevision(global),
            Write::SettlePolicy { scope: None, version: 1, status: PolicyStatus::Loaded, error: String::new() },
            Write::PutSetting { scope: Some(s.id), key: "k".into(), value: setting("v") },
            Write::PutSetting { scope: None, key: "k".into(), value: setting("v") },
            Write::SetSettingsRevision { scope: Some(s.id), revision: 1 },
        ])
        .await;
    world.write(vec![Write::DeleteSandbox(s.id)]).await;
    // Its policies after it, of which nobody is told.
    let drawn = "select last_value from pg_sequences where sequencename = 'outbox_id_seq'";
    let before = world.sql.value(drawn).await;
    assert_eq!(world.store.delete_forgotten(10).await.unwrap(), 1);
    assert_eq!(world.sql.value(drawn).await, before);
    let left = "select (select count(*) from roadstead.attachment), (select count(*) from roadstead.policy_revision), \
        (select count(*) from roadstead.setting), (select count(*) from roadstead.settings_revision)";
    assert_eq!(world.sql.run(left).await, [["0", "1", "1", "1"]]);
    world.write(vec![Write::DeleteProvider(p.id)]).await;
}
