//! `ExposeService`: makes a service of a sandbox, or changes it.

use bytes::Bytes;
use roadstead_proto::api::v1::ExposeServiceRequest;
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};
use roadstead_store::row;

use super::service::{self, PER_SANDBOX, Target};
use super::session::{named, not_deleting};
use super::{Decision, Operation};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::Refusal;
use crate::validate::name;

impl Operation for ExposeServiceRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn creates(&self) -> bool {
        true
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::label("sandbox", &self.sandbox)?;
        service::check_name("name", &self.name)?;
        target(self)?;
        let reads = Reads { services: true, ..locks.reads };
        Ok(Locks { sandboxes: Sandboxes::Named(self.sandbox.clone()), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let sandbox = named(loaded, &self.sandbox)?;
        not_deleting(sandbox)?;
        let target = target(self)?;
        let known = loaded.services.iter().find(|row| row.service == self.name);
        let (row, write): (_, fn(_) -> _) = match known {
            Some(known) => (changed(known, target), Write::UpdateService),
            None if loaded.services.len() >= PER_SANDBOX => {
                let problem = format!("a sandbox has at most {PER_SANDBOX} services; delete some first");
                return Err(Refusal::Exhausted(problem));
            }
            None => {
                let id = context.ids.fresh();
                (service::new(id, sandbox, &self.name, target, loaded.now), Write::InsertService)
            }
        };
        let url = context.rules.service_urls.url(&row.workspace_name, &row.sandbox_name, &row.service);
        let receipt = replay::service_exposed(&row, url.clone());
        let response = service::response(&row, url);
        Ok(Decision::new(vec![write(row)], &response, receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let (exposed, row) = replay::same_service(receipt, loaded)?;
        Some(replay::encoded(&service::response(row, exposed.url.clone())))
    }
}

fn target(request: &ExposeServiceRequest) -> Result<Target, Refusal> {
    Target::read("", request.target_port, request.authorization_mode)
}

/// The next version, with everything that tells it apart.
fn changed(known: &row::ServiceEndpoint, target: Target) -> row::ServiceEndpoint {
    row::ServiceEndpoint {
        target_port: target.port,
        authorization_mode: target.mode,
        resource_version: known.resource_version + 1,
        ..known.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Object;
    use crate::sample::{self, World};

    fn request(name: &str) -> ExposeServiceRequest {
        ExposeServiceRequest { sandbox: "s".into(), name: name.into(), target_port: 80, ..Default::default() }
    }

    fn found(services: Vec<row::ServiceEndpoint>) -> Loaded {
        Loaded { sandboxes: vec![sample::sandbox("s")], services, ..sample::in_workspace() }
    }

    fn decide(name: &str, loaded: &Loaded) -> Result<Decision, Refusal> {
        request(name).decide(loaded, &World::user().context())
    }

    #[test]
    fn a_new_service_is_of_the_sandbox_and_at_version_one() {
        let decision = decide("web", &found(Vec::new())).unwrap();
        let [Write::InsertService(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((row.name().as_str(), row.target_port, row.resource_version), ("s--web", 80, 1));
        assert_eq!(row.sandbox_id, sample::sandbox("s").id);
    }

    #[test]
    fn one_that_is_there_is_changed_and_stays_the_same_object() {
        let known = sample::service("web");
        let decision = decide("web", &found(vec![sample::service(""), known.clone()])).unwrap();
        let [Write::UpdateService(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!(
            (row.id, row.created_at, row.resource_version, row.target_port),
            (known.id, known.created_at, 2, 80)
        );
    }

    #[test]
    fn a_sandbox_must_be_there_and_stay() {
        let missing = decide("web", &sample::in_workspace()).unwrap_err();
        assert!(matches!(missing, Refusal::NotFound { object: Object::Sandbox, .. }));
        let going = row::Sandbox { deletion_at: Some(sample::NOW), ..sample::sandbox("s") };
        let loaded = Loaded { sandboxes: vec![going], ..sample::in_workspace() };
        assert!(matches!(decide("web", &loaded), Err(Refusal::Precondition(_))));
    }

    #[test]
    fn a_sandbox_has_so_many_services_and_no_more() {
        let services: Vec<_> = (0..PER_SANDBOX).map(|at| sample::service(&format!("web-{at}"))).collect();
        let loaded = found(services);
        assert!(matches!(decide("one-more", &loaded), Err(Refusal::Exhausted(_))));
        assert!(decide("web-0", &loaded).is_ok());
    }

    #[test]
    fn a_replay_shows_the_recorded_version_of_a_service_whose_sandbox_lives() {
        let world = World::user();
        let row = sample::service("web");
        let receipt = replay::service_exposed(&row, "https://told/".into());
        let shown = |loaded: &Loaded| request("web").replay(&receipt, loaded, &world.context());
        assert_eq!(
            shown(&found(vec![row.clone()])),
            Some(replay::encoded(&service::response(&row, "https://told/".into())))
        );
        assert_eq!(shown(&found(Vec::new())), None);
        let changed = row::ServiceEndpoint { resource_version: 2, ..row.clone() };
        assert_eq!(shown(&found(vec![changed])), None);
        let orphan = Loaded { sandboxes: Vec::new(), ..found(vec![row]) };
        assert_eq!(shown(&orphan), None);
    }

    #[test]
    fn each_part_is_checked() {
        let plan = |request: ExposeServiceRequest| request.plan(Locks::default(), &World::user().context());
        assert!(plan(request("")).is_ok());
        for bad in [
            ExposeServiceRequest { sandbox: String::new(), ..request("web") },
            request("a--b"),
            ExposeServiceRequest { target_port: 0, ..request("web") },
            ExposeServiceRequest { authorization_mode: 9, ..request("web") },
        ] {
            assert!(matches!(plan(bad), Err(Refusal::Invalid { .. })));
        }
    }
}
