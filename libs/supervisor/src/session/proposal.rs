//! The policy that is proposed for a sandbox that has none.

use roadstead_proto::api::sandbox::PolicySource;
use roadstead_proto::api::v1::ConfigUpdate;
use tonic::{Code, Status};

use super::retry::Retry;
use super::{Done, Session};
use crate::calls;
use crate::client::Client;
use crate::observed::Observation;

impl Session {
    /// Looks whether what arrived has a policy.
    pub(super) fn look_for_policy(&mut self, client: &Client, update: &ConfigUpdate) {
        let lacks = update.sandbox_config.as_ref().map(|config| {
            config.policy.is_none() && config.version == 0 && config.policy_source() != PolicySource::Global
        });
        if let Some(lacks) = lacks.filter(|_| client.settings.policy.is_some()) {
            self.proposal = if lacks { Retry::now() } else { Retry::never() };
        }
    }

    pub(super) fn propose_policy(&mut self, client: &Client) {
        self.proposal.begun();
        let Some(policy) = client.settings.policy.clone() else { return };
        let call = calls::propose_policy(self.api.clone(), client.token.clone(), &client.settings, policy);
        self.calls.spawn(async { Done::PolicyProposed(call.await) });
    }

    pub(super) fn policy_proposed(&mut self, client: &Client, proposed: Result<u32, Status>) {
        match proposed {
            Ok(version) => {
                client.tell(Observation::PolicySynced { version, at: std::time::Instant::now() });
                self.polling.hurry();
            }
            // Somebody gave it one meanwhile, or nobody may any more: the next update will tell.
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::Aborted) => {
                tracing::info!(message = status.message(), "the default policy is not wanted");
            }
            Err(status) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the policy could not be proposed");
                self.proposal.failed();
            }
        }
    }
}
