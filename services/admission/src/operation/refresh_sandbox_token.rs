//! `RefreshSandboxToken`. The ledger keeps for whom, never the token.

use roadstead_proto::api::v1::RefreshSandboxTokenRequest;
use roadstead_proto::internal::{Receipt, receipt};
use roadstead_store::mutation::{Loaded, Locks, Sandboxes};

use super::{Decision, Operation, Reply, session};
use crate::caller::Caller;
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::Refusal;
use crate::validate::count_at_most;

const EXTENSIONS: usize = 64;

impl Operation for RefreshSandboxTokenRequest {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let Caller::Sandbox { id, .. } = context.caller else { return Err(Refusal::Internal) };
        count_at_most("extension_service_names", self.extension_service_names.len(), EXTENSIONS)?;
        if !self.extension_service_names.is_empty() {
            return Err(Refusal::Unserved("extension_service_names"));
        }
        Ok(Locks { sandboxes: Sandboxes::ById(*id), ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let row = session::own(loaded, context)?;
        let grant = receipt::TokenGrant { sandbox_id: row.id.to_string(), generation: row.generation, issued: false };
        Ok(Decision { writes: Vec::new(), reply: Reply::Token(grant), receipt: Receipt::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    #[test]
    fn a_token_is_granted_for_the_present_generation_only() {
        let request = RefreshSandboxTokenRequest::default();
        let mut loaded = Loaded { sandboxes: vec![sample::sandbox("s")], ..sample::nothing() };
        let granted = request.decide(&loaded, &World::sandbox().context()).unwrap();
        assert!(matches!(granted.reply, Reply::Token(ref grant) if grant.generation == 1));
        loaded.sandboxes[0].generation = 2;
        let refused = request.decide(&loaded, &World::sandbox().context());
        assert!(matches!(refused, Err(Refusal::Unauthenticated(_))));
    }

    #[test]
    fn tokens_for_extensions_are_named_as_not_served() {
        let plan = |names: usize| {
            let extension_service_names = vec!["x".to_owned(); names];
            let request = RefreshSandboxTokenRequest { extension_service_names };
            request.plan(Locks::default(), &World::sandbox().context()).unwrap_err()
        };
        assert_eq!(plan(1), Refusal::Unserved("extension_service_names"));
        assert!(matches!(plan(65), Refusal::Invalid { .. }));
    }
}
