//! `DeleteService`.

use bytes::Bytes;
use roadstead_proto::api::v1::{DeleteServiceRequest, DeleteServiceResponse, DeletionOutcome};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};
use roadstead_store::row::service_name;

use super::session::named;
use super::{Decision, Operation, service};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::name;

impl Operation for DeleteServiceRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::label("sandbox", &self.sandbox)?;
        service::check_name("name", &self.name)?;
        let reads = Reads { services: true, ..locks.reads };
        Ok(Locks { sandboxes: Sandboxes::Named(self.sandbox.clone()), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        // Its sandbox must be there in any case: what is allowed to be missing is the service.
        named(loaded, &self.sandbox)?;
        let (writes, outcome) = match loaded.services.iter().find(|row| row.service == self.name) {
            Some(row) => (vec![Write::DeleteService(row.id)], DeletionOutcome::Completed),
            None if self.allow_missing => (Vec::new(), DeletionOutcome::AlreadyAbsent),
            None => return Err(Refusal::not_found(Object::Service, service_name(&self.sandbox, &self.name))),
        };
        let response = DeleteServiceResponse { outcome: outcome.into() };
        Ok(Decision::new(writes, &response, replay::deletion(outcome)))
    }

    fn replay(&self, receipt: &Receipt, _: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let outcome = replay::recorded(receipt)?.outcome;
        Some(replay::encoded(&DeleteServiceResponse { outcome }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn decide(allow_missing: bool, loaded: &Loaded) -> Result<Decision, Refusal> {
        let request =
            DeleteServiceRequest { sandbox: "s".into(), name: "web".into(), allow_missing, ..Default::default() };
        request.decide(loaded, &World::user().context())
    }

    #[test]
    fn a_service_goes_and_others_stay() {
        let services = vec![sample::service(""), sample::service("web")];
        let loaded = Loaded { sandboxes: vec![sample::sandbox("s")], services, ..sample::in_workspace() };
        let decision = decide(false, &loaded).unwrap();
        assert!(matches!(decision.writes.as_slice(), [Write::DeleteService(id)] if *id == sample::service("web").id));
    }

    #[test]
    fn a_missing_one_is_told_apart_and_a_missing_sandbox_is_never_hidden() {
        let loaded = Loaded { sandboxes: vec![sample::sandbox("s")], ..sample::in_workspace() };
        assert!(matches!(decide(false, &loaded), Err(Refusal::NotFound { object: Object::Service, .. })));
        assert!(decide(true, &loaded).unwrap().writes.is_empty());
        let missing = decide(true, &sample::in_workspace());
        assert!(matches!(missing, Err(Refusal::NotFound { object: Object::Sandbox, .. })));
    }
}
