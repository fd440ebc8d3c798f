//! Deadlines in rows: found when they have come, seen to once.

use std::time::Duration;

use roadstead_proto::api::v1::SandboxPhase;
use roadstead_store::deadline::Nearest;
use roadstead_store::mutation::Write;
use roadstead_store::row;

use crate::world::{World, next, now, provider, sandbox};

#[tokio::test]
async fn sandboxes_are_found_when_their_deadline_has_come() {
    let world = World::new().await;
    let w = world.workspace("w").await;
    let past = now() - Duration::from_secs(1);
    let of = |name: &str, phase, deadline| row::Sandbox { phase, deadline, ..sandbox(&w, name) };
    let rows = [
        of("provisioning", SandboxPhase::Provisioning, Some(past)),
        of("starting", SandboxPhase::Starting, Some(past)),
        of("restarting", SandboxPhase::Error, Some(past)),
        of("in-time", SandboxPhase::Provisioning, Some(now() + Duration::from_secs(60))),
        of("no-deadline", SandboxPhase::Starting, None),
    ];
    world.write(rows.iter().cloned().map(Write::InsertSandbox).collect()).await;
    let all_but = world.store.past_deadline(10, &[rows[0].id, rows[2].id]).await.unwrap().unwrap();
    assert_eq!(all_but.sandboxes.iter().map(|row| row.id).collect::<Vec<_>>(), [rows[1].id]);
    assert!(all_but.conclude(Vec::new()).await.unwrap().is_empty());
    let batch = world.store.past_deadline(10, &[]).await.unwrap().unwrap();
    let mut names: Vec<_> = batch.sandboxes.iter().map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["provisioning", "restarting", "starting"]);
    // Whoever else looks meanwhile is not held up, and sees to none of them a second time.
    assert!(world.store.past_deadline(10, &[]).await.unwrap().is_none());
    let done = |row: &row::Sandbox| Write::UpdateSandbox(next(row, |row| row.deadline = None));
    let writes = batch.sandboxes.iter().map(done).collect();
    assert_eq!(batch.conclude(writes).await.unwrap().len(), 3);
    assert!(world.store.past_deadline(10, &[]).await.unwrap().is_none());
}

#[tokio::test]
async fn the_nearest_deadline_is_that_of_any_row() {
    let world = World::new().await;
    let w = world.workspace("w").await;
    assert_eq!(world.store.nearest_deadline().await.unwrap().deadline, None);
    let (soon, sooner) = (now() + Duration::from_secs(60), now() + Duration::from_secs(30));
    world.write(vec![Write::InsertSandbox(row::Sandbox { deadline: Some(soon), ..sandbox(&w, "s") })]).await;
    assert_eq!(world.store.nearest_deadline().await.unwrap().deadline, Some(soon));
    let mut expiring = provider(&w, "p");
    expiring.credentials[0].expires_at = Some(sooner);
    world.write(vec![Write::InsertProvider(expiring)]).await;
    let Nearest { now, deadline } = world.store.nearest_deadline().await.unwrap();
    assert!(deadline == Some(sooner) && now < sooner);
}

#[tokio::test]
async fn each_expiration_of_a_credential_leaves_one_mark_whoever_wrote_it() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let mut expiring = provider(&w, "p");
    expiring.credentials[0].expires_at = Some(now() + Duration::from_secs(60));
    let id = expiring.id;
    world.write(vec![Write::InsertProvider(expiring)]).await;
    assert!(world.store.expire_credentials(10).await.unwrap().is_empty(), "nothing has expired");

    // By hand, as any code path may: one that comes in a moment, and a later one.
    let by_hand = format!(
        "update roadstead.provider set credential_keys = '{{a,b,c}}', credential_values = '{{x,y,z}}', \
         credential_expirations = array[clock_timestamp() + interval '1 minute', null, \
         clock_timestamp() + interval '1 hour'] where id = '{id}'"
    );
    world.sql.run(&by_hand).await;
    let next = "select next_expiration = credential_expirations[1] from roadstead.provider";
    assert_eq!(world.sql.value(next).await, "t", "the nearer one is next");
    // The moment passes, which is no update of the row.
    let passes = "alter table roadstead.provider disable trigger note_expiration; \
        update roadstead.provider set next_expiration = next_expiration - interval '2 minutes', \
        credential_expirations[1] = next_expiration - interval '2 minutes'; \
        alter table roadstead.provider enable trigger note_expiration";
    world.sql.run(passes).await;
    let (one, other) = tokio::join!(world.store.expire_credentials(10), world.store.expire_credentials(10));
    let marks = [one.unwrap(), other.unwrap()].concat();
    assert_eq!(marks.iter().map(|mark| (mark.mark.object_id, mark.configuration)).collect::<Vec<_>>(), [(id, true)]);
    assert!(world.store.expire_credentials(10).await.unwrap().is_empty());
    let next = "select next_expiration = credential_expirations[3] from roadstead.provider";
    assert_eq!(world.sql.value(next).await, "t", "the later one is next");
}
