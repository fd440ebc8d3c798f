use std::collections::BTreeSet;

use roadstead_proto::api::v1::WatchSandboxRequest;
use roadstead_supervisor::{Settings, Supervisor, TokenSource};

use crate::world::{Shown, World, next};

#[tokio::test(flavor = "multi_thread")]
async fn what_befalls_a_sandbox_is_told_as_events_each_once_and_a_supervisor_logs() {
    let world = World::start().await;
    world.sandbox("s").await;
    let token = TokenSource::File(world.stack.token(&world.workspace, "s").await);
    let supervisor = Supervisor::start(Settings::new(world.stack.bridge(1), &world.workspace, "s", token)).unwrap();
    assert!(supervisor.log().say("INFO", "test", "7"));

    let request = WatchSandboxRequest { follow_events: true, event_tail: 50, ..world.follow("s") };
    let mut stream = world.watch(2, request.clone()).await.unwrap();
    let mut told = Vec::new();
    let (mut ready, mut logged) = (false, false);
    let mut supervisor = Some(supervisor);
    loop {
        match next(&mut stream).await {
            Shown::Event { reason, version, .. } => {
                ready |= reason == "DependenciesReady";
                let last = reason == "DependenciesNotReady";
                told.push((reason, version));
                if last {
                    break;
                }
            }
            Shown::Line { number, .. } => logged |= number == 7,
            _ => {}
        }
        // Not before its line is there: lines on their way are lost with it.
        if ready
            && logged
            && let Some(supervisor) = supervisor.take()
        {
            supervisor.stop().await;
        }
    }
    // It refuses to run without a policy, and proposes one.
    let reasons = told.iter().map(|(reason, _)| reason.as_str()).filter(|reason| *reason != "ConfigurationRejected");
    let reasons = reasons.collect::<Vec<_>>();
    let expected =
        ["Created", "SupervisorConnected", "DependenciesReady", "SupervisorDisconnected", "DependenciesNotReady"];
    assert_eq!(reasons, expected);
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), told.len());
    assert!(logged);

    // Another edge shows the same, from the beginning.
    let mut again = world.watch(1, request).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < told.len() {
        if let Shown::Event { reason, version, .. } = next(&mut again).await {
            seen.push((reason, version));
        }
    }
    assert_eq!(seen, told);
}
