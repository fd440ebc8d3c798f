//! `DeleteSandboxTemplate`: what was made from it stays as it is.

use bytes::Bytes;
use roadstead_proto::api::v1::{DeleteSandboxTemplateRequest, DeleteSandboxTemplateResponse, DeletionOutcome};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{ByName, Loaded, Lock, Locks, Write};

use super::{Decision, Operation};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::name;

impl Operation for DeleteSandboxTemplateRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::label("name", &self.name)?;
        Ok(Locks { template: Some(ByName { name: self.name.clone(), lock: Lock::Update }), ..locks })
    }

    fn decide(&self, loaded: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        let (writes, outcome) = match &loaded.template {
            Some(row) => (vec![Write::DeleteTemplate(row.id)], DeletionOutcome::Completed),
            None if self.allow_missing => (Vec::new(), DeletionOutcome::AlreadyAbsent),
            None => return Err(Refusal::not_found(Object::Template, &self.name)),
        };
        let response = DeleteSandboxTemplateResponse { outcome: outcome.into() };
        Ok(Decision::new(writes, &response, replay::deletion(outcome)))
    }

    fn replay(&self, receipt: &Receipt, _: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let outcome = replay::recorded(receipt)?.outcome;
        Some(replay::encoded(&DeleteSandboxTemplateResponse { outcome }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn decide(allow_missing: bool, loaded: &Loaded) -> Result<Decision, Refusal> {
        let request = DeleteSandboxTemplateRequest { name: "t".into(), allow_missing, ..Default::default() };
        request.decide(loaded, &World::user().context())
    }

    #[test]
    fn a_template_goes_and_a_missing_one_is_told_apart() {
        let row = sample::template("t");
        let loaded = Loaded { template: Some(row.clone()), ..sample::in_workspace() };
        let decision = decide(false, &loaded).unwrap();
        assert!(matches!(decision.writes.as_slice(), [Write::DeleteTemplate(id)] if *id == row.id));

        let missing = decide(false, &sample::in_workspace());
        assert!(matches!(missing, Err(Refusal::NotFound { object: Object::Template, .. })));
        let absent = decide(true, &sample::in_workspace()).unwrap();
        assert!(absent.writes.is_empty());
        assert_eq!(replay::recorded(&absent.receipt).unwrap().outcome(), DeletionOutcome::AlreadyAbsent);
    }

    #[test]
    fn it_is_locked_so_that_no_sandbox_is_made_from_it_meanwhile() {
        let request = DeleteSandboxTemplateRequest { name: "t".into(), ..Default::default() };
        let locks = request.plan(Locks::default(), &World::user().context()).unwrap();
        assert!(matches!(locks.template, Some(ByName { lock: Lock::Update, .. })));
    }
}
