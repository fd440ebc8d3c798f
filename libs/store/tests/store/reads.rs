use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_proto::role::Role;
use roadstead_store::Database;
use roadstead_store::inputs::Named;
use roadstead_store::mutation::{Ledger, Locks, Write};
use roadstead_store::read::{After, Listed, Page, Reader, Version};
use roadstead_store::row::{self, Pairs};
use uuid::Uuid;

use crate::world::{
    World, by_id, claimed, command, now, pairs, policy, provider, sandbox, session, setting, workspace,
};

const ANN: Reader<'static> = Reader { subject: Some("ann") };
const EVE: Reader<'static> = Reader { subject: Some("eve") };

fn page(most: u32) -> Page {
    Page { labels: Pairs::new(), after: After::default(), most }
}

/// A provider as readers see it.
fn shown(row: &row::Provider) -> row::Provider {
    let hidden = |known: &row::Credential| row::Credential { sealed_value: bytes::Bytes::new(), ..known.clone() };
    row::Provider { credentials: row.credentials.iter().map(hidden).collect(), ..row.clone() }
}

#[tokio::test]
async fn rows_are_read_as_they_were_written() {
    let world = World::new().await;
    let watch = world.role(Role::Watch);
    let w = world.workspace("w").await;
    let m = world.member(&w, "ann", WorkspaceRole::Admin).await;
    let (p, q) = (world.provider(&w, "p").await, world.provider(&w, "q").await);
    let mut s = sandbox(&w, "s");
    s.session = Some(session(Uuid::new_v4()));
    s.deletion_at = Some(now());
    let attach = |provider_id| Write::Attach { sandbox_id: s.id, provider_id };
    world.write(vec![Write::InsertSandbox(s.clone()), attach(q.id), attach(p.id)]).await;
    s.providers = vec!["q".into(), "p".into()];

    let access = watch.workspace("w", ANN).await.unwrap();
    assert_eq!((access.workspace, access.role), (Some(w.clone()), Some(WorkspaceRole::Admin)));
    assert_eq!(watch.sandbox("w", "s", ANN).await.unwrap().found, Some(s.clone()));
    assert_eq!(watch.provider("w", "p", ANN).await.unwrap().found, Some(shown(&p)));
    assert_eq!(watch.members("w", ANN, page(10)).await.unwrap().found.items, std::slice::from_ref(&m));
    let attached = async |after, most| {
        let Listed { items, more } = watch.sandbox_providers("w", "s", ANN, after, most).await.unwrap().found.unwrap();
        (items, more)
    };
    assert_eq!(attached("", 10).await, (vec![shown(&p), shown(&q)], false));
    assert_eq!(attached("", 1).await, (vec![shown(&p)], true));
    assert_eq!(attached("p", 1).await, (vec![shown(&q)], false));
    assert_eq!(watch.sandbox_providers("w", "no", ANN, "", 10).await.unwrap().found, None);
    let (epoch, entries) = watch.sandbox_entries(&[s.id, Uuid::new_v4()]).await.unwrap();
    assert_eq!((epoch, entries), (1, vec![Some(s.clone()), None]));
    assert_eq!(watch.sandbox_entries(&[]).await.unwrap(), (1, vec![]));
    let rights = BTreeMap::from([("ann".to_owned(), WorkspaceRole::Admin)]);
    assert_eq!(watch.rights(w.id).await.unwrap(), (1, Some(rights)));
    assert_eq!(watch.rights(Uuid::new_v4()).await.unwrap(), (1, None));
    let empty = world.workspace("empty").await;
    assert_eq!(watch.rights(empty.id).await.unwrap(), (1, Some(BTreeMap::new())));
    let version = Version { workspace_id: w.id, id: s.id, resource_version: 1 };
    assert_eq!(watch.sandbox_versions(Uuid::nil(), 10).await.unwrap(), [version]);
    assert!(watch.sandbox_versions(s.id, 10).await.unwrap().is_empty());
    assert_eq!(watch.workspace_ids(Uuid::nil(), 10).await.unwrap().len(), 3);

    // For replays, in the transaction that asked the ledger.
    let id = Uuid::new_v4();
    world
        .first(&claimed("w", id), &Locks::default())
        .await
        .unwrap()
        .conclude(crate::world::effect(Vec::new()))
        .await
        .unwrap();
    let mut replay = world.first(&claimed("w", id), &Locks::default()).await.unwrap();
    assert!(matches!(replay.loaded().ledger, Ledger::Claimed(_)));
    assert_eq!(replay.sandbox_by_id(s.id).await.unwrap(), Some(s.clone()));
    assert_eq!(replay.provider_by_id(p.id).await.unwrap(), Some(shown(&p)));
    assert_eq!(replay.workspace_by_id(w.id).await.unwrap(), Some(w));
    assert_eq!(replay.member_by_id(m.id).await.unwrap(), Some(m));
    assert_eq!(replay.member_by_id(id).await.unwrap(), None);
    replay.abandon().await;
    let in_flight = world.first(&command(), &by_id(s.id)).await.unwrap();
    assert_eq!(in_flight.loaded().sandboxes, [s]);
    in_flight.abandon().await;
}

#[tokio::test]
async fn who_is_no_member_sees_nothing_of_a_workspace() {
    let world = World::new().await;
    let watch = world.role(Role::Watch);
    let w = world.workspace("w").await;
    world.member(&w, "ann", WorkspaceRole::User).await;
    let s = world.sandbox(&w, "s").await;
    world.provider(&w, "p").await;
    world.write(vec![Write::InsertPolicyRevision(policy(Some(s.id), 1))]).await;

    for (reader, sees) in [(ANN, true), (EVE, false), (Reader::ADMIN, true)] {
        let access = watch.workspace("w", reader).await.unwrap();
        assert!(access.workspace.is_some());
        assert_eq!(access.role.is_some(), reader == ANN);
        assert_eq!(watch.workspace("no", reader).await.unwrap().workspace, None);
        assert_eq!(watch.members("w", reader, page(9)).await.unwrap().found.items.len(), usize::from(sees));
        assert_eq!(watch.sandbox("w", "s", reader).await.unwrap().found.is_some(), sees);
        assert_eq!(watch.sandboxes("w", reader, page(9)).await.unwrap().found.items.len(), usize::from(sees));
        assert_eq!(watch.provider("w", "p", reader).await.unwrap().found.is_some(), sees);
        assert_eq!(watch.providers("w", reader, page(9)).await.unwrap().found.items.len(), usize::from(sees));
        assert_eq!(watch.sandbox_providers("w", "s", reader, "", 9).await.unwrap().found.is_some(), sees);
        assert_eq!(watch.policy_revision("w", "s", reader, None).await.unwrap().found.is_some(), sees);
        assert_eq!(watch.policy_revisions("w", "s", reader, None, 9).await.unwrap().found.is_some(), sees);
        let asked = [Named { workspace: "w".into(), name: "s".into(), subject: reader.subject.map(str::to_owned) }];
        assert!(watch.snapshot_inputs_by_name(&asked).await.is_err(), "credentials are not its to read");
        let seen = world.role(Role::ConfigSnapshot).snapshot_inputs_by_name(&asked).await.unwrap().remove(0).unwrap();
        assert_eq!(seen.found.is_some(), sees);
    }
    let names = |listed: Listed<row::Workspace>| listed.items.into_iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(names(watch.workspaces(ANN, page(9)).await.unwrap()), ["w"]);
    assert_eq!(names(watch.workspaces(Reader::ADMIN, page(9)).await.unwrap()), ["default", "w"]);
    assert!(watch.workspaces(EVE, page(9)).await.unwrap().items.is_empty());
}

/// All pages of a list, one item a page, by the keys that a token would carry.
async fn all_pages<T>(
    mut read: impl AsyncFnMut(Page) -> Listed<T>,
    key: impl Fn(&T) -> After,
    labels: &[(&str, &str)],
) -> Vec<T> {
    let mut found = Vec::new();
    let mut after = After::default();
    loop {
        let Listed { items, more } = read(Page { labels: pairs(labels), after: after.clone(), most: 1 }).await;
        assert!(items.len() == 1 || !more);
        if let Some(last) = items.last() {
            after = key(last);
            // What a token keeps of the time.
            after.created_at = After::at_ms(after.created_ms());
        }
        found.extend(items);
        if !more {
            return found;
        }
    }
}

#[tokio::test]
async fn pages_follow_the_key_and_skip_nothing() {
    let world = World::new().await;
    let watch: Database = world.role(Role::Watch);
    let (v, w) = (world.workspace("v").await, world.workspace("w").await);
    let mut sandboxes = Vec::new();
    let (early, late) = (now() - Duration::from_secs(60), now());
    for (workspace, name, created_at, label) in
        [(&w, "c", early, "x"), (&w, "b", late, "y"), (&w, "a", late, "x"), (&v, "a", late, "x"), (&v, "z", early, "x")]
    {
        let labels = pairs(&[("app", label), ("all", "")]);
        let row = row::Sandbox { created_at, labels, ..sandbox(workspace, name) };
        let p = row::Provider { created_at, labels: row.labels.clone(), ..provider(workspace, name) };
        world.write(vec![Write::InsertSandbox(row.clone()), Write::InsertProvider(p)]).await;
        sandboxes.push(row);
    }
    let sandbox_key = |row: &row::Sandbox| After {
        created_at: row.created_at,
        name: row.name.clone(),
        workspace: row.workspace_name.clone(),
        id: row.id,
    };
    let in_w = async |page| watch.sandboxes("w", Reader::ADMIN, page).await.unwrap().found;
    let names = |rows: &[row::Sandbox]| {
        rows.iter().map(|row| format!("{}{}", row.workspace_name, row.name)).collect::<Vec<_>>()
    };
    assert_eq!(names(&all_pages(in_w, sandbox_key, &[]).await), ["wc", "wa", "wb"]);
    assert_eq!(names(&all_pages(in_w, sandbox_key, &[("app", "x"), ("all", "")]).await), ["wc", "wa"]);
    let everywhere = async |page| watch.sandboxes_everywhere(page).await.unwrap();
    assert_eq!(names(&all_pages(everywhere, sandbox_key, &[]).await), ["wc", "vz", "va", "wa", "wb"]);
    assert_eq!(names(&all_pages(everywhere, sandbox_key, &[("app", "y")]).await), ["wb"]);
    assert_eq!(names(&everywhere(page(3)).await.items), ["wc", "vz", "va"]);

    let provider_key = |(workspace, row): &(String, row::Provider)| After {
        created_at: row.created_at,
        name: row.name.clone(),
        workspace: workspace.clone(),
        id: row.id,
    };
    let names = |rows: Vec<(String, row::Provider)>| {
        rows.into_iter().map(|(workspace, row)| workspace + &row.name).collect::<Vec<_>>()
    };
    let everywhere = async |page| watch.providers_everywhere(page).await.unwrap();
    assert_eq!(names(all_pages(everywhere, provider_key, &[]).await), ["wc", "vz", "va", "wa", "wb"]);
    let in_v = async |page| {
        let Listed { items, more } = watch.providers("v", Reader::ADMIN, page).await.unwrap().found;
        Listed { items: items.into_iter().map(|row| ("v".to_owned(), row)).collect(), more }
    };
    assert_eq!(names(all_pages(in_v, provider_key, &[("app", "x")]).await), ["vz", "va"]);

    let workspaces = async |page| watch.workspaces(Reader::ADMIN, page).await.unwrap();
    let key = |row: &row::Workspace| After {
        created_at: row.created_at,
        name: row.name.clone(),
        workspace: String::new(),
        id: row.id,
    };
    assert_eq!(all_pages(workspaces, key, &[]).await.len(), 3);
    assert_eq!(all_pages(workspaces, key, &[("team", "a")]).await, [v, w.clone()]);

    for subject in ["d", "e", "f"] {
        world.member(&w, subject, WorkspaceRole::User).await;
    }
    let members = async |page| watch.members("w", Reader::ADMIN, page).await.unwrap().found;
    let key = |row: &row::Member| After {
        created_at: row.created_at,
        name: row.subject.clone(),
        workspace: "w".into(),
        id: row.id,
    };
    assert_eq!(all_pages(members, key, &[]).await.len(), 3);
}

#[tokio::test]
async fn histories_are_newest_first_and_lists_have_no_bodies() {
    let world = World::new().await;
    let watch = world.role(Role::Watch);
    let w = world.workspace("w").await;
    let s = row::Sandbox { current_policy_version: 2, ..sandbox(&w, "s") };
    let none = workspace("none");
    let writes = [Write::InsertSandbox(s.clone()), Write::InsertWorkspace(none)].into_iter();
    let revisions = (1..=3).flat_map(|version| {
        [Write::InsertPolicyRevision(policy(Some(s.id), version)), Write::InsertPolicyRevision(policy(None, version))]
    });
    world.write(writes.chain(revisions).collect()).await;
    world.sandbox(&w, "bare").await;

    let versions = |rows: &[row::PolicyRevision]| rows.iter().map(|row| row.version).collect::<Vec<_>>();
    let listed = watch.policy_revisions("w", "s", Reader::ADMIN, None, 2).await.unwrap().found.unwrap();
    assert_eq!(
        (listed.active_version, versions(&listed.revisions.items), listed.revisions.more),
        (2, vec![3, 2], true)
    );
    assert_eq!(listed.revisions.items[0].policy, Default::default());
    assert_eq!(listed.revisions.items[0].provenance, pairs(&[("by", "test")]));
    let rest = watch.policy_revisions("w", "s", Reader::ADMIN, Some(2), 2).await.unwrap().found.unwrap();
    assert_eq!((versions(&rest.revisions.items), rest.revisions.more), (vec![1], false));
    for (asked, got) in [(None, vec![3]), (Some(1), vec![1]), (Some(9), vec![])] {
        let found = watch.policy_revision("w", "s", Reader::ADMIN, asked).await.unwrap().found.unwrap();
        assert_eq!((found.active_version, versions(&found.revisions.items)), (2, got));
        let global = watch.global_policy_revision(asked).await.unwrap();
        assert_eq!(global.map(|row| row.version), found.revisions.items.first().map(|row| row.version));
    }
    let body = watch.policy_revision("w", "s", Reader::ADMIN, None).await.unwrap().found.unwrap();
    assert_eq!(body.revisions.items[0].policy.version, 1);
    assert_eq!(versions(&watch.global_policy_revisions(Some(3), 9).await.unwrap().items), [2, 1]);
    let bare = watch.policy_revision("w", "bare", Reader::ADMIN, None).await.unwrap().found.unwrap();
    assert!(bare.revisions.items.is_empty());
    assert_eq!(watch.policy_revisions("w", "no", Reader::ADMIN, None, 9).await.unwrap().found, None);

    assert_eq!(watch.global_settings().await.unwrap(), row::Settings::default());
    let put = Write::PutSetting { scope: None, key: "k".into(), value: setting("v") };
    world.write(vec![put, Write::SetSettingsRevision { scope: None, revision: 1 }]).await;
    let settings = watch.global_settings().await.unwrap();
    assert_eq!((settings.revision, &settings.values["k"]), (1, &setting("v")));
}
