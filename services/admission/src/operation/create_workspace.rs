//! `CreateWorkspace`.

use bytes::Bytes;
use roadstead_proto::api::v1::{CreateWorkspaceRequest, CreateWorkspaceResponse};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Locks, Write};
use roadstead_store::{row, view};

use super::{Decision, Operation};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::{label, name};

impl Operation for CreateWorkspaceRequest {
    fn address(&self) -> Address<'_> {
        Address::Target(&self.name)
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::label("name", &self.name)?;
        label::labels(&self.labels)?;
        Ok(locks)
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        if loaded.workspace.is_some() {
            return Err(Refusal::already_exists(Object::Workspace, &self.name));
        }
        let row = row::Workspace {
            id: context.ids.fresh(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            resource_version: 1,
            created_at: loaded.now,
            terminating_since: None,
        };
        let receipt = replay::object(row.id, row.resource_version);
        let response = response(&row);
        Ok(Decision::new(vec![Write::InsertWorkspace(row)], &response, receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let row = loaded.workspace.as_ref()?;
        replay::same_version(receipt, row.id, row.resource_version)?;
        Some(replay::encoded(&response(row)))
    }
}

fn response(row: &row::Workspace) -> CreateWorkspaceResponse {
    CreateWorkspaceResponse { workspace: Some(view::workspace(row)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn request(name: &str) -> CreateWorkspaceRequest {
        CreateWorkspaceRequest { name: name.into(), ..Default::default() }
    }

    #[test]
    fn a_new_workspace_is_active_at_version_one() {
        let world = World::admin();
        let decision = request("w").decide(&sample::nothing(), &world.context()).unwrap();
        let [Write::InsertWorkspace(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((row.name.as_str(), row.resource_version, row.terminating_since), ("w", 1, None));
        let loaded = Loaded { workspace: Some(row.clone()), ..sample::nothing() };
        assert_eq!(
            request("w")
                .replay(&decision.receipt, &loaded, &World::user().context())
                .map(super::super::Reply::Response),
            Some(decision.reply)
        );
    }

    #[test]
    fn a_taken_name_is_refused() {
        let loaded = Loaded { workspace: Some(sample::workspace("w")), ..sample::nothing() };
        let refused = request("w").decide(&loaded, &World::admin().context()).unwrap_err();
        assert!(matches!(refused, Refusal::AlreadyExists { object: Object::Workspace, .. }));
    }

    #[test]
    fn a_namesake_or_another_version_is_not_shown_for_the_original() {
        let row = sample::workspace("w");
        let loaded = Loaded { workspace: Some(row.clone()), ..sample::nothing() };
        for receipt in [replay::object(row.id, 2), replay::object(uuid::Uuid::from_u128(99), 1)] {
            assert_eq!(request("w").replay(&receipt, &loaded, &World::user().context()), None);
        }
        assert_eq!(request("w").replay(&replay::object(row.id, 1), &sample::nothing(), &World::user().context()), None);
    }

    #[test]
    fn names_and_labels_are_checked() {
        let world = World::admin();
        assert!(request("a--b").plan(Locks::default(), &world.context()).is_err());
        let labels = [("-".to_owned(), String::new())].into();
        let request = CreateWorkspaceRequest { labels, ..request("w") };
        assert!(request.plan(Locks::default(), &world.context()).is_err());
    }
}
