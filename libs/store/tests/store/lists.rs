//! What a page costs, whatever the length of its list: blocks of tables and indexes, as Postgres counts them, and bytes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use roadstead_proto::api::v1;
use roadstead_proto::role::Role;
use roadstead_store::Database;
use roadstead_store::mutation::Write;
use roadstead_store::read::{After, Page, Reader};
use roadstead_store::row;
use roadstead_testkit::sql::Session;
use uuid::Uuid;

use crate::world::{World, next, pairs, provider, sandbox, template, workspace};

const FEW: u32 = 1_000;
const MANY: u32 = 100_000;
const PAGE: u32 = 100;

/// Every table and index of ours that was touched since the database was made.
const TOUCHED: &str = "select sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0)
    + coalesce(idx_blks_hit, 0) + coalesce(toast_blks_read, 0) + coalesce(toast_blks_hit, 0)
    + coalesce(tidx_blks_read, 0) + coalesce(tidx_blks_hit, 0)) from pg_statio_user_tables";
/// A connection tells what it has counted at its end, before it leaves this view.
const READERS: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and application_name like 'roadstead-watch%'";

/// Workspaces and sandboxes with the numbers `from` to `to`, one a millisecond. Workspace 1 is `w`, where all sandboxes are.
/// All bear `all=yes`; the first ten of a kind bear `few=yes` too. `ann` is a member of every workspace, `eve`
/// of the first.
async fn fill(sql: &mut Session, from: u32, to: u32) {
    let series = format!("from generate_series({from}, {to}) n");
    let labels = "case when n <= 10 then '{\"all\": \"yes\", \"few\": \"yes\"}'::jsonb else '{\"all\": \"yes\"}' end";
    let time = "'2026-01-01 00:00Z'::timestamptz + n * interval '1 ms'";
    // No triggers: they would make this long, and what they do is shown elsewhere.
    let id = "select id from roadstead.workspace where name = 'w'";
    let mut statements = vec![
        "set session_replication_role = replica".to_owned(),
        format!(
            "insert into roadstead.workspace (id, name, labels, created_at)
             select gen_random_uuid(), case n when 1 then 'w' else 'w' || n end, {labels}, {time} {series}"
        ),
        format!(
            "insert into roadstead.member (id, workspace_id, workspace_name, subject, role, workspace_created_at)
             select gen_random_uuid(), id, name, subject, 1, created_at
             from roadstead.workspace, unnest(array['ann', 'eve']) subject
             where created_at >= '2026-01-01 00:00Z'::timestamptz + {from} * interval '1 ms' and name <> 'default'
                and (subject = 'ann' or name = 'w')"
        ),
        format!(
            "insert into roadstead.sandbox (id, workspace_id, workspace_name, name, labels, phase, attachment_epoch,
                created_at)
             select gen_random_uuid(), ({id}), 'w', 's' || n, {labels}, 1, gen_random_uuid(), {time} {series}"
        ),
    ];
    for (kind, workspace) in [("workspace", "''"), ("sandbox", "workspace_name")] {
        statements.push(format!(
            "insert into roadstead.label select '{kind}', key || '=' || value, {workspace}, created_at, name, id
             from roadstead.{kind}, jsonb_each_text(labels)
             where created_at >= '2026-01-01 00:00Z'::timestamptz + {from} * interval '1 ms'"
        ));
    }
    // What this session has touched is told now, not in the midst of what is measured.
    statements.push("select pg_stat_force_next_flush()".to_owned());
    for statement in statements {
        sql.run(&statement).await;
    }
}

fn after(number: u32) -> After {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600) + Duration::from_millis(number.into());
    // Behind any name.
    After { created_at: time, name: "zzz".into(), workspace: "zzz".into(), id: Uuid::max() }
}

/// The lists that are measured. Those of other kinds are made of the same parts.
const LISTS: [&str; 10] = [
    "sandboxes",
    "sandboxes, all=yes",
    "sandboxes, all=yes,few=yes",
    "sandboxes everywhere",
    "sandboxes everywhere, all=yes",
    "sandboxes everywhere, all=yes,few=yes",
    "workspaces",
    "workspaces, all=yes,few=yes",
    "workspaces of ann",
    "workspaces of eve",
];

/// How many items are on the page of a list.
async fn page(database: &Database, list: &str, after: After) -> usize {
    let (what, selector) = list.split_once(", ").unwrap_or((list, ""));
    let labels = selector.split(',').filter_map(|pair| pair.split_once('=')).collect::<Vec<_>>();
    let page = Page { labels: pairs(&labels), after, most: PAGE };
    let admin = Reader::ADMIN;
    match what {
        "sandboxes" => database.sandboxes("w", admin, page).await.unwrap().found.items.len(),
        "sandboxes everywhere" => database.sandboxes_everywhere(page).await.unwrap().items.len(),
        "workspaces" => database.workspaces(admin, page).await.unwrap().items.len(),
        "workspaces of ann" => database.workspaces(Reader { subject: Some("ann") }, page).await.unwrap().items.len(),
        "workspaces of eve" => database.workspaces(Reader { subject: Some("eve") }, page).await.unwrap().items.len(),
        other => panic!("no list {other}"),
    }
}

/// Blocks that one page costs this reader, and what is on it. Other connections of readers stay.
async fn cost(sql: &mut Session, reader: Database, list: &str, after: After, others: usize) -> (usize, u64) {
    let before: u64 = sql.value(TOUCHED).await.parse().unwrap();
    let items = page(&reader, list, after).await;
    drop(reader);
    let deadline = Instant::now() + Duration::from_secs(20);
    while sql.value(READERS).await != others.to_string() {
        assert!(Instant::now() < deadline, "the reader's connection stays");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let touched: u64 = sql.value(TOUCHED).await.parse().unwrap();
    (items, touched - before)
}

#[tokio::test]
async fn a_page_costs_the_same_at_its_beginning_and_in_its_midst_however_long_the_list() {
    let mut world = World::new().await;
    for table in ["workspace", "member", "sandbox", "label"] {
        world.sql.run(&format!("alter table roadstead.{table} set (autovacuum_enabled = off)")).await;
    }
    // Their statements are planned while there is nothing.
    let mut early = Vec::new();
    for list in LISTS {
        let reader = world.role(Role::Watch);
        page(&reader, list, After::default()).await;
        early.push(reader);
    }
    fill(&mut world.sql, 1, FEW).await;
    let mut few = BTreeMap::new();
    for list in LISTS {
        let reader = world.role(Role::Watch);
        few.insert(list, cost(&mut world.sql, reader, list, After::default(), LISTS.len()).await);
    }
    fill(&mut world.sql, FEW + 1, MANY).await;
    let check = |list: &'static str, when: &str, (items, blocks): (usize, u64)| {
        let (expected, few) = few[list];
        assert!(when.contains("midst") || items == expected, "{list}, {when}: {items} items");
        // An index of a hundred times as many entries is one level deeper.
        assert!(blocks <= few * 3 / 2 + 50, "{list}, {when}: {few} blocks of {FEW}, {blocks} of {MANY}");
    };
    for (number, (list, early)) in LISTS.into_iter().zip(early).enumerate() {
        let others = LISTS.len() - number - 1;
        check(list, "planned early", cost(&mut world.sql, early, list, After::default(), others).await);
        for (when, after) in [("now", After::default()), ("in its midst", after(MANY / 2))] {
            let reader = world.role(Role::Watch);
            check(list, when, cost(&mut world.sql, reader, list, after, others).await);
        }
    }
    world.sql.run("analyze").await;
    world.sql.run("select pg_stat_force_next_flush()").await;
    for list in LISTS {
        let reader = world.role(Role::Watch);
        check(list, "once analyzed", cost(&mut world.sql, reader, list, After::default(), 0).await);
    }
}

#[tokio::test]
async fn labels_that_are_looked_up_are_those_that_are_there() {
    let mut world = World::new().await;
    let found =
        "select string_agg(kind || ' ' || pair || ' ' || workspace_name || ' ' || name, ', ' order by kind, pair)
        from roadstead.label";
    let w = row::Workspace { labels: pairs(&[("team", "a=b")]), ..workspace("w") };
    let s = row::Sandbox { labels: pairs(&[("tier", "one"), ("zone", "")]), ..sandbox(&w, "s") };
    let p = row::Provider { labels: pairs(&[("tier", "one")]), ..provider(&w, "p") };
    let t = row::WorkloadTemplate { labels: pairs(&[("tier", "two")]), ..template(&w, "t") };
    world.write(vec![Write::InsertWorkspace(w.clone())]).await;
    let inserts = [Write::InsertSandbox(s.clone()), Write::InsertProvider(p.clone()), Write::InsertTemplate(t.clone())];
    world.write(inserts.into()).await;
    let all = "provider tier=one w p, sandbox tier=one w s, sandbox zone= w s, workload_template tier=two w t, \
        workspace team=a=b  w";
    assert_eq!(world.sql.value(found).await, all);

    let changed = next(&s, |row| row.labels = pairs(&[("tier", "three")]));
    world.write(vec![Write::UpdateSandbox(changed.clone())]).await;
    let same = next(&changed, |row| row.phase = v1::SandboxPhase::Stopped);
    world.write(vec![Write::UpdateSandbox(same)]).await;
    assert_eq!(world.sql.value(found).await, all.replace("tier=one w s, sandbox zone= w s", "tier=three w s"));

    world.write(vec![Write::DeleteSandbox(s.id), Write::DeleteProvider(p.id), Write::DeleteTemplate(t.id)]).await;
    world.write(vec![Write::DeleteWorkspace(w.id)]).await;
    assert_eq!(world.sql.value(found).await, "");
}

/// Of each kind that can be large.
#[tokio::test]
async fn of_large_objects_a_page_reads_four_mebibytes_and_says_that_more_follow() {
    const LARGE: usize = 60;
    let mut world = World::new().await;
    let watch = world.role(Role::Watch);
    world.workspace("w").await;
    // What is the same everywhere would be stored small by whoever compresses it.
    let large = "json_build_object('note', repeat('x', 100000))";
    let rows = format!("from roadstead.workspace w, generate_series(1, {LARGE}) n where w.name = 'w'");
    for (table, columns, values) in [
        ("sandbox", "annotations, phase, attachment_epoch", format!("{large}, 1, gen_random_uuid()")),
        ("provider", "annotations, kind", format!("{large}, 'generic'")),
        ("workload_template", "annotations", large.to_owned()),
    ] {
        let insert = format!(
            "insert into roadstead.{table} (id, workspace_id, workspace_name, name, {columns})
             select gen_random_uuid(), w.id, w.name, 'n' || n, {values} {rows}"
        );
        world.sql.run(&insert).await;
    }
    let insert = format!(
        "insert into roadstead.policy_revision (scope, version, hash, policy, status, provenance)
         select '00000000-0000-0000-0000-000000000000', n, '', '', 2, {large} {rows}"
    );
    world.sql.run(&insert).await;
    let page = || Page { labels: pairs(&[]), after: After::default(), most: 1000 };
    let fits = |(items, more): (usize, bool)| {
        // The last one begins within the limit and may end behind it.
        assert!((41..=43).contains(&items) && more, "{items} items, {more}");
    };
    let counted = watch.sandboxes("w", Reader::ADMIN, page()).await.unwrap().found;
    fits((counted.items.len(), counted.more));
    let counted = watch.sandboxes_everywhere(page()).await.unwrap();
    fits((counted.items.len(), counted.more));
    let counted = watch.providers("w", Reader::ADMIN, page()).await.unwrap().found;
    fits((counted.items.len(), counted.more));
    let counted = watch.templates("w", Reader::ADMIN, page()).await.unwrap().found;
    fits((counted.items.len(), counted.more));
    let counted = watch.global_policy_revisions(None, 1000).await.unwrap();
    fits((counted.items.len(), counted.more));

    let ids = watch.sandbox_versions(Uuid::nil(), 1000).await.unwrap();
    let ids: Vec<_> = [Uuid::new_v4()].into_iter().chain(ids.iter().map(|version| version.id)).collect();
    let (_, entries) = watch.sandbox_entries(&ids).await.unwrap();
    // The one that is not there takes no room.
    assert!((42..=44).contains(&entries.len()) && entries[0].is_none(), "{} entries", entries.len());
    assert!(entries.iter().zip(&ids).skip(1).all(|(entry, id)| entry.as_ref().unwrap().id == *id));

    let (mut names, mut at) = (Vec::new(), After::default());
    loop {
        let listed = watch.templates("w", Reader::ADMIN, Page { after: at.clone(), ..page() }).await.unwrap().found;
        names.extend(listed.items.iter().map(|row| row.name.clone()));
        let Some(last) = listed.items.last().filter(|_| listed.more) else { break };
        at = After { created_at: last.created_at, name: last.name.clone(), workspace: "w".into(), id: last.id };
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), LARGE);
}
