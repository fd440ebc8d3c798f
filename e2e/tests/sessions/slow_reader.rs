//! S9: a supervisor that stops reading delays nobody else, and is not sent what has been overtaken meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_e2e::policy::to_host;
use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_proto::api::v1::SupervisorHeartbeat;
use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_testkit::{soak, stack::Plan};
use uuid::Uuid;

use crate::world::{CROWD, SOON, World};
use roadstead_e2e::Held;

const WINDOW: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 12;
/// Endpoints of a policy: some 60 KB.
const ENDPOINTS: usize = 800;
/// Updates of that size that may be on their way to one that does not read: both sides buffer 64 KB, and one is made
/// when there is room for its beginning.
const BUFFERED: usize = 4;

fn large(round: u32) -> SandboxPolicy {
    let endpoint = |number| NetworkEndpoint {
        host: format!("a-host-with-a-rather-long-name-{number}.round-{round}.example.com"),
        port: 443,
        ..Default::default()
    };
    let rule = NetworkPolicyRule {
        name: "many".to_owned(),
        endpoints: (0..ENDPOINTS).map(endpoint).collect(),
        ..Default::default()
    };
    SandboxPolicy { network_policies: BTreeMap::from([("many".to_owned(), rule)]), ..to_host("x.example", None) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_stops_reading_delays_no_other_and_gets_the_newest_when_it_reads_again() {
    let world = World::start(Plan::single()).await;
    let sandbox = world.sandbox("stuck", &[]).await;
    let token = world.token("stuck").await;
    let mut stuck = Held::open(&world.stack.bridge(1), &token, &sandbox, Uuid::new_v4(), 1).await.unwrap();
    let readers = [("one", world.ready_sandbox("one", &[]).await), ("two", world.ready_sandbox("two", &[]).await)];

    let rounds = soak::count(ROUNDS);
    let mut newest = String::new();
    for round in 0..rounds {
        stuck.say(Payload::Heartbeat(SupervisorHeartbeat {})).await;
        newest = world.set_policy("stuck", large(round)).await.0.policy_hash;
        for (name, reader) in &readers {
            let (changed, committed) = world.set_policy(name, to_host(&format!("round-{round}.example"), None)).await;
            let took = reader.policy(SOON, &changed.policy_hash).await.at.saturating_duration_since(committed);
            assert!(took <= WINDOW + CROWD, "{name} waited {took:?} in round {round}");
        }
    }

    // It reads again: what the connection had buffered, and then the newest.
    let mut received = 0;
    let reading = async {
        while let Some(message) = stuck.from_bridge.message().await.unwrap() {
            let Some(FromBridge::ConfigUpdate(update)) = message.payload else { continue };
            received += 1;
            if update.sandbox_config.is_some_and(|config| config.policy_hash == newest) {
                return;
            }
        }
        panic!("the session ended");
    };
    tokio::time::timeout(SOON, reading).await.expect("the newest arrives");
    assert!(received <= BUFFERED + 1, "{received} of {rounds} were kept for it");
}
