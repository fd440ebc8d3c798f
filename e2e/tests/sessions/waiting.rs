//! `roadstead config wait`: a revision's end, told by words and by exit codes.

use std::process::Stdio;

use roadstead_e2e::policy::to_host;
use roadstead_supervisor::Behaviour;
use roadstead_testkit::eventually;
use roadstead_testkit::stack::{Plan, Role};

use crate::world::{SOON, World};

const OPEN: &str = r#"roadstead_watches_open{role="edge"}"#;

impl World {
    /// The command, not started.
    fn waiting(&self, arguments: &[&str]) -> tokio::process::Command {
        let all = ["config", "wait", "box", "--workspace", &self.workspace];
        let mut command = self.stack.command(&[&all[..], arguments].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Exit code, and all that was said.
    async fn waited(&self, arguments: &[&str]) -> (i32, String) {
        told(self.waiting(arguments).output().await.unwrap())
    }
}

fn told(output: std::process::Output) -> (i32, String) {
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    (output.status.code().unwrap(), said.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_as_its_revision_does_also_over_the_death_of_its_edge() {
    let mut world = World::start(Plan::single()).await;
    let supervised = world.ready_sandbox("box", &[]).await;

    let (loaded, _) = world.set_policy("box", to_host("loaded.example", None)).await;
    let version = loaded.version.to_string();
    let name = format!("policy version {version} of box");
    assert_eq!(world.waited(&["--policy-version", &version]).await, (0, format!("loaded: {name}")));
    let (code, said) = world.waited(&[]).await;
    assert!(code == 0 && said.starts_with("loaded: configuration "), "{code} {said}");
    let (code, said) = world.waited(&["--revision", "1"]).await;
    assert_eq!((code, said.as_str()), (4, "roadstead: superseded: configuration 1 of box"));

    supervised.supervisor.behave(Behaviour::reject("no room"));
    let (refused, _) = world.set_policy("box", to_host("refused.example", None)).await;
    let (code, said) = world.waited(&["--policy-version", &refused.version.to_string()]).await;
    assert!(code == 3 && said.contains("failed: ") && said.contains("no room"), "{code} {said}");
    let (code, said) = world.waited(&[]).await;
    assert!(code == 3 && said.contains("no room"), "{code} {said}");

    supervised.supervisor.behave(Behaviour::Silent);
    let (silent, _) = world.set_policy("box", to_host("silent.example", None)).await;
    let version = silent.version.to_string();
    let (code, said) = world.waited(&["--policy-version", &version, "--timeout", "1"]).await;
    assert!(code == 5 && said.contains("is pending after 1 s"), "{code} {said}");

    // Somebody waits for what will never be loaded, and the edge dies.
    let waiting = world.waiting(&["--policy-version", &version]).spawn().unwrap().wait_with_output();
    let edge = world.stack.node(Role::Edge, 1);
    eventually(SOON, "it watches", async || edge.metric(OPEN).await == 1.0).await;
    world.stack.node_mut(Role::Edge, 1).crash().await;
    supervised.supervisor.behave(Behaviour::Apply);
    world.set_policy("box", to_host("last.example", None)).await;
    let (code, said) = told(tokio::time::timeout(SOON, waiting).await.unwrap().unwrap());
    assert!(code == 4 && said.contains("superseded: "), "{code} {said}");
    let (code, said) = world.waited(&["--policy-version", "99"]).await;
    assert!(code == 1 && said.contains("NotFound"), "{code} {said}");
}
