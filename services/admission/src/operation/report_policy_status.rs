//! `ReportPolicyStatus`.

use roadstead_proto::api::v1::{PolicyStatus, ReportPolicyStatusRequest, ReportPolicyStatusResponse};
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes};

use super::{Decision, Operation, session, verdict};
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::{Object, Refusal};

impl Operation for ReportPolicyStatusRequest {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let id = session::own_id(&self.sandbox_id, context)?;
        if self.version == 0 {
            return Err(Refusal::invalid("version", "must be 1 or more"));
        }
        if !matches!(self.status(), PolicyStatus::Loaded | PolicyStatus::Failed) {
            return Err(Refusal::invalid("status", "must be LOADED or FAILED"));
        }
        let reads = Reads { policy_version: Some(self.version), ..locks.reads };
        Ok(Locks { sandboxes: Sandboxes::ById(id), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let before = session::own(loaded, context)?;
        let revision = loaded.policy_version.as_ref();
        let revision = revision.ok_or_else(|| Refusal::not_found(Object::PolicyRevision, self.version.to_string()))?;
        let mut row = before.clone();
        let is_loaded = self.status() == PolicyStatus::Loaded;
        let settle = verdict::on_policy(&mut row, revision, is_loaded, &self.load_error);
        let mut writes = Vec::from_iter(settle);
        if row != *before {
            writes.push(session::updated(&mut row));
        }
        Ok(Decision::report(writes, &ReportPolicyStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use roadstead_store::mutation::Write;
    use roadstead_store::row;

    use super::*;
    use crate::sample::{self, World};

    fn request(version: u32, status: PolicyStatus) -> ReportPolicyStatusRequest {
        let sandbox_id = sample::sandbox("s").id.to_string();
        ReportPolicyStatusRequest { sandbox_id, version, status: status.into(), ..Default::default() }
    }

    fn found(status: PolicyStatus) -> Loaded {
        let row = sample::sandbox("s");
        let revision = row::PolicyRevision {
            scope: Some(row.id),
            version: 1,
            hash: String::new(),
            policy: Default::default(),
            status,
            load_error: String::new(),
            created_at: sample::NOW,
            loaded_at: None,
            provenance: row::Pairs::new(),
        };
        Loaded { sandboxes: vec![row], policy_version: Some(revision), ..sample::nothing() }
    }

    #[test]
    fn a_loaded_revision_becomes_the_current_one() {
        let world = World::sandbox();
        let decision =
            request(1, PolicyStatus::Loaded).decide(&found(PolicyStatus::Pending), &world.context()).unwrap();
        let [Write::SettlePolicy { version: 1, .. }, Write::UpdateSandbox(row)] = decision.writes.as_slice() else {
            panic!("{:?}", decision.writes)
        };
        assert_eq!(row.current_policy_version, 1);
    }

    #[test]
    fn an_unknown_revision_another_sandbox_and_an_old_generation_are_refused() {
        let world = World::sandbox();
        let unknown = Loaded { policy_version: None, ..found(PolicyStatus::Pending) };
        let refused = request(9, PolicyStatus::Loaded).decide(&unknown, &world.context());
        assert!(matches!(refused, Err(Refusal::NotFound { object: Object::PolicyRevision, .. })));

        let other = ReportPolicyStatusRequest { sandbox_id: "x".into(), ..request(1, PolicyStatus::Loaded) };
        assert!(matches!(other.plan(Locks::default(), &world.context()), Err(Refusal::Denied(_))));

        let mut started = found(PolicyStatus::Pending);
        started.sandboxes[0].generation = 2;
        let refused = request(1, PolicyStatus::Loaded).decide(&started, &world.context());
        assert!(matches!(refused, Err(Refusal::Unauthenticated(_))));
    }

    #[test]
    fn only_two_verdicts_exist() {
        let world = World::sandbox();
        for bad in [request(0, PolicyStatus::Loaded), request(1, PolicyStatus::Pending)] {
            assert!(matches!(bad.plan(Locks::default(), &world.context()), Err(Refusal::Invalid { .. })));
        }
    }
}
