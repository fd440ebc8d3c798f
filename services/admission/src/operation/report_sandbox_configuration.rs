//! `ReportSandboxConfiguration`: how a supervisor that polls registers, and says whether it runs with what it got.

use roadstead_proto::api::v1::{
    ConfigApplyOutcome, ConfigurationAdmissionState, ReportSandboxConfigurationRequest,
    ReportSandboxConfigurationResponse, SandboxConfigurationAdmission,
};
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes};
use roadstead_store::row;

use super::{Decision, Operation, completion, session, verdict};
use crate::context::Context;
use crate::ledger::Address;
use crate::phase;
use crate::refusal::Refusal;

impl Operation for ReportSandboxConfigurationRequest {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let id = session::own_id(&self.sandbox_id, context)?;
        let admission = admission(self)?;
        verdict::check(admission)?;
        if admission.state() == ConfigurationAdmissionState::Unspecified {
            return Err(Refusal::invalid("admission.state", "must be PENDING, ACCEPTED or REJECTED"));
        }
        let reads = Reads { session_owner: true, ..completion::reads(locks.reads) };
        Ok(Locks { sandboxes: Sandboxes::ById(id), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let before = session::own(loaded, context)?;
        session::not_deleting(before)?;
        let admission = admission(self)?;
        if phase::elapsed(before, loaded.now) {
            return Err(Refusal::precondition("ProvisioningDeadlineElapsed: start the sandbox to try again"));
        }
        let mut row = before.clone();
        if admission.state() == ConfigurationAdmissionState::Pending {
            register(&mut row, admission, &self.expected_instance_id)?;
        } else {
            of_registered(&row, admission)?;
        }
        let mut writes = Vec::from_iter(verdict::shadowed(loaded));
        // Before its instance connects, nothing runs with it; then the registration of the session asks again.
        if session::live_of(&row, &admission.instance_id, loaded) {
            writes.extend(completion::by_verdict(admission, ConfigApplyOutcome::Unspecified, &row, loaded));
        }
        verdict::on_configuration(&mut row, admission.clone(), loaded, context);
        if row != *before {
            writes.push(session::updated(&mut row));
        }
        Ok(Decision::report(writes, &ReportSandboxConfigurationResponse {}))
    }
}

fn admission(request: &ReportSandboxConfigurationRequest) -> Result<&SandboxConfigurationAdmission, Refusal> {
    request.admission.as_ref().ok_or_else(|| Refusal::invalid("admission", "required"))
}

/// A registration takes the place of the instance that it names, and of no other.
fn register(row: &mut row::Sandbox, admission: &SandboxConfigurationAdmission, expected: &str) -> Result<(), Refusal> {
    session::not_ended(row, &admission.instance_id)?;
    let registered = &mut row.configuration_instance_id;
    if *registered != admission.instance_id {
        if registered != expected {
            return Err(Refusal::precondition("another instance has registered; read the configuration again"));
        }
        registered.clone_from(&admission.instance_id);
    }
    Ok(())
}

fn of_registered(row: &row::Sandbox, admission: &SandboxConfigurationAdmission) -> Result<(), Refusal> {
    if row.configuration_instance_id == admission.instance_id {
        return Ok(());
    }
    Err(Refusal::precondition("this instance is not the one that registered; register it first"))
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::SandboxPhase;
    use roadstead_store::mutation::{SessionOwner, Write};

    use super::*;
    use crate::sample::{self, World};

    fn request(
        instance: &str,
        state: ConfigurationAdmissionState,
        expected: &str,
    ) -> ReportSandboxConfigurationRequest {
        let admission =
            SandboxConfigurationAdmission { instance_id: instance.into(), state: state.into(), ..Default::default() };
        ReportSandboxConfigurationRequest {
            sandbox_id: sample::sandbox("s").id.to_string(),
            admission: Some(admission),
            expected_instance_id: expected.into(),
        }
    }

    fn decide(row: row::Sandbox, request: &ReportSandboxConfigurationRequest) -> Result<Decision, Refusal> {
        let session_owner = Some(SessionOwner::Alive);
        let loaded = Loaded { sandboxes: vec![row], session_owner, ..sample::nothing() };
        request.decide(&loaded, &World::sandbox().context())
    }

    fn updated(decision: Decision) -> row::Sandbox {
        match decision.writes.into_iter().next() {
            Some(Write::UpdateSandbox(row)) => row,
            other => panic!("{other:?}"),
        }
    }

    use ConfigurationAdmissionState::{Accepted, Pending, Rejected};

    #[test]
    fn a_registration_replaces_only_the_instance_that_it_names() {
        let row = updated(decide(sample::sandbox("s"), &request("one", Pending, "")).unwrap());
        assert_eq!(row.configuration_instance_id, "one");
        assert!(matches!(decide(row.clone(), &request("two", Pending, "")), Err(Refusal::Precondition(_))));
        let row = updated(decide(row, &request("two", Pending, "one")).unwrap());
        assert_eq!(row.configuration_instance_id, "two");
    }

    #[test]
    fn an_instance_whose_main_process_has_ended_does_not_register_again() {
        let mut row = row::Sandbox { phase: SandboxPhase::Starting, ..sample::sandbox("s") };
        row.status.main_process_instance_id = "ended".into();
        row.status.exit_code = Some(1);
        let refused = decide(row.clone(), &request("ended", Pending, "")).unwrap_err();
        assert!(refused.to_string().contains("has ended"), "{refused}");
        assert_eq!(updated(decide(row, &request("next", Pending, "")).unwrap()).configuration_instance_id, "next");
    }

    #[test]
    fn only_the_registered_instance_gives_a_verdict() {
        let row = row::Sandbox { configuration_instance_id: "one".into(), ..sample::sandbox("s") };
        assert!(matches!(decide(row.clone(), &request("two", Accepted, "")), Err(Refusal::Precondition(_))));
        let rejected = updated(decide(row, &request("one", Rejected, "")).unwrap());
        assert_eq!(rejected.status.conditions[0].reason, "ConfigurationInvalid");
    }

    #[test]
    fn with_a_session_an_acceptance_makes_ready() {
        let session = sample::session(1);
        let one = session.instance_id.clone();
        let configuration_instance_id = one.clone();
        let row = row::Sandbox { configuration_instance_id, session: Some(session), ..sample::sandbox("s") };
        assert_eq!(updated(decide(row.clone(), &request(&one, Accepted, "")).unwrap()).phase, SandboxPhase::Ready);
        let row = updated(decide(row, &request("two", Pending, &one)).unwrap());
        let accepted = updated(decide(row, &request("two", Accepted, "")).unwrap());
        assert_eq!(accepted.phase, SandboxPhase::Provisioning, "the session is another instance's");
    }

    #[test]
    fn past_the_deadline_nothing_is_taken() {
        let row =
            row::Sandbox { deadline: Some(sample::NOW - std::time::Duration::from_secs(1)), ..sample::sandbox("s") };
        let refused = decide(row, &request("one", Pending, "")).unwrap_err();
        assert!(refused.to_string().contains("ProvisioningDeadlineElapsed"));
    }
}
