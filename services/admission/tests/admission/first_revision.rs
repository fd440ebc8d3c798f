//! The first policy of a sandbox, and what its supervisor says of it, at the same moment. Both want the sandbox's row,
//! which a side session holds until both wait for it in the chosen order.

use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{self, SandboxPhase};
use roadstead_proto::subject::Report;
use roadstead_testkit::eventually;
use tokio::sync::Mutex;

use crate::sessions::{applied, register};
use crate::world::{LONG, World};

const WAITING: &str = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
     and usename = 'roadstead_admission' and datname = current_database()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_policy_and_an_apply_result_that_meet_are_both_kept_in_either_order() {
    for policy_first in [true, false] {
        let mut world = World::new().await;
        world.workspace("w").await;
        let id = world.sandbox("w", "box").await.metadata.unwrap().id;
        let supervisor = world.supervisor(&id, 1);
        world.bridge.report(&supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
        let (mut holder, watcher) = (world.session().await, Mutex::new(world.session().await));
        holder.hold("select 1 from roadstead.sandbox for update").await;
        let waits = async |count: &str| {
            let so_many = async || (watcher.lock().await.value(WAITING).await == count).then_some(());
            eventually(LONG, "it waits for the row", so_many).await;
        };
        let sync = v1::UpdateConfigRequest {
            sandbox: "box".into(),
            policy: Some(SandboxPolicy { version: 1, ..Default::default() }),
            ..Default::default()
        };
        let result = applied(1, 1, 0);
        let turn = |first: bool| if first { "0" } else { "1" };
        let policy = async {
            waits(turn(policy_first)).await;
            world.bridge.report(&supervisor, Report::UpdateConfig, &sync).await.unwrap();
        };
        let told = async {
            waits(turn(!policy_first)).await;
            world.bridge.report(&supervisor, Report::SessionResult, &result).await.unwrap();
        };
        let release = async {
            waits("2").await;
            holder.release().await;
        };
        tokio::join!(policy, told, release);

        let row = world.sql.run("select phase, session_result_number from roadstead.sandbox").await;
        assert_eq!(row, [[(SandboxPhase::Ready as i32).to_string(), "1".to_owned()]], "the apply result");
        let revisions = world.sql.run("select version, status from roadstead.policy_revision").await;
        assert_eq!(revisions, [["1", "1"]], "the first revision, which nobody has loaded yet");

        world.bridge.report(&supervisor, Report::SessionResult, &applied(1, 2, 1)).await.unwrap();
        let settled = world.sql.run("select version, status from roadstead.policy_revision").await;
        assert_eq!(settled, [["1", "2"]], "loaded");
        world.stop().await;
    }
}
