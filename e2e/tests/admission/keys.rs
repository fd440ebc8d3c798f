//! Records of request ids under keys: a replica that has other keys says that it cannot tell, and a rotation is felt by
//! nobody.

use std::fs;

use roadstead_e2e::api::{reason, request_id, scope};
use roadstead_proto::api::{
    datamodel::{ObjectMeta, Provider},
    v1::UpdateProviderRequest,
};
use roadstead_testkit::stack::{Plan, Role};
use serde_json::{Value, json};

use crate::world::{Answer, World, answer, together};

const PROVIDER: &str = "provider";

/// A change of the provider's credential, which is nothing to keep a plain hash of.
fn update(world: &World, value: &str, request_id: &str) -> UpdateProviderRequest {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: PROVIDER.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: [("TOKEN".to_owned(), value.to_owned())].into(),
        ..Default::default()
    };
    UpdateProviderRequest {
        workspace_scope: scope(&world.workspace),
        provider: Some(provider),
        request_id: request_id.to_owned(),
        ..Default::default()
    }
}

/// The provider's version after the change.
async fn send(world: &World, edge: usize, request: UpdateProviderRequest) -> Answer<u64> {
    let answer = answer(world.api(edge).update_provider(request).await);
    answer.map(|(response, replayed)| (response.provider.unwrap().metadata.unwrap().resource_version, replayed))
}

async fn version(world: &World) -> u64 {
    let sql = format!("select resource_version from roadstead.provider where name = '{PROVIDER}'");
    world.sql(&sql).await[0][0].parse().unwrap()
}

/// Restarts an admission with a key file that is changed so; the file is as before afterwards.
async fn restart_with(world: &mut World, admission: usize, change: impl FnOnce(&mut Value)) {
    let file = world.stack.keys_of("admission");
    let text = fs::read(&file).unwrap();
    let mut keys: Value = serde_json::from_slice(&text).unwrap();
    change(&mut keys);
    fs::write(&file, keys.to_string()).unwrap();
    world.stack.node_mut(Role::Admission, admission).crash().await;
    fs::write(&file, text).unwrap();
}

/// The keys that an admission says it has.
async fn shown(world: &World, admission: usize) -> Vec<String> {
    let metrics = world.stack.node(Role::Admission, admission).metrics().await;
    let lines = metrics.lines().filter(|line| line.starts_with("roadstead_fingerprint_keys{"));
    let mut keys: Vec<_> = lines.map(str::to_owned).collect();
    keys.sort();
    keys
}

/// Neither done, nor replayed, nor called something that it may not be.
fn cannot_be_verified(told: &Answer<u64>) {
    let status = told.as_ref().expect_err("it was carried out or replayed");
    assert_eq!(reason(status), "REQUEST_REPLAY_UNAVAILABLE", "{status:?}");
    assert!(status.message().contains("cannot be verified"), "{}", status.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_other_keys_does_nothing_for_an_id_it_cannot_verify_and_shows_it() {
    let mut world = World::start(Plan::pairs(), &[]).await;
    world.create_provider(PROVIDER).await;
    let used = request_id();
    let (current, _) = send(&world, 1, update(&world, "secret-1", &used)).await.unwrap();
    assert_eq!(shown(&world, 1).await, shown(&world, 2).await);

    // A key of another name, and another key of the same name.
    for name in ["other", ""] {
        restart_with(&mut world, 2, |keys| {
            let active = &mut keys["fingerprint"]["active"];
            active["key"] = json!(other_key(active["key"].as_str().unwrap()));
            if !name.is_empty() {
                active["id"] = json!(name);
            }
        })
        .await;
        assert_ne!(shown(&world, 1).await, shown(&world, 2).await, "nothing shows that their keys differ");
        world.stack.node_mut(Role::Admission, 1).kill().await;
        let before = version(&world).await;
        for edge in [1, 2] {
            cannot_be_verified(&send(&world, edge, update(&world, "secret-1", &used)).await);
            cannot_be_verified(&send(&world, edge, update(&world, "secret-2", &used)).await);
        }
        assert_eq!(version(&world).await, before);
        // It works on, and under its own key it knows what it kept.
        send(&world, 1, update(&world, "secret-1", "")).await.unwrap();
        let own = request_id();
        let (done, _) = send(&world, 1, update(&world, "secret-1", &own)).await.unwrap();
        assert_eq!(send(&world, 2, update(&world, "secret-1", &own)).await.unwrap(), (done, true));
        world.stack.node_mut(Role::Admission, 1).resume();
        world.stack.node_mut(Role::Admission, 1).ready().await;
    }

    // Without any key it refuses ids of protected methods before it does anything, used or new; all else goes on.
    restart_with(&mut world, 2, |keys| drop(keys.as_object_mut().unwrap().remove("fingerprint"))).await;
    assert!(shown(&world, 2).await.is_empty());
    world.stack.node_mut(Role::Admission, 1).kill().await;
    let (before, claims) = (version(&world).await, world.count("claim").await);
    for id in [used.clone(), request_id()] {
        let refused = send(&world, 1, update(&world, "secret-3", &id)).await.unwrap_err();
        assert_eq!(reason(&refused), "REQUEST_REPLAY_UNAVAILABLE", "{refused:?}");
    }
    assert_eq!((version(&world).await, world.count("claim").await), (before, claims));
    assert_eq!(send(&world, 2, update(&world, "secret-1", "")).await.unwrap(), (before + 1, false));
    world.create_workspace("plain").await;

    // The replica with the right key still knows the first one; it was changed since.
    world.stack.node_mut(Role::Admission, 1).resume();
    world.stack.node_mut(Role::Admission, 1).ready().await;
    world.stack.node_mut(Role::Admission, 2).kill().await;
    let gone = send(&world, 1, update(&world, "secret-1", &used)).await.unwrap_err();
    assert_eq!(reason(&gone), "REQUEST_REPLAY_UNAVAILABLE");
    assert!(!gone.message().contains("verified") && current < before, "{}", gone.message());
    let mismatch = send(&world, 1, update(&world, "secret-2", &used)).await.unwrap_err();
    assert_eq!(reason(&mismatch), "REQUEST_ID_PAYLOAD_MISMATCH");
}

/// A key like this one, but for its first digit.
fn other_key(key: &str) -> String {
    let first = if key.starts_with('A') || key.starts_with('0') { "1" } else { "0" };
    format!("{first}{}", &key[1..])
}

/// Every duplicate is replayed and every misuse of its id found out, whichever admission takes it.
async fn are_known(world: &World, used: &str, version: u64) {
    let calls = (0..16).map(|number: usize| {
        let request = update(world, if number < 8 { "secret-1" } else { "secret-2" }, used);
        let mut api = world.api(1 + number % 2);
        async move { answer(api.update_provider(request).await) }
    });
    for (number, told) in together(calls).await.into_iter().enumerate() {
        match told {
            Ok((response, replayed)) => {
                let shown = response.provider.unwrap().metadata.unwrap().resource_version;
                assert_eq!((number < 8, shown, replayed), (true, version, true));
            }
            Err(status) => {
                assert_eq!(
                    (number < 8, reason(&status).as_str()),
                    (false, "REQUEST_ID_PAYLOAD_MISMATCH"),
                    "{status:?}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_of_keys_strands_no_request_id_at_any_of_its_steps() {
    let mut world = World::start(Plan::pairs(), &[]).await;
    world.create_provider(PROVIDER).await;
    let mut used = request_id();
    let (mut current, _) = send(&world, 1, update(&world, "secret-1", &used)).await.unwrap();
    for step in ["stage", "rotate"] {
        world.stack.change_keys(&[step]).await;
        for admission in [1, 2] {
            world.stack.node_mut(Role::Admission, admission).crash().await;
            are_known(&world, &used, current).await;
            // The next one is kept by whichever takes it, under the key that it has now.
            used = request_id();
            (current, _) = send(&world, admission, update(&world, "secret-1", &used)).await.unwrap();
            are_known(&world, &used, current).await;
        }
        assert_eq!(shown(&world, 1).await, shown(&world, 2).await);
        assert_eq!(shown(&world, 1).await.len(), 2);
    }
    assert_eq!(version(&world).await, current, "a duplicate was carried out");
}
