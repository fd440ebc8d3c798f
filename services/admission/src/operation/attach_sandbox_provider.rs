//! `AttachSandboxProvider`.

use bytes::Bytes;
use roadstead_policy::budget;
use roadstead_proto::api::v1::{
    AttachSandboxProviderRequest, AttachSandboxProviderResponse, ProviderMutationKind, ProviderMutationReceipt,
};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Lock, Locks, Providers, Reads, Sandboxes, Write};
use roadstead_store::{row, view};

use super::{Decision, Operation, at_version, attachment, completion, session};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Refusal, Shown};
use crate::validate::name;

impl Operation for AttachSandboxProviderRequest {
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
        session::not_deleting(before)?;
        let provider = loaded.providers.first().ok_or_else(|| {
            Refusal::precondition(format!("provider {} does not exist; create it first", Shown(&self.provider)))
        })?;
        at_version(self.expected_resource_version, before.resource_version)?;

        let kind = ProviderMutationKind::Attach;
        let mutation_id = context.ids.fresh();
        if before.providers.contains(&provider.name) {
            if let Some(standing) = attachment::standing_receipt(loaded, before, provider) {
                return Ok(decision(Vec::new(), before, false, &standing));
            }
            let receipt = attachment::receipt(kind, mutation_id, before, provider, false, loaded, context);
            return Ok(decision(vec![kept(&receipt)], before, false, &receipt));
        }
        if before.providers.len() >= budget::PROVIDERS {
            let limit = budget::PROVIDERS;
            return Err(Refusal::invalid("provider", format!("a sandbox has at most {limit} providers")));
        }
        attachment::compatible(loaded.attached_providers.iter().chain([provider]))?;

        let mut row = before.clone();
        row.providers.push(provider.name.clone());
        attachment::changed(&mut row, "attach", loaded.now, context);
        let attach = Write::Attach { sandbox_id: row.id, provider_id: provider.id };
        let mut writes = vec![session::updated(&mut row), attach];
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

fn decision(writes: Vec<Write>, row: &row::Sandbox, attached: bool, receipt: &row::ProviderReceipt) -> Decision {
    let shown = view::provider_receipt(receipt, &row.name, &row.workspace_name);
    let response = response(row, attached, Some(shown.clone()));
    Decision::new(writes, &response, replay::sandbox_now(row.id, attached, Some(shown)))
}

fn response(
    row: &row::Sandbox,
    attached: bool,
    receipt: Option<ProviderMutationReceipt>,
) -> AttachSandboxProviderResponse {
    AttachSandboxProviderResponse { sandbox: Some(view::sandbox(row)), attached, receipt }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::sample::{self, World};

    fn request() -> AttachSandboxProviderRequest {
        AttachSandboxProviderRequest { sandbox: "s".into(), provider: "p".into(), ..Default::default() }
    }

    fn found(row: row::Sandbox, attached_providers: Vec<row::Provider>) -> Loaded {
        let providers = vec![sample::provider("p", &["A"])];
        Loaded { providers, sandboxes: vec![row], attached_providers, ..sample::in_workspace() }
    }

    fn decide(request: &AttachSandboxProviderRequest, loaded: &Loaded) -> Result<Decision, Refusal> {
        request.decide(loaded, &World::user().context())
    }

    #[test]
    fn an_attachment_gives_a_new_epoch_and_a_receipt_that_names_it() {
        let before = sample::sandbox("s");
        let decision = decide(&request(), &found(before.clone(), vec![])).unwrap();
        let [Write::UpdateSandbox(row), Write::Attach { .. }, Write::InsertReceipts(receipts)] =
            decision.writes.as_slice()
        else {
            panic!("{:?}", decision.writes)
        };
        assert_ne!(row.attachment_epoch, before.attachment_epoch);
        assert_eq!(row.resource_version, before.resource_version + 1);
        let loaded = Loaded { sandboxes: vec![row.clone()], ..sample::in_workspace() };
        let (recorded, _) = replay::live_sandbox(&decision.receipt, &loaded).unwrap();
        let desired = recorded.provider_receipt.clone().unwrap().desired.unwrap();
        assert_eq!(desired.attachment_epoch, row.attachment_epoch.to_string());
        assert_eq!(receipts[0].attachment_epoch, row.attachment_epoch, "the receipt is kept");
    }

    #[test]
    fn what_is_attached_already_leaves_a_receipt_once_and_nothing_else() {
        let row = row::Sandbox { providers: vec!["p".into()], ..sample::sandbox("s") };
        let loaded = found(row, vec![sample::provider("p", &["A"])]);
        let first = decide(&request(), &loaded).unwrap();
        let [Write::InsertReceipts(kept)] = first.writes.as_slice() else { panic!("{:?}", first.writes) };
        let standing = Loaded { receipt: Some(kept[0].clone()), ..loaded.clone() };
        let again = decide(&request(), &standing).unwrap();
        assert!(again.writes.is_empty(), "{:?}", again.writes);
        let (recorded, _) = replay::live_sandbox(&again.receipt, &loaded).unwrap();
        assert_eq!(recorded.provider_receipt.clone().unwrap().receipt_id, kept[0].id.to_string());
        for other in [
            row::ProviderReceipt { provider_id: Uuid::from_u128(99), ..kept[0].clone() },
            row::ProviderReceipt { provider_version: 99, ..kept[0].clone() },
            row::ProviderReceipt { attachment_epoch: Uuid::from_u128(99), ..kept[0].clone() },
        ] {
            let decision = decide(&request(), &Loaded { receipt: Some(other), ..loaded.clone() }).unwrap();
            assert!(matches!(decision.writes.as_slice(), [Write::InsertReceipts(_)]), "it is of something else");
        }
    }

    #[test]
    fn limits_versions_and_collisions_are_kept() {
        let row = sample::sandbox("s");
        let stale = AttachSandboxProviderRequest { expected_resource_version: 9, ..request() };
        let loaded = found(row.clone(), vec![]);
        assert!(matches!(decide(&stale, &loaded), Err(Refusal::VersionConflict { current: 1 })));
        let collides = found(row.clone(), vec![sample::provider("q", &["A"])]);
        assert!(matches!(decide(&request(), &collides), Err(Refusal::Precondition(_))));
        let missing = Loaded { providers: vec![], ..found(row.clone(), vec![]) };
        assert!(matches!(decide(&request(), &missing), Err(Refusal::Precondition(_))));
        let full = row::Sandbox { providers: (0..32).map(|at| format!("q{at}")).collect(), ..row };
        assert!(matches!(decide(&request(), &found(full, vec![])), Err(Refusal::Invalid { .. })));
    }
}
