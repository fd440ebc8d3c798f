//! Waiting for a supervisor's word on a revision. The watch wakes, the read decides: nothing is asked while nothing
//! happens to the sandbox, and an edge that goes away is waited for.

use std::time::Duration;

use roadstead_proto::api::v1::{self, ConfigurationAdmissionState, PolicyStatus};
use tonic::{Code, Status};

use super::connect::Client;
use super::output::Ended;
use super::scope;

/// Between two attempts to reach an edge.
const PAUSE: Duration = Duration::from_millis(250);

/// Which revision is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Version of the sandbox's policy.
    Policy(u32),
    /// Token of the whole configuration.
    Config(u64),
}

/// Whose revision it is, and whom to ask.
pub(crate) struct Sandbox {
    pub(crate) client: Client,
    pub(crate) workspace: String,
    pub(crate) name: String,
}

/// What became of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Loaded,
    /// With the supervisor's words.
    Failed(String),
    Superseded,
}

/// Waits until the revision is loaded; without one, that of the configuration as it is desired now. The answer says
/// which.
///
/// # Errors
/// [`Ended`] if it comes to another end or to none within `patience`; a refusal of the edge.
pub(crate) async fn until(mut sandbox: Sandbox, wanted: Option<Wanted>, patience: Duration) -> anyhow::Result<String> {
    let mut wanted = wanted;
    let mut trouble = String::new();
    let ended = tokio::time::timeout(patience, sandbox.end(&mut wanted, &mut trouble)).await;
    let name = match wanted {
        Some(Wanted::Policy(version)) => format!("policy version {version} of {}", sandbox.name),
        Some(Wanted::Config(revision)) => format!("configuration {revision} of {}", sandbox.name),
        None => format!("the configuration of {}", sandbox.name),
    };
    let other = |code, text| Err(Ended { code, text }.into());
    match ended {
        Ok(Ok(End::Loaded)) => Ok(format!("loaded: {name}")),
        Ok(Ok(End::Failed(error))) => other(3, format!("failed: {name}: {error}")),
        Ok(Ok(End::Superseded)) => other(4, format!("superseded: {name}")),
        Ok(Err(status)) => Err(status.into()),
        Err(_) => other(5, format!("timed out: {name} is pending after {} s{trouble}", patience.as_secs())),
    }
}

impl Sandbox {
    /// Watches again until there is an end. `trouble` is what is in the way at the moment, if anything is.
    async fn end(&mut self, wanted: &mut Option<Wanted>, trouble: &mut String) -> Result<End, Status> {
        loop {
            match self.watch(wanted, trouble).await {
                Ok(Some(end)) => return Ok(end),
                Err(status) if is_final(&status) => return Err(status),
                // The stream has ended, with its edge or with the sandbox: the next one tells.
                Ok(None) => {}
                Err(status) => *trouble = format!("; no edge answers: {}", status.message()),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads whenever the sandbox changes, the first time at once.
    async fn watch(&mut self, wanted: &mut Option<Wanted>, trouble: &mut String) -> Result<Option<End>, Status> {
        let request = v1::WatchSandboxRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: self.name.clone(),
            follow_status: true,
            ..Default::default()
        };
        let mut events = self.client.watch_sandbox(request).await?.into_inner();
        while let Some(event) = events.message().await? {
            if !matches!(event.payload, Some(v1::sandbox_stream_event::Payload::Sandbox(_))) {
                continue;
            }
            let end = match *wanted {
                Some(Wanted::Policy(version)) => self.policy(version).await?,
                Some(Wanted::Config(revision)) => self.config(revision).await?,
                None => {
                    let revision = self.desired().await?;
                    *wanted = Some(Wanted::Config(revision));
                    self.config(revision).await?
                }
            };
            trouble.clear();
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    async fn policy(&mut self, version: u32) -> Result<Option<End>, Status> {
        let request = v1::GetSandboxPolicyStatusRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: self.name.clone(),
            version,
            ..Default::default()
        };
        Ok(of_policy(&self.client.get_sandbox_policy_status(request).await?.into_inner()))
    }

    /// What is desired is read first: a verdict that is read after it cannot be older.
    async fn config(&mut self, revision: u64) -> Result<Option<End>, Status> {
        let desired = self.desired().await?;
        let request = v1::GetSandboxRequest { workspace_scope: scope(&self.workspace), name: self.name.clone() };
        let found = self.client.get_sandbox(request).await?.into_inner().sandbox.unwrap_or_default();
        let verdict = found.status.unwrap_or_default().configuration_admission;
        Ok(of_config(revision, desired, &verdict.unwrap_or_default()))
    }

    async fn desired(&mut self) -> Result<u64, Status> {
        let request = roadstead_proto::api::sandbox::GetSandboxConfigRequest {
            workspace_scope: scope(&self.workspace),
            name: self.name.clone(),
        };
        Ok(self.client.get_sandbox_config(request).await?.into_inner().config_revision)
    }
}

fn of_policy(told: &v1::GetSandboxPolicyStatusResponse) -> Option<End> {
    let revision = told.revision.clone().unwrap_or_default();
    match revision.status() {
        // The first revision of a sandbox counts as loaded before anybody has loaded it.
        PolicyStatus::Loaded if told.active_version >= revision.version => Some(End::Loaded),
        PolicyStatus::Failed => Some(End::Failed(revision.load_error)),
        PolicyStatus::Superseded => Some(End::Superseded),
        PolicyStatus::Loaded | PolicyStatus::Pending | PolicyStatus::Unspecified => None,
    }
}

fn of_config(revision: u64, desired: u64, verdict: &v1::SandboxConfigurationAdmission) -> Option<End> {
    match verdict.state() {
        ConfigurationAdmissionState::Accepted if verdict.config_revision == revision => Some(End::Loaded),
        ConfigurationAdmissionState::Rejected if verdict.config_revision == revision => {
            Some(End::Failed(verdict.error.clone()))
        }
        _ => (desired != revision).then_some(End::Superseded),
    }
}

/// Whether another attempt would be told the same.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::Unimplemented
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_version_ends_as_its_revision_does() {
        let told = |status: PolicyStatus, active_version| v1::GetSandboxPolicyStatusResponse {
            revision: Some(v1::SandboxPolicyRevision {
                version: 2,
                status: status.into(),
                load_error: "why".into(),
                ..Default::default()
            }),
            active_version,
        };
        for (status, active, end) in [
            (PolicyStatus::Pending, 1, None),
            (PolicyStatus::Loaded, 0, None),
            (PolicyStatus::Loaded, 2, Some(End::Loaded)),
            (PolicyStatus::Failed, 1, Some(End::Failed("why".into()))),
            (PolicyStatus::Superseded, 1, Some(End::Superseded)),
        ] {
            assert_eq!(of_policy(&told(status, active)), end, "{status:?} {active}");
        }
    }

    #[test]
    fn a_configuration_ends_with_the_verdict_on_it_or_with_another_one() {
        use ConfigurationAdmissionState::{Accepted, Pending, Rejected, Unspecified};
        let verdict = |state: ConfigurationAdmissionState, config_revision| v1::SandboxConfigurationAdmission {
            state: state.into(),
            config_revision,
            error: "why".into(),
            ..Default::default()
        };
        for (state, of, desired, end) in [
            (Unspecified, 0, 7, None),
            (Pending, 7, 7, None),
            (Accepted, 6, 7, None),
            (Rejected, 6, 7, None),
            (Accepted, 7, 7, Some(End::Loaded)),
            (Rejected, 7, 7, Some(End::Failed("why".into()))),
            // Said before something newer took its place.
            (Accepted, 7, 8, Some(End::Loaded)),
            (Accepted, 6, 8, Some(End::Superseded)),
            (Pending, 0, 8, Some(End::Superseded)),
        ] {
            assert_eq!(of_config(7, desired, &verdict(state, of)), end, "{state:?} {of} {desired}");
        }
    }
}
