//! `roadstead demo`: the main job from end to end, on real parts, and whether all held.

mod load;
pub(crate) mod postgres;
mod report;
mod sdk;
pub(crate) mod target;
pub(crate) mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::sandbox::{NetworkCredentialBinding, NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_proto::api::v1::{self, PolicyStatus, SandboxPhase};
use roadstead_supervisor::{ENVIRONMENT_FILE, Observation, Recorder, Settings, Supervisor, TokenSource};

use self::report::{Report, milliseconds};
use self::sdk::Sdk;
use self::target::{Doors, Kind, Target};
use self::watched::Watched;
use crate::client::connect::{Client, Connection};
use crate::client::{request_id, scope};

/// Longest wait for anything that should happen at once.
const PATIENCE: Duration = Duration::from_secs(30);
const CREDENTIAL: &str = "DEMO_TOKEN";
const SECOND_CREDENTIAL: &str = "DEMO_SECOND";
const REPLAYED: &str = "openshell-replayed";

/// Run the main job from end to end and say what happened; exit status 0 only if all held
#[derive(Args, Debug)]
pub(crate) struct Command {
    /// What to run against
    #[arg(long, value_enum, default_value_t = Kind::All)]
    target: Kind,
    /// Print one JSON object at the end instead of lines
    #[arg(long)]
    json: bool,
    /// Python with the SDK
    #[arg(long, env = "ROADSTEAD_PYTHON", value_name = "FILE", default_value = "python3")]
    python: PathBuf,
    /// The script with the SDK's steps
    #[arg(long, value_name = "FILE", default_value = "e2e/python/demo.py")]
    script: PathBuf,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut report = Report::new(self.json);
        let target = self.target;
        let start = async {
            let (target, doors) = Target::of(target).await?;
            let detail = format!("{} edge(s), bridge at {}", doors.edges.len(), doors.bridge);
            Ok(((target, doors), detail))
        };
        let outcome = match report.step("start", start).await {
            Ok((target, doors)) => {
                let outcome = self.steps(&mut report, &target, &doors).await;
                outcome.and(target.stop().await)
            }
            Err(error) => Err(error),
        };
        let held = report.finish()?;
        outcome?;
        ensure!(held, "not all held");
        Ok(())
    }

    async fn steps(&self, report: &mut Report, target: &Target, doors: &Doors) -> anyhow::Result<()> {
        let mut clients = Vec::new();
        for edge in &doors.edges {
            clients.push(Connection::anonymous(edge).open_stream().await?);
        }
        // A second run against the same deployment must not meet the first one's names.
        let workspace = format!("demo-{:08x}", uuid::Uuid::new_v4().as_u128() as u32);
        let sdk = Sdk {
            python: self.python.clone(),
            script: self.script.clone(),
            endpoint: doors.edges[0].trim_start_matches("http://").to_owned(),
            workspace: workspace.clone(),
            sandbox: "agent".to_owned(),
        };
        let secret = uuid::Uuid::new_v4().to_string();
        let demo = Demo { target, doors, clients, workspace, sandbox: "agent", sdk, secret };
        demo.run(report).await
    }
}

/// One run: what all steps share.
struct Demo<'a> {
    target: &'a Target,
    doors: &'a Doors,
    clients: Vec<Client>,
    workspace: String,
    sandbox: &'static str,
    sdk: Sdk,
    /// Value of the first provider's credential.
    secret: String,
}

impl Demo<'_> {
    async fn run(&self, report: &mut Report) -> anyhow::Result<()> {
        report.step("create workspace, provider and sandbox through the SDK", self.create()).await?;
        let mut watched = report.step("watch on the other edge", self.watch()).await?;
        let (supervisor, seen) = report.step("start the supervisor", self.supervise()).await?;
        report.step("the SDK's wait_ready", self.wait_ready(&mut watched)).await?;
        report.step("change the policy", self.change_policy(&seen)).await?;
        report.step("repeat a mutation with its request id", self.repeat()).await?;
        report.step("kill -9 an admission under load", self.kill_under_load()).await?;
        report.step("attach a second provider and bind it", self.second_provider(&seen)).await?;
        report.step("delete everything", self.delete(&mut watched)).await?;
        supervisor.stop().await;
        Ok(())
    }

    fn client(&self) -> Client {
        self.clients[0].clone()
    }

    async fn create(&self) -> anyhow::Result<((), String)> {
        let credential = ["--provider", "first", "--credential-key", CREDENTIAL, "--credential-value", &self.secret];
        let created = self.sdk.step("create", &credential).await?;
        let id = created["sandbox_id"].as_str().context("the SDK gave no id")?;
        Ok(((), format!("{}/{} is {id}", self.workspace, self.sandbox)))
    }

    async fn watch(&self) -> anyhow::Result<(Watched, String)> {
        let last = self.clients.last().context("no edge")?.clone();
        let mut watched = Watched::open(last, &self.workspace, self.sandbox).await?;
        let seen = watched.until(PATIENCE, |seen| !seen.shown.is_empty()).await?;
        let (version, phase) = seen.shown[0];
        ensure!(phase == SandboxPhase::Provisioning, "the first event shows {phase:?}");
        Ok((watched, format!("shows PROVISIONING at version {version}")))
    }

    async fn supervise(&self) -> anyhow::Result<((Supervisor, Recorder), String)> {
        let token = self.target.token(&self.workspace, self.sandbox).await?;
        let recorder = Recorder::new(10_000);
        let supervisor = Supervisor::start(Settings {
            folder: Some(self.target.folder().join("supervised")),
            observer: Some(recorder.observer()),
            reports_readiness: true,
            ..Settings::new(&self.doors.bridge, &self.workspace, self.sandbox, TokenSource::File(token))
        })?;
        let accepted = recorder.wait_for(PATIENCE, |seen| {
            seen.iter().find_map(|one| match one {
                Observation::Accepted { session_id, pushes: true, .. } => Some(session_id.clone()),
                _ => None,
            })
        });
        let session = accepted.await.context("no session was accepted")?;
        Ok(((supervisor, recorder), format!("session {session}, pushing")))
    }

    async fn wait_ready(&self, watched: &mut Watched) -> anyhow::Result<((), String)> {
        let ready = self.sdk.step("wait-ready", &[]).await?;
        let seen = watched.until(PATIENCE, |seen| seen.shown.iter().any(|(_, p)| *p == SandboxPhase::Ready)).await?;
        Watched::check_order(&seen)?;
        Ok(((), format!("policy version {}; the watch shows READY, versions only rising", ready["policy_version"])))
    }

    /// From the commit's answer to the supervisor's folder, and to LOADED.
    async fn change_policy(&self, seen: &Recorder) -> anyhow::Result<((), String)> {
        let changed = self.set_policy(policy(None)).await?;
        let committed = Instant::now();
        let applied = answered_policy(seen, &changed.policy_hash).await?;
        let pushed = applied.saturating_duration_since(committed);
        self.until_loaded(changed.version).await?;
        let loaded = committed.elapsed();
        Ok((
            (),
            format!(
                "version {}: applied {:.1} ms after the commit was answered, LOADED after {:.1} ms",
                changed.version,
                milliseconds(pushed),
                milliseconds(loaded)
            ),
        ))
    }

    async fn set_policy(&self, policy: SandboxPolicy) -> anyhow::Result<v1::UpdateConfigResponse> {
        let request = v1::UpdateConfigRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: self.sandbox.to_owned(),
            policy: Some(policy),
            request_id: request_id(),
            ..Default::default()
        };
        Ok(self.client().update_config(request).await?.into_inner())
    }

    async fn until_loaded(&self, version: u32) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = v1::GetSandboxPolicyStatusRequest {
                workspace_scope: scope(&self.workspace),
                sandbox: self.sandbox.to_owned(),
                version,
                ..Default::default()
            };
            let revision = self.client().get_sandbox_policy_status(request).await?.into_inner().revision;
            match revision.map(|revision| revision.status()) {
                Some(PolicyStatus::Loaded) => return Ok(()),
                Some(PolicyStatus::Pending) if Instant::now() < deadline => {}
                status => bail!("version {version} is {status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn repeat(&self) -> anyhow::Result<((), String)> {
        let request = v1::CreateSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: "twice".to_owned(),
            spec: Some(v1::SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        let first = self.client().create_sandbox(request.clone()).await?;
        ensure!(!first.metadata().contains_key(REPLAYED), "the first answer says that it is a replay");
        let mut other = self.clients.last().context("no edge")?.clone();
        let second = other.create_sandbox(request).await?;
        ensure!(second.metadata().contains_key(REPLAYED), "the second answer does not say that it is a replay");
        let id = |sandbox: Option<v1::Sandbox>| sandbox.and_then(|sandbox| sandbox.metadata).map(|of| of.id);
        let (first, second) = (id(first.into_inner().sandbox), id(second.into_inner().sandbox));
        ensure!(first.is_some() && first == second, "two sandboxes: {first:?} and {second:?}");
        Ok(((), "through the other edge: the same sandbox, marked as a replay".to_owned()))
    }

    async fn kill_under_load(&self) -> anyhow::Result<((), String)> {
        let tally = load::run(self.target, &self.clients, &self.workspace).await?;
        Ok(((), tally.verdict()?))
    }

    async fn second_provider(&self, seen: &Recorder) -> anyhow::Result<((), String)> {
        let secret = uuid::Uuid::new_v4().to_string();
        let provider = Provider {
            metadata: Some(ObjectMeta { name: "second".to_owned(), ..Default::default() }),
            r#type: "generic".to_owned(),
            credentials: BTreeMap::from([(SECOND_CREDENTIAL.to_owned(), secret.clone())]),
            ..Default::default()
        };
        let create = v1::CreateProviderRequest {
            workspace_scope: scope(&self.workspace),
            provider: Some(provider),
            request_id: request_id(),
        };
        self.client().create_provider(create).await?;
        let attach = v1::AttachSandboxProviderRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: self.sandbox.to_owned(),
            provider: "second".to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        let attached = self.client().attach_sandbox_provider(attach).await?.into_inner();
        ensure!(attached.attached, "it says that the provider was attached before");
        self.set_policy(policy(Some("second"))).await?;
        let bound = Instant::now();
        let arrived = seen.wait_for(PATIENCE, |seen| {
            seen.iter().find_map(|one| match one {
                Observation::Received(frame) => {
                    let environment = frame.environment.as_ref()?;
                    environment.names.iter().any(|name| name == SECOND_CREDENTIAL).then_some(frame.at)
                }
                _ => None,
            })
        });
        let arrived = arrived.await.context("its value did not arrive")?;
        self.until_installed(&secret).await?;
        let after = milliseconds(arrived.saturating_duration_since(bound));
        Ok(((), format!("its value arrived {after:.1} ms after the binding, and is in the supervisor's folder")))
    }

    /// The value itself is compared: that some value arrived is not enough.
    async fn until_installed(&self, secret: &str) -> anyhow::Result<()> {
        let file = self.target.folder().join("supervised").join(ENVIRONMENT_FILE);
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains(secret)) {
            ensure!(Instant::now() < deadline, "the value is not in the supervisor's folder");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn delete(&self, watched: &mut Watched) -> anyhow::Result<((), String)> {
        let deleted = self.sdk.step("delete", &[]).await?;
        let seen = watched.until(PATIENCE, |seen| seen.ended).await?;
        Watched::check_order(&seen)?;
        let mut client = self.client();
        let twice = v1::DeleteSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: "twice".to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        client.delete_sandbox(twice).await?;
        load::clean(&self.clients, &self.workspace).await?;
        for name in ["first", "second"] {
            let request = v1::DeleteProviderRequest {
                workspace_scope: scope(&self.workspace),
                name: name.to_owned(),
                request_id: request_id(),
                ..Default::default()
            };
            client.delete_provider(request).await?;
        }
        let request =
            v1::DeleteWorkspaceRequest { name: self.workspace.clone(), request_id: request_id(), ..Default::default() };
        client.delete_workspace(request).await?;
        let left = self.target.sandboxes_in_postgres(&self.workspace).await?;
        ensure!(left.is_empty(), "Postgres still holds {left:?}");
        Ok(((), format!("{}; the watch ended after {} versions", deleted["outcome"], seen.shown.len())))
    }
}

/// When the supervisor answered for this policy that it is applied.
async fn answered_policy(seen: &Recorder, hash: &str) -> anyhow::Result<Instant> {
    let applied = seen.wait_for(PATIENCE, |seen| {
        let update = seen.iter().find_map(|one| match one {
            Observation::Received(frame) if frame.config.as_ref()?.policy_hash == hash => Some(&frame.update_id),
            _ => None,
        })?;
        seen.iter().find_map(|one| match one {
            Observation::Answered { update_id, at, outcome, .. }
                if update_id == update && *outcome == v1::ConfigApplyOutcome::Applied =>
            {
                Some(*at)
            }
            _ => None,
        })
    });
    applied.await.context("the supervisor did not apply it")
}

/// The demo's policy: one inspected endpoint, to which a provider's credential can be bound.
fn policy(bound: Option<&str>) -> SandboxPolicy {
    let endpoint = NetworkEndpoint {
        host: "api.example.com".to_owned(),
        port: 443,
        protocol: "rest".to_owned(),
        access: roadstead_proto::api::sandbox::NetworkAccessPreset::ReadOnly.into(),
        credential_binding: bound.map(|provider| NetworkCredentialBinding { provider: provider.to_owned() }),
        ..Default::default()
    };
    let rule = NetworkPolicyRule { name: "example".to_owned(), endpoints: vec![endpoint], binaries: Vec::new() };
    SandboxPolicy {
        network_policies: BTreeMap::from([("example".to_owned(), rule)]),
        ..roadstead_supervisor::default_policy()
    }
}
