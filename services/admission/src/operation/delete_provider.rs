//! `DeleteProvider`.

use bytes::Bytes;
use roadstead_proto::api::v1::{DeleteProviderRequest, DeleteProviderResponse, DeletionOutcome};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Lock, Locks, Providers, Sandboxes, Write};
use roadstead_store::row;

use super::{Decision, Operation};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal, Shown};
use crate::validate::name;

/// Sandboxes that a refusal names.
const NAMED: usize = 10;

impl Operation for DeleteProviderRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::provider("name", &self.name)?;
        Ok(Locks {
            providers: Providers::Named(vec![self.name.clone()], Lock::Update),
            sandboxes: Sandboxes::OfLockedProviders,
            ..locks
        })
    }

    fn decide(&self, loaded: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        let (writes, outcome) = match loaded.providers.first() {
            Some(row) if loaded.sandboxes.is_empty() => {
                (vec![Write::DeleteProvider(row.id)], DeletionOutcome::Completed)
            }
            Some(row) => return Err(attached(row, &loaded.sandboxes)),
            None if self.allow_missing => (Vec::new(), DeletionOutcome::AlreadyAbsent),
            None => return Err(Refusal::not_found(Object::Provider, &self.name)),
        };
        let response = DeleteProviderResponse { outcome: outcome.into() };
        Ok(Decision::new(writes, &response, replay::deletion(outcome)))
    }

    fn replay(&self, receipt: &Receipt, _: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let outcome = replay::recorded(receipt)?.outcome;
        Some(replay::encoded(&DeleteProviderResponse { outcome }))
    }
}

fn attached(row: &row::Provider, sandboxes: &[row::Sandbox]) -> Refusal {
    let names = sandboxes.iter().take(NAMED).map(|sandbox| sandbox.name.as_str()).collect::<Vec<_>>().join(", ");
    let more = match sandboxes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let provider = Shown(&row.name);
    Refusal::precondition(format!("provider {provider} is attached to sandboxes {names}{more}; detach it first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn decide(allow_missing: bool, loaded: &Loaded) -> Result<Decision, Refusal> {
        let request = DeleteProviderRequest { name: "p".into(), allow_missing, ..Default::default() };
        request.decide(loaded, &World::user().context())
    }

    #[test]
    fn a_provider_goes_only_when_no_sandbox_has_it() {
        let loaded = Loaded { providers: vec![sample::provider("p", &["A"])], ..sample::in_workspace() };
        assert!(matches!(decide(false, &loaded).unwrap().writes.as_slice(), [Write::DeleteProvider(_)]));

        let sandboxes = (0..12).map(|at| sample::sandbox(&format!("s{at}"))).collect();
        let refused = decide(false, &Loaded { sandboxes, ..loaded }).unwrap_err();
        assert!(
            matches!(&refused, Refusal::Precondition(text) if text.contains("s0, s1") && text.contains("and 2 more"))
        );
    }

    #[test]
    fn a_missing_one_is_told_apart() {
        assert!(matches!(decide(false, &sample::in_workspace()), Err(Refusal::NotFound { .. })));
        assert!(decide(true, &sample::in_workspace()).unwrap().writes.is_empty());
    }
}
