use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_proto::role::Role;
use roadstead_store::Database;
use roadstead_store::inputs::{Inputs, Named, Place};
use roadstead_store::mutation::Write;
use roadstead_store::row::Settings;
use uuid::Uuid;

use crate::world::{World, policy, provider, sandbox, setting};

#[tokio::test]
async fn one_statement_has_all_inputs_of_a_snapshot() {
    let world = World::new().await;
    let builder = world.role(Role::ConfigSnapshot);
    let w = world.workspace("w").await;
    let mut s = sandbox(&w, "s");
    let (mut p, q) = (provider(&w, "p"), provider(&w, "q"));
    p.credentials.clear();
    let other = sandbox(&w, "other");
    let mut writes = vec![
        Write::InsertSandbox(s.clone()),
        Write::InsertSandbox(other.clone()),
        Write::InsertProvider(p.clone()),
        Write::InsertProvider(q.clone()),
    ];
    let bare = (None, None, Settings::default(), Settings::default());
    world.write(writes).await;
    let read = async |id| builder.next_snapshot_inputs(&[id]).await.unwrap().1.remove(0).unwrap();
    let inputs = read(s.id).await.unwrap();
    assert_eq!((inputs.policy, inputs.global_policy, inputs.sandbox_settings, inputs.global_settings), bare);
    assert!(inputs.providers.is_empty());
    assert_eq!((inputs.epoch, inputs.sandbox), (1, s.clone()));

    writes = vec![
        Write::Attach { sandbox_id: s.id, provider_id: q.id },
        Write::Attach { sandbox_id: s.id, provider_id: p.id },
        Write::Attach { sandbox_id: other.id, provider_id: p.id },
        Write::InsertPolicyRevision(policy(Some(s.id), 1)),
        Write::InsertPolicyRevision(policy(Some(s.id), 2)),
        Write::InsertPolicyRevision(policy(Some(other.id), 7)),
        Write::InsertPolicyRevision(policy(None, 4)),
        Write::PutSetting { scope: Some(s.id), key: "k".into(), value: setting("own") },
        Write::PutSetting { scope: Some(s.id), key: "l".into(), value: setting("own too") },
        Write::SetSettingsRevision { scope: Some(s.id), revision: 1 },
        Write::PutSetting { scope: None, key: "g".into(), value: setting("all") },
        Write::SetSettingsRevision { scope: None, revision: 1 },
    ];
    world.write(writes).await;
    s.providers = vec!["q".into(), "p".into()];
    let inputs = read(s.id).await.unwrap();
    assert_eq!(inputs.sandbox, s);
    assert_eq!(inputs.providers, [q.clone(), p.clone()]);
    assert_eq!(inputs.policy.as_ref().map(|row| (row.scope, row.version)), Some((Some(s.id), 2)));
    assert_eq!(inputs.global_policy.as_ref().map(|row| (row.scope, row.version)), Some((None, 4)));
    let values = [("k".to_owned(), setting("own")), ("l".to_owned(), setting("own too"))].into();
    assert_eq!(inputs.sandbox_settings, Settings { revision: 1, values });
    assert_eq!(inputs.global_settings, Settings { revision: 1, values: [("g".to_owned(), setting("all"))].into() });

    let named = |name: &str| Named { workspace: "w".into(), name: name.into(), subject: None };
    let mut seen = builder.snapshot_inputs_by_name(&[named("s"), named("no")]).await.unwrap().into_iter();
    let by_name = seen.next().unwrap().unwrap();
    assert_eq!(by_name.access.workspace, Some(w.clone()));
    let by_name = by_name.found.unwrap();
    assert_eq!(Inputs { now: inputs.now, ..by_name }, inputs);
    assert_eq!(seen.next().unwrap().unwrap().found, None);
    assert_eq!(read(Uuid::new_v4()).await, None);

    let place = |sandbox_id| Place { workspace_id: w.id, sandbox_id };
    let mut both = [s.id, other.id];
    both.sort_unstable();
    assert_eq!(builder.sandboxes_of_provider(p.id, Uuid::nil(), 9).await.unwrap(), both.map(place));
    assert_eq!(builder.sandboxes_of_provider(p.id, both[0], 9).await.unwrap(), [place(both[1])]);
    assert_eq!(builder.sandboxes_of_provider(q.id, Uuid::nil(), 9).await.unwrap(), [place(s.id)]);
    assert_eq!(builder.all_sandboxes(Uuid::nil(), 1).await.unwrap(), [place(both[0])]);
    assert_eq!(builder.all_sandboxes(both[0], 9).await.unwrap(), [place(both[1])]);
}

#[tokio::test]
async fn many_are_read_in_one_statement_each_with_its_own_and_what_all_share() {
    let world = World::new().await;
    let builder = world.role(Role::ConfigSnapshot);
    let (w, v) = (world.workspace("w").await, world.workspace("v").await);
    world.member(&w, "ann", WorkspaceRole::User).await;
    let (mut one, two, elsewhere) = (sandbox(&w, "one"), sandbox(&w, "two"), sandbox(&v, "one"));
    let p = provider(&w, "p");
    world
        .write(vec![
            Write::InsertSandbox(one.clone()),
            Write::InsertSandbox(two.clone()),
            Write::InsertSandbox(elsewhere.clone()),
            Write::InsertProvider(p.clone()),
            Write::Attach { sandbox_id: one.id, provider_id: p.id },
            Write::InsertPolicyRevision(policy(Some(two.id), 3)),
            Write::InsertPolicyRevision(policy(None, 4)),
            Write::PutSetting { scope: Some(two.id), key: "k".into(), value: setting("own") },
            Write::PutSetting { scope: None, key: "g".into(), value: setting("all") },
            Write::SetSettingsRevision { scope: None, revision: 1 },
        ])
        .await;
    one.providers = vec!["p".into()];

    let asked = [Uuid::new_v4(), two.id, one.id, two.id];
    let (_, found) = builder.next_snapshot_inputs(&asked).await.unwrap();
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    let sandboxes = |found: &[Option<Inputs>]| -> Vec<_> {
        found.iter().map(|inputs| inputs.as_ref().map(|inputs| inputs.sandbox.clone())).collect()
    };
    assert_eq!(sandboxes(&found), [None, Some(two.clone()), Some(one.clone()), Some(two.clone())]);
    for inputs in found.iter().flatten() {
        assert_eq!(inputs.global_policy.as_ref().map(|row| row.version), Some(4));
        let values = [("g".to_owned(), setting("all"))].into();
        assert_eq!(inputs.global_settings, Settings { revision: 1, values });
        let is_one = inputs.sandbox.id == one.id;
        assert_eq!(inputs.providers, if is_one { vec![p.clone()] } else { Vec::new() });
        assert_eq!(inputs.policy.as_ref().map(|row| row.version), (!is_one).then_some(3));
        assert_eq!(inputs.sandbox_settings.values.len(), usize::from(!is_one));
    }
    assert!(builder.next_snapshot_inputs(&[]).await.unwrap().1.is_empty());

    let named = |workspace: &str, name: &str, subject: Option<&str>| Named {
        workspace: workspace.into(),
        name: name.into(),
        subject: subject.map(str::to_owned),
    };
    let asked = [
        named("v", "one", Some("ann")),
        named("w", "one", Some("ann")),
        named("w", "one", Some("eve")),
        named("no", "one", None),
        named("v", "one", None),
    ];
    let seen = builder.snapshot_inputs_by_name(&asked).await.unwrap();
    let seen: Vec<_> = seen.into_iter().map(Result::unwrap).collect();
    let found: Vec<_> = seen.iter().map(|seen| seen.found.clone()).collect();
    assert_eq!(sandboxes(&found), [None, Some(one), None, None, Some(elsewhere)]);
    let roles: Vec<_> = seen.iter().map(|seen| seen.access.role).collect();
    assert_eq!(roles, [None, Some(WorkspaceRole::User), None, None, None]);
    let workspaces: Vec<_> = seen.into_iter().map(|seen| seen.access.workspace).collect();
    assert_eq!(workspaces, [Some(v.clone()), Some(w.clone()), Some(w), None, Some(v)]);
}

#[tokio::test]
async fn the_sequence_rises_and_is_drawn_before_the_inputs_are_read() {
    let world = World::new().await;
    let builder = world.role(Role::ConfigSnapshot);
    let w = world.workspace("w").await;
    let s = world.sandbox(&w, "s").await;
    let next = async |builder: &Database, id| {
        let (sequence, mut inputs) = builder.next_snapshot_inputs(&[id]).await.unwrap();
        (sequence, inputs.remove(0).unwrap())
    };
    let (first, inputs) = next(&builder, s.id).await;
    assert!(inputs.is_some());
    world.write(vec![Write::DeleteSandbox(s.id)]).await;
    let (second, inputs) = next(&builder, s.id).await;
    assert!(inputs.is_none());
    assert!(first < second);

    // Whoever has the higher number has the newer inputs, however the draws interleave.
    let row = world.sandbox(&w, "t").await;
    let draws: Vec<_> = (0..8)
        .map(|_| {
            let builder = builder.clone();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..20 {
                    let (sequence, mut inputs) = builder.next_snapshot_inputs(&[row.id]).await.unwrap();
                    let inputs = inputs.remove(0).unwrap().unwrap();
                    seen.push((sequence, inputs.sandbox.resource_version));
                }
                seen
            })
        })
        .collect();
    let mut current = row.clone();
    for _ in 0..40 {
        current = crate::world::next(&current, |row| row.generation += 1);
        world.write(vec![Write::UpdateSandbox(current.clone())]).await;
    }
    let mut seen = Vec::new();
    for draw in draws {
        // Within one drawer a later draw sees no older state.
        let own = draw.await.unwrap();
        assert!(own.is_sorted());
        seen.extend(own);
    }
    seen.sort_unstable();
    assert_eq!(seen.iter().map(|(sequence, _)| sequence).collect::<std::collections::BTreeSet<_>>().len(), seen.len());
}
