//! `DetachSandboxProvider`. It is a revocation, so a policy that still binds the provider does not hold it back.

use bytes::Bytes;
use roadstead_proto::api::v1::{
    DetachSandboxProviderRequest, DetachSandboxProviderResponse, ProviderMutationKind, ProviderMutationReceipt,
};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Lock, Locks, Providers, Reads, Sandboxes, Write};
use roadstead_store::{row, view};

use super::{Decision, Operation, at_version, attachment, completion, session};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::name;

impl Operation for DetachSandboxProviderRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::label("sandbox", &self.sandbox)?;
        name::provider("provider", &self.provider)?;
        Ok(Locks {
            providers: Providers::Named(vec![self.provider.clone()], Lock::Share),
            sandboxes: Sandboxes::Named(self.sandbox.clone()),
            reads: Reads { receipt: true, ..completion::reads(locks.reads) },
            ..locks
        })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let before = session::named(loaded, &self.sandbox)?;
        let provider = loaded.providers.first();
        let provider = provider.ok_or_else(|| Refusal::not_found(Object::Provider, &self.provider))?;
        at_version(self.expected_resource_version, before.resource_version)?;

        let kind = ProviderMutationKind::Detach;
        let mutation_id = context.ids.fresh();
        if !before.providers.contains(&provider.name) {
            if let Some(standing) = attachment::standing_receipt(loaded, before, provider) {
                return Ok(decision(Vec::new(), before, false, &standing));
            }
            let receipt = attachment::receipt(kind, mutation_id, before, provider, false, loaded, context);
            return Ok(decision(vec![kept(&receipt)], before, false, &receipt));
        }
        let mut row = before.clone();
        row.providers.retain(|name| *name != provider.name);
        attachment::changed(&mut row, "detach", loaded.now, context);
        let detach = Write::Detach { sandbox_id: row.id, provider_id: provider.id };
        let mut writes = vec![session::updated(&mut row), detach];
        let receipt = attachment::receipt(kind, mutation_id, &row, provider, true, loaded, context);
        writes.push(kept(&receipt));
        Ok(decision(writes, &row, true, &receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let (recorded, row) = replay::live_sandbox(receipt, loaded)?;
        Some(replay::encoded(&response(row, recorded.changed, recorded.provider_receipt.clone())))
    }
}

fn kept(receipt: &row::ProviderReceipt) -> Write {
    Write::InsertReceipts(vec![receipt.clone()])
}

fn decision(writes: Vec<Write>, row: &row::Sandbox, detached: bool, receipt: &row::ProviderReceipt) -> Decision {
    let shown = view::provider_receipt(receipt, &row.name, &row.workspace_name);
    let response = response(row, detached, Some(shown.clone()));
    Decision::new(writes, &response, replay::sandbox_now(row.id, detached, Some(shown)))
}

fn response(
    row: &row::Sandbox,
    detached: bool,
    receipt: Option<ProviderMutationReceipt>,
) -> DetachSandboxProviderResponse {
    DetachSandboxProviderResponse { sandbox: Some(view::sandbox(row)), detached, receipt }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn decide(row: row::Sandbox) -> Result<Decision, Refusal> {
        decide_with(row, None)
    }

    fn decide_with(row: row::Sandbox, receipt: Option<row::ProviderReceipt>) -> Result<Decision, Refusal> {
        let providers = vec![sample::provider("p", &["A"])];
        let loaded = Loaded { providers, sandboxes: vec![row], receipt, ..sample::in_workspace() };
        let request = DetachSandboxProviderRequest { sandbox: "s".into(), provider: "p".into(), ..Default::default() };
        request.decide(&loaded, &World::user().context())
    }

    #[test]
    fn a_detachment_gives_a_new_epoch() {
        let before = row::Sandbox { providers: vec!["q".into(), "p".into()], ..sample::sandbox("s") };
        let decision = decide(before.clone()).unwrap();
        let [Write::UpdateSandbox(row), Write::Detach { .. }, Write::InsertReceipts(_)] = decision.writes.as_slice()
        else {
            panic!("{:?}", decision.writes)
        };
        assert_ne!(row.attachment_epoch, before.attachment_epoch);
        assert_eq!(row.providers, ["q"]);
    }

    #[test]
    fn what_is_not_attached_leaves_a_receipt_once_and_nothing_else() {
        let decision = decide(sample::sandbox("s")).unwrap();
        let [Write::InsertReceipts(kept)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        let again = decide_with(sample::sandbox("s"), Some(kept[0].clone())).unwrap();
        assert!(again.writes.is_empty(), "{:?}", again.writes);
    }
}
