//! S3: a config-snapshot that has just started and is not warm hands out nothing, least of all something empty.

use std::time::Duration;

use roadstead_e2e::api::scope;
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_supervisor::Frame;
use roadstead_testkit::soak;
use roadstead_testkit::stack::{Plan, Role};
use tonic::Code;

use crate::world::{SOON, Supervised, World};

/// How long it stays cold.
const COLD: Duration = Duration::from_secs(3);
/// How long a caller waits for a configuration.
const PATIENCE: Duration = Duration::from_millis(500);

/// A system with a supervisor that holds a policy and a credential, and a sandbox with the same that has no supervisor yet.
struct Warm {
    world: World,
    held: Supervised,
    policy_hash: String,
}

impl Warm {
    async fn start() -> Self {
        let world = World::start(Plan::pairs()).await;
        world.provider("key", "KEY_TOKEN").await;
        let held = world.ready_sandbox("held", &["key"]).await;
        let bound = || to_host("bound.example", Some("key"));
        let policy_hash = world.set_policy("held", bound()).await.0.policy_hash;
        held.policy(SOON, &policy_hash).await;
        held.frame(SOON, "the credential", has_credential).await;
        world.sandbox("late", &["key"]).await;
        world.set_policy("late", bound()).await;
        Self { world, held, policy_hash }
    }

    async fn kill(&mut self, role: Role) {
        for number in 1..=2 {
            self.world.stack.node_mut(role, number).kill().await;
        }
    }

    fn resume(&mut self, role: Role) {
        for number in 1..=2 {
            self.world.stack.node_mut(role, number).resume();
        }
    }

    /// For as long as it is cold, no update is sent to anybody, and whoever polls is told everything or nothing.
    async fn assert_nothing_is_handed_out(&self, late: &Supervised) {
        let before = self.held.recorder.frames().len();
        let cold = async {
            loop {
                for number in 1..=2 {
                    let ready = self.world.stack.node(Role::ConfigSnapshot, number).is_ready().await;
                    assert!(!ready, "config-snapshot {number} says that it is ready");
                }
                let name = "late".to_owned();
                let mut request = tonic::Request::new(GetSandboxConfigRequest {
                    workspace_scope: scope(&self.world.workspace),
                    name,
                });
                request.set_timeout(PATIENCE);
                match self.world.api().get_sandbox_config(request).await {
                    // What is polled needs no bucket: it is read from the database, so it is whole.
                    Ok(polled) => assert_eq!(polled.into_inner().policy_hash, self.policy_hash),
                    // The client's own end of patience has two names.
                    Err(refused) => {
                        let expected = [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled];
                        assert!(expected.contains(&refused.code()), "{refused:?}");
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        assert!(tokio::time::timeout(soak::period(COLD).min(Duration::from_secs(20)), cold).await.is_err());
        assert_eq!(late.recorder.frames(), [], "a first update that nobody could build");
        assert_eq!(self.held.recorder.frames().len(), before, "an update that nobody could build");
    }

    /// It is warm again: the late supervisor has everything, and the other one was never told to give anything up.
    async fn assert_all_arrives(&mut self, late: &Supervised) {
        for number in 1..=2 {
            self.world.stack.node_mut(Role::ConfigSnapshot, number).ready().await;
        }
        late.policy(SOON, &self.policy_hash).await;
        late.frame(SOON, "the credential", has_credential).await;
        for frame in late.recorder.frames() {
            assert!(frame.config.is_none_or(|config| config.has_policy), "a configuration without its policy");
            assert!(frame.environment.is_none_or(|environment| !environment.names.is_empty()), "a bare environment");
        }
        let next = self.world.set_policy("held", to_host("next.example", Some("key"))).await.0.policy_hash;
        self.held.policy(SOON, &next).await;
        let status = self.held.supervisor.status().borrow().clone();
        assert_eq!(status.sessions, 1, "its session ended");
        let frames = self.held.recorder.frames();
        let since = frames.iter().skip_while(|frame| !has_credential(frame));
        for frame in since {
            assert!(frame.config.as_ref().is_none_or(|config| config.has_policy), "{frame:?}");
            assert!(frame.environment.is_none() || has_credential(frame), "{frame:?}");
        }
    }
}

fn has_credential(frame: &Frame) -> bool {
    frame.environment.as_ref().is_some_and(|environment| environment.names.contains(&"KEY_TOKEN".to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_that_cannot_reach_the_database_hand_out_nothing_until_they_can() {
    let mut warm = Warm::start().await;
    warm.kill(Role::ConfigSnapshot).await;
    for number in 1..=2 {
        warm.world.stack.node(Role::ConfigSnapshot, number).postgres.as_ref().unwrap().cut();
    }
    warm.resume(Role::ConfigSnapshot);
    let late = warm.world.supervise("late").await;
    warm.assert_nothing_is_handed_out(&late).await;
    for number in 1..=2 {
        warm.world.stack.node(Role::ConfigSnapshot, number).postgres.as_ref().unwrap().heal();
    }
    warm.assert_all_arrives(&late).await;
}

/// Whoever would make streams and buckets anew is down too, so that there is time to look.
#[tokio::test(flavor = "multi_thread")]
async fn snapshots_of_a_broker_that_lost_everything_hand_out_nothing_until_it_is_made_anew() {
    let mut warm = Warm::start().await;
    let settings = warm.world.settings("late").await;
    warm.kill(Role::ConfigSnapshot).await;
    warm.kill(Role::Admission).await;
    warm.world.stack.broker().wipe().await;
    warm.resume(Role::ConfigSnapshot);
    let late = Supervised::start(settings);
    warm.assert_nothing_is_handed_out(&late).await;
    warm.resume(Role::Admission);
    warm.assert_all_arrives(&late).await;
}
