use roadstead_proto::role::Role;
use roadstead_store::migrate::{Raised, migrate, raise_epoch};
use roadstead_testkit::sql::Session;

use crate::world::{World, login, passwords};

#[tokio::test]
async fn migrations_run_twice_and_by_several_at_once() {
    let postgres = roadstead_testkit::Database::empty().await;
    let url = postgres.owner().url_with_password().into();
    let passwords = passwords();
    let (one, other) = tokio::join!(migrate(&url, &passwords), migrate(&url, &passwords));
    one.unwrap();
    other.unwrap();
    migrate(&url, &passwords).await.unwrap();
    let mut sql = postgres.session().await;
    assert_eq!(sql.value("select count(*) from roadstead.workspace where name = 'default'").await, "1");
    assert_eq!(sql.value("select value from roadstead.epoch").await, "1");
}

#[tokio::test]
async fn the_epoch_rises_only_by_its_owner() {
    let mut world = World::new().await;
    assert_eq!(
        raise_epoch(&world.postgres.owner().url_with_password().into()).await.unwrap(),
        Raised { before: 1, now: 2 }
    );
    assert_eq!(world.role(Role::ConfigSnapshot).epoch().await.unwrap(), 2);
    assert_eq!(world.sql.value("select value from roadstead.epoch").await, "2");
    let mut admission = Session::open(&login(&world.postgres, Role::Admission)).await;
    let refused = admission.try_run("update roadstead.epoch set value = 9").await.unwrap_err();
    assert_eq!(refused.state, "42501");
}

/// What each role may not do; `insufficient_privilege` is the answer to all of it.
#[tokio::test]
async fn roles_reach_no_further_than_their_grants() {
    let world = World::new().await;
    let forbidden: [(Role, &[&str]); 3] = [
        (
            Role::Admission,
            &[
                "create table roadstead.t ()",
                "drop table roadstead.outbox",
                "truncate roadstead.command",
                "alter table roadstead.sandbox disable trigger all",
                "select nextval('roadstead.snapshot_sequence')",
                "select * from roadstead.refinery_schema_history",
            ],
        ),
        (
            Role::ConfigSnapshot,
            &[
                "insert into roadstead.outbox (kind, workspace_id, object_id, configuration) \
                 values ('x', gen_random_uuid(), gen_random_uuid(), true)",
                "update roadstead.sandbox set name = 'x'",
                "delete from roadstead.workspace",
                "select * from roadstead.command",
                "select * from roadstead.claim",
                "select * from roadstead.process",
                "select setval('roadstead.snapshot_sequence', 1)",
            ],
        ),
        (
            Role::Watch,
            &[
                "update roadstead.sandbox set name = 'x'",
                "delete from roadstead.member",
                "select credential_values from roadstead.provider",
                "select * from roadstead.provider",
                "select * from roadstead.command",
                "select * from roadstead.claim",
                "select nextval('roadstead.snapshot_sequence')",
            ],
        ),
    ];
    for (role, statements) in forbidden {
        let mut session = Session::open(&login(&world.postgres, role)).await;
        for statement in statements {
            let refused = session.try_run(statement).await.expect_err(statement);
            assert_eq!(refused.state, "42501", "{role}: {statement}");
        }
    }
}
