use roadstead_proto::role::Role;
use roadstead_store::inputs::Place;
use roadstead_store::mutation::Write;
use roadstead_store::read::Reader;
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
    let inputs = builder.snapshot_inputs(s.id).await.unwrap().unwrap();
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
    let inputs = builder.snapshot_inputs(s.id).await.unwrap().unwrap();
    assert_eq!(inputs.sandbox, s);
    assert_eq!(inputs.providers, [q.clone(), p.clone()]);
    assert_eq!(inputs.policy.as_ref().map(|row| (row.scope, row.version)), Some((Some(s.id), 2)));
    assert_eq!(inputs.global_policy.as_ref().map(|row| (row.scope, row.version)), Some((None, 4)));
    let values = [("k".to_owned(), setting("own")), ("l".to_owned(), setting("own too"))].into();
    assert_eq!(inputs.sandbox_settings, Settings { revision: 1, values });
    assert_eq!(inputs.global_settings, Settings { revision: 1, values: [("g".to_owned(), setting("all"))].into() });

    let by_name = builder.snapshot_inputs_by_name("w", "s", Reader::ADMIN).await.unwrap();
    assert_eq!(by_name.access.workspace, Some(w.clone()));
    let by_name = by_name.found.unwrap();
    assert_eq!(roadstead_store::inputs::Inputs { now: inputs.now, ..by_name }, inputs);
    assert_eq!(builder.snapshot_inputs_by_name("w", "no", Reader::ADMIN).await.unwrap().found, None);
    assert_eq!(builder.snapshot_inputs(Uuid::new_v4()).await.unwrap(), None);

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
async fn the_sequence_rises_and_is_drawn_before_the_inputs_are_read() {
    let world = World::new().await;
    let builder = world.role(Role::ConfigSnapshot);
    let w = world.workspace("w").await;
    let s = world.sandbox(&w, "s").await;
    let (first, inputs) = builder.next_snapshot_inputs(s.id).await.unwrap();
    assert!(inputs.is_some());
    world.write(vec![Write::DeleteSandbox(s.id)]).await;
    let (second, inputs) = builder.next_snapshot_inputs(s.id).await.unwrap();
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
                    let (sequence, inputs) = builder.next_snapshot_inputs(row.id).await.unwrap();
                    seen.push((sequence, inputs.unwrap().sandbox.resource_version));
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
