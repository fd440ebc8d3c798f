//! A success that is shown again is no second change: nobody who follows the system can tell that it was asked for.

use std::time::Duration;

use roadstead_e2e::{Fleet, Watched, api::request_id, api::scope, convergence, fleet::Member};
use roadstead_proto::api::v1::{AttachSandboxProviderRequest, DetachSandboxProviderRequest};
use roadstead_supervisor::Behaviour;
use roadstead_testkit::{
    eventually, soak,
    stack::{Plan, Role},
};

use crate::world::{SOON, World, answer, create_provider, together};

const DUPLICATES: u32 = 100;
/// Every fifth duplicate is given up, at some moment of its first milliseconds.
const GIVEN_UP: u32 = 5;

/// All that changes when a sandbox is changed.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    resource_version: String,
    /// Transactions that changed it.
    marks: u64,
    /// Marks that were published, of all objects.
    published: f64,
    /// Entries that were written, for watchers and for supervisors.
    entries: [f64; 2],
    /// What each watch has shown.
    shown: Vec<usize>,
    /// Updates that its supervisor got.
    frames: usize,
}

impl Seen {
    async fn by(world: &World, id: &str, member: &Member) -> Self {
        let version = world.sql(&format!("select resource_version from roadstead.sandbox where id = '{id}'")).await;
        Self {
            resource_version: version[0][0].clone(),
            marks: world.marks(id).await,
            published: world.metric(Role::Admission, "marks_published_total", "").await,
            entries: [
                world.metric(Role::Watch, "projection_written_total", "").await,
                world.metric(Role::ConfigSnapshot, "snapshot_builds_total", ",outcome=\"Written\"").await,
            ],
            shown: member.watches.iter().map(|watch: &Watched| watch.seen().shown().count()).collect(),
            frames: member.recorder.frames().len(),
        }
    }

    /// The same, with so many changes more.
    fn and(&self, changes: usize) -> Self {
        let more = changes as f64;
        Self {
            resource_version: (self.resource_version.parse::<u64>().unwrap() + changes as u64).to_string(),
            marks: self.marks + changes as u64,
            published: self.published + more,
            entries: self.entries.map(|count| count + more),
            shown: self.shown.iter().map(|count| count + changes).collect(),
            frames: self.frames + changes,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_that_is_shown_again_and_again_is_one_change_to_whoever_follows() {
    let world = World::start(Plan::pairs(), &[]).await;
    let fleet = Fleet::start(&world.stack, 1).await;
    let member = &fleet.members()[0];
    create_provider(world.api(1), fleet.workspace(), "second").await;
    convergence::assert_converges(&world.stack, &fleet).await;
    // Its answers would be changes of their own.
    member.supervisor.behave(Behaviour::Silent);
    let id = world.sql(&format!("select id from roadstead.sandbox where name = '{}'", member.name)).await[0][0].clone();
    let settled = async |wanted: &Seen| {
        eventually(SOON, "everybody has seen it", async || {
            let seen = Seen::by(&world, &id, member).await;
            if seen == *wanted { Ok(()) } else { Err(format!("{seen:?}, not {wanted:?}")) }
        })
        .await;
    };

    let attach = AttachSandboxProviderRequest {
        workspace_scope: scope(fleet.workspace()),
        sandbox: member.name.clone(),
        provider: "second".to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    let before = Seen::by(&world, &id, member).await;
    assert!(!answer(world.api(1).attach_sandbox_provider(attach.clone()).await).unwrap().1);
    settled(&before.and(1)).await;

    let clients = world.clients(16).await;
    let claims = world.count("claim").await;
    let calls = (0..soak::count(DUPLICATES)).map(|number| {
        let (mut api, attach) = (clients[number as usize % clients.len()].clone(), attach.clone());
        let patience = match number % GIVEN_UP {
            0 => Duration::from_micros(u64::from(number) * 97 % 20_000),
            _ => SOON,
        };
        async move {
            let told = tokio::time::timeout(patience, api.attach_sandbox_provider(attach)).await;
            told.ok().map(answer)
        }
    });
    let answers = together(calls).await;
    for told in answers.iter().flatten() {
        assert!(told.as_ref().unwrap().1, "a duplicate is not said to be one");
    }
    assert!(answers.iter().flatten().count() >= answers.len() / 2);
    assert_eq!(world.count("claim").await, claims);

    // What comes after them is the next change, and the only one.
    let detach = DetachSandboxProviderRequest {
        workspace_scope: attach.workspace_scope,
        sandbox: attach.sandbox,
        provider: attach.provider,
        request_id: request_id(),
        ..Default::default()
    };
    world.api(2).detach_sandbox_provider(detach).await.unwrap();
    settled(&before.and(2)).await;
    assert_eq!(Seen::by(&world, &id, member).await, before.and(2));
    fleet.assert_ordered();
}
