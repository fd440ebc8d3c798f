//! `IssueSandboxToken`: the platform that runs a workload vouches for which sandbox it is. The ledger keeps for whom,
//! never the token.

use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1::{IssueSandboxTokenRequest, SandboxPhase};
use roadstead_proto::internal::Receipt;
use roadstead_proto::internal::receipt;
use roadstead_store::mutation::{Loaded, Locks, Sandboxes};
use roadstead_store::row;

use super::{Decision, Operation, Reply, session};
use crate::caller::Caller;
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::{Object, Refusal, Shown};

/// How far the platform's clock may be behind.
const LEEWAY: Duration = Duration::from_secs(60);

impl Operation for IssueSandboxTokenRequest {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let Caller::Bootstrap { id, .. } = context.caller else { return Err(Refusal::Internal) };
        Ok(Locks { sandboxes: Sandboxes::ById(*id), ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let Caller::Bootstrap { id, issued_at } = context.caller else { return Err(Refusal::Internal) };
        let found = loaded.sandboxes.first().filter(|row| row.id == *id);
        let row = found.ok_or_else(|| Refusal::not_found(Object::Sandbox, id.to_string()))?;
        session::not_deleting(row)?;
        if !matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Ready | SandboxPhase::Starting) {
            let (name, phase) = (Shown(&row.name), session::phase_word(row.phase));
            return Err(Refusal::precondition(format!("sandbox {name} is {phase}; its supervisor cannot connect")));
        }
        if started(row).is_some_and(|started| *issued_at + LEEWAY < started) {
            return Err(Refusal::Unauthenticated("the sandbox was started anew; its supervisor needs a new token"));
        }
        let grant = receipt::TokenGrant { sandbox_id: row.id.to_string(), generation: row.generation, issued: true };
        Ok(Decision { writes: Vec::new(), reply: Reply::Token(grant), receipt: Receipt::default() })
    }
}

/// When the present generation began, however often it was restarted since.
fn started(row: &row::Sandbox) -> Option<SystemTime> {
    SystemTime::try_from(row.status.provisioning.as_ref()?.admission_start_time?).ok()
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::SandboxProvisioning;
    use roadstead_store::view::timestamp;

    use super::*;
    use crate::sample::{self, World};

    fn decide(row: row::Sandbox, issued_at: SystemTime) -> Result<Decision, Refusal> {
        let world = World::of(Caller::Bootstrap { id: sample::sandbox("s").id, issued_at });
        let loaded = Loaded { sandboxes: vec![row], ..sample::nothing() };
        IssueSandboxTokenRequest::default().decide(&loaded, &world.context())
    }

    fn generation(decision: Decision) -> u64 {
        match decision.reply {
            Reply::Token(receipt::TokenGrant { generation, issued: true, .. }) => generation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_token_is_issued_for_the_present_generation_while_a_supervisor_may_connect() {
        use SandboxPhase::{Completed, Deleting, Error, Provisioning, Ready, Starting, Stopped, Stopping};
        for phase in [Provisioning, Ready, Starting, Stopping, Stopped, Completed, Error, Deleting] {
            let row = row::Sandbox { phase, generation: 7, ..sample::sandbox("s") };
            let issued = decide(row, sample::NOW);
            match phase {
                Provisioning | Ready | Starting => assert_eq!(generation(issued.unwrap()), 7),
                _ => assert!(matches!(issued, Err(Refusal::Precondition(_))), "{phase:?}"),
            }
        }
        let other = row::Sandbox { id: uuid::Uuid::from_u128(99), ..sample::sandbox("s") };
        assert!(matches!(decide(other, sample::NOW), Err(Refusal::NotFound { .. })));
    }

    #[test]
    fn a_platforms_token_from_before_the_start_is_void_also_after_a_restart() {
        let mut row = sample::sandbox("s");
        row.status.provisioning =
            Some(SandboxProvisioning { admission_start_time: Some(timestamp(sample::NOW)), ..Default::default() });
        for restarts in [0, 1] {
            row.status.restart_count = restarts;
            for (age, good) in [(0, true), (59, true), (61, false)] {
                let issued = decide(row.clone(), sample::NOW - Duration::from_secs(age));
                assert_eq!(issued.is_ok(), good, "{age} {restarts}");
                assert!(good || matches!(issued, Err(Refusal::Unauthenticated(_))));
            }
        }
    }
}
