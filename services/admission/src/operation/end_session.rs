//! `EndSession`: the last word of a session. What waited for its end happens with it.

use roadstead_proto::internal::{EndSession, SessionEnded};
use roadstead_store::mutation::{Loaded, Locks, Sandboxes};

use super::session::{at, ended};
use super::{Decision, Operation};
use crate::caller::Caller;
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::Refusal;

impl Operation for EndSession {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let Caller::Sandbox { id, .. } = context.caller else { return Err(Refusal::Internal) };
        Ok(Locks { sandboxes: Sandboxes::ById(*id), ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let row = loaded.sandboxes.first();
        let held = row.and_then(|row| row.session.as_ref().map(|held| (row, held)));
        let writes = match held {
            Some((row, held)) if held.id.to_string() == self.session_id && self.number > held.end_number => {
                vec![ended(row, at(loaded, context))]
            }
            // Ended already, or another session's by now.
            _ => Vec::new(),
        };
        Ok(Decision::report(writes, &SessionEnded {}))
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::SandboxPhase;
    use roadstead_store::mutation::Write;
    use roadstead_store::row;
    use uuid::Uuid;

    use super::*;
    use crate::sample::{self, World};

    fn decide(row: row::Sandbox, session: u128) -> Vec<Write> {
        let loaded = Loaded { sandboxes: vec![row], ..sample::nothing() };
        let session_id = Uuid::from_u128(session).to_string();
        let end = EndSession { session_id, number: 1, reason: String::new() };
        end.decide(&loaded, &World::sandbox().context()).unwrap().writes
    }

    #[test]
    fn what_waited_for_the_end_happens_with_it() {
        for (phase, after) in [
            (SandboxPhase::Ready, SandboxPhase::Provisioning),
            (SandboxPhase::Stopping, SandboxPhase::Stopped),
            (SandboxPhase::Provisioning, SandboxPhase::Provisioning),
        ] {
            let writes = decide(row::Sandbox { phase, ..sample::ready_sandbox("s") }, 40);
            let [Write::UpdateSandbox(row)] = writes.as_slice() else { panic!("{writes:?}") };
            assert_eq!((row.phase, &row.session), (after, &None));
        }
        let deleting = row::Sandbox { phase: SandboxPhase::Deleting, ..sample::ready_sandbox("s") };
        assert!(matches!(decide(deleting, 40).as_slice(), [Write::DeleteSandbox(_)]));
    }

    #[test]
    fn the_end_of_another_session_changes_nothing() {
        assert!(decide(sample::ready_sandbox("s"), 41).is_empty());
        assert!(decide(sample::sandbox("s"), 40).is_empty());
    }
}
