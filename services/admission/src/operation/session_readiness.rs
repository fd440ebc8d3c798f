//! `SessionReadiness`: what a session observes of its sandbox's providers. Kept only if the session is the sandbox's and
//! the number is above the row's. No object shows it, so no version rises.

use roadstead_proto::internal::{SessionReadiness, SessionReadinessRecorded};
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};
use roadstead_store::row;

use super::{Decision, Operation};
use crate::caller::Caller;
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::Refusal;
use crate::validate::at_most;

/// Longest id or hash that is kept, in bytes. What they must be the bridge has checked, whose own session it is.
const TEXT_BYTES: usize = 128;

impl Operation for SessionReadiness {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let Caller::Sandbox { id, .. } = context.caller else { return Err(Refusal::Internal) };
        if let Some(observed) = &self.observation {
            let ids = [&observed.session_id, &observed.attachment_epoch, &observed.process_instance_id];
            let texts = ids.into_iter().chain([&observed.policy_hash]);
            texts.into_iter().try_for_each(|text| at_most("observation", text, TEXT_BYTES))?;
        }
        let reads = Reads { observation: true, ..locks.reads };
        Ok(Locks { sandboxes: Sandboxes::ById(*id), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        let row = loaded.sandboxes.first().ok_or(Refusal::NotTheSession)?;
        let held = row.session.as_ref().filter(|held| held.id.to_string() == self.session_id);
        let held = held.ok_or(Refusal::NotTheSession)?;
        // Written with the registration, so it is there and of this session.
        let known = loaded.observation.as_ref().filter(|known| known.session_id == held.id);
        let known = known.ok_or(Refusal::NotTheSession)?;
        if !known.readiness_announced {
            return Err(Refusal::precondition("the session did not say that it reports the readiness of providers"));
        }
        if self.number <= known.readiness_number {
            return Ok(Decision::report(Vec::new(), &SessionReadinessRecorded {}));
        }
        let observed = row::Observation {
            readiness_number: self.number,
            readiness: self.observation.clone(),
            readiness_at: loaded.now,
            ..known.clone()
        };
        Ok(Decision::report(vec![Write::PutObservation(observed)], &SessionReadinessRecorded {}))
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::ProviderReadinessObservation;
    use uuid::Uuid;

    use super::*;
    use crate::sample::{self, World};

    fn found(announced: bool, number: u64) -> Loaded {
        let row = row::Sandbox { session: Some(sample::session(40)), ..sample::sandbox("s") };
        let observation = row::Observation {
            sandbox_id: row.id,
            session_id: Uuid::from_u128(40),
            readiness_announced: announced,
            readiness_number: number,
            readiness: None,
            readiness_at: sample::NOW,
            endpoint_sequence: 3,
        };
        Loaded { sandboxes: vec![row], observation: Some(observation), ..sample::nothing() }
    }

    fn told(session: u128, number: u64) -> SessionReadiness {
        SessionReadiness {
            session_id: Uuid::from_u128(session).to_string(),
            number,
            observation: Some(ProviderReadinessObservation { sequence: 9, ..Default::default() }),
        }
    }

    fn decide(request: &SessionReadiness, loaded: &Loaded) -> Result<Decision, Refusal> {
        request.decide(loaded, &World::sandbox().context())
    }

    #[test]
    fn a_higher_number_of_the_live_session_is_kept_and_moves_no_version() {
        let decision = decide(&told(40, 2), &found(true, 1)).unwrap();
        let [Write::PutObservation(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((row.readiness_number, row.endpoint_sequence), (2, 3));
        assert_eq!(row.readiness.as_ref().unwrap().sequence, 9);
    }

    #[test]
    fn late_words_and_those_of_other_sessions_change_nothing() {
        for number in [1, 2] {
            assert!(decide(&told(40, number), &found(true, 2)).unwrap().writes.is_empty());
        }
        assert_eq!(decide(&told(41, 9), &found(true, 0)).unwrap_err(), Refusal::NotTheSession);
        let mut of_another = found(true, 0);
        of_another.observation.as_mut().unwrap().session_id = Uuid::from_u128(41);
        assert_eq!(decide(&told(40, 9), &of_another).unwrap_err(), Refusal::NotTheSession);
        assert!(matches!(decide(&told(40, 1), &found(false, 0)), Err(Refusal::Precondition(_))));
    }
}
