//! S9: a supervisor that stops reading delays nobody else, and is not sent what has been overtaken meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_e2e::policy::to_host;
use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_supervisor::Behaviour;
use roadstead_testkit::{soak, stack::Plan};

use crate::world::{CROWD, SOON, World};

const WINDOW: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 12;
/// Endpoints of a policy: some 60 KB, so that a few of them fill what a connection buffers.
const ENDPOINTS: usize = 800;

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
    let stuck = world.ready_sandbox("stuck", &[]).await;
    let readers = [
        ("reader-1", world.ready_sandbox("reader-1", &[]).await),
        ("reader-2", world.ready_sandbox("reader-2", &[]).await),
    ];
    stuck.supervisor.behave(Behaviour::StopReading);
    let before = stuck.recorder.frames().len();

    let rounds = soak::count(ROUNDS);
    let mut newest = String::new();
    for round in 0..rounds {
        newest = world.set_policy("stuck", large(round)).await.0.policy_hash;
        for (name, reader) in &readers {
            let (changed, committed) = world.set_policy(name, to_host(&format!("round-{round}.example"), None)).await;
            let took = reader.policy(SOON, &changed.policy_hash).await.at.saturating_duration_since(committed);
            assert!(took <= WINDOW + CROWD, "{name} waited {took:?} in round {round}");
        }
    }
    assert!(stuck.recorder.frames().len() <= before + 1, "it does not read");

    stuck.supervisor.behave(Behaviour::Apply);
    stuck.policy(SOON, &newest).await;
    let received = stuck.recorder.frames().len() - before;
    assert!(received <= rounds as usize * 2 / 3, "{received} of {rounds} were kept for it");
}
