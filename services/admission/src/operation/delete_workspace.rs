//! `DeleteWorkspace`: marks, looks for what is left, removes. A workspace with something left stays marked.

use bytes::Bytes;
use roadstead_proto::api::v1::{DeleteWorkspaceRequest, DeleteWorkspaceResponse, DeletionOutcome};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{ByName, Loaded, Lock, Locks, Reads, Write};

use super::{Decision, Operation, Reply};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal, Shown};
use crate::validate::name;

/// Exists from the first start and cannot be deleted.
const DEFAULT: &str = "default";

impl Operation for DeleteWorkspaceRequest {
    fn address(&self) -> Address<'_> {
        Address::Target(&self.name)
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::given("name", &self.name)?;
        if self.name == DEFAULT {
            return Err(Refusal::precondition("the workspace 'default' cannot be deleted"));
        }
        let workspace = ByName { name: self.name.clone(), lock: Lock::Update };
        Ok(Locks { workspace: Some(workspace), reads: Reads { blockers: true, ..locks.reads }, ..locks })
    }

    fn decide(&self, loaded: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        let Some(row) = &loaded.workspace else {
            if self.allow_missing {
                return Ok(decision(Vec::new(), DeletionOutcome::AlreadyAbsent));
            }
            return Err(Refusal::not_found(Object::Workspace, &self.name));
        };
        if loaded.blockers.is_empty() {
            return Ok(decision(vec![Write::DeleteWorkspace(row.id)], DeletionOutcome::Completed));
        }
        let kinds = loaded.blockers.join(", ");
        let refusal = Refusal::precondition(format!(
            "workspace {} still contains resources ({kinds}); delete them, then delete it again",
            Shown(&row.name)
        ));
        if row.terminating_since.is_some() {
            return Err(refusal);
        }
        let marked = roadstead_store::row::Workspace {
            terminating_since: Some(loaded.now),
            resource_version: row.resource_version + 1,
            ..row.clone()
        };
        let writes = vec![Write::UpdateWorkspace(marked)];
        Ok(Decision { writes, reply: Reply::Refusal(refusal), receipt: Receipt::default() })
    }

    fn replay(&self, receipt: &Receipt, _: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let outcome = replay::recorded(receipt)?.outcome;
        Some(replay::encoded(&DeleteWorkspaceResponse { outcome }))
    }
}

fn decision(writes: Vec<Write>, outcome: DeletionOutcome) -> Decision {
    let response = DeleteWorkspaceResponse { outcome: outcome.into() };
    Decision::new(writes, &response, replay::deletion(outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn request(allow_missing: bool) -> DeleteWorkspaceRequest {
        DeleteWorkspaceRequest { name: "w".into(), allow_missing, ..Default::default() }
    }

    fn decide(allow_missing: bool, loaded: &Loaded) -> Result<Decision, Refusal> {
        request(allow_missing).decide(loaded, &World::admin().context())
    }

    fn outcome(decision: &Decision) -> DeletionOutcome {
        replay::recorded(&decision.receipt).unwrap().outcome()
    }

    #[test]
    fn an_empty_workspace_goes() {
        let loaded = Loaded { workspace: Some(sample::workspace("w")), ..sample::nothing() };
        let decision = decide(false, &loaded).unwrap();
        assert!(matches!(decision.writes.as_slice(), [Write::DeleteWorkspace(_)]));
        assert_eq!(outcome(&decision), DeletionOutcome::Completed);
    }

    #[test]
    fn a_missing_one_is_told_apart() {
        assert!(matches!(decide(false, &sample::nothing()), Err(Refusal::NotFound { .. })));
        assert_eq!(outcome(&decide(true, &sample::nothing()).unwrap()), DeletionOutcome::AlreadyAbsent);
    }

    #[test]
    fn a_blocked_one_is_marked_once_and_refused() {
        let mut workspace = sample::workspace("w");
        let blockers = vec!["provider".to_owned(), "sandbox".to_owned()];
        let loaded = Loaded { workspace: Some(workspace.clone()), blockers, ..sample::nothing() };
        let decision = decide(false, &loaded).unwrap();
        let [Write::UpdateWorkspace(marked)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((marked.terminating_since, marked.resource_version), (Some(loaded.now), 2));
        let Reply::Refusal(refusal) = decision.reply else { panic!("told a success") };
        assert!(refusal.to_string().contains("still contains resources (provider, sandbox)"));

        workspace.terminating_since = Some(loaded.now);
        let loaded = Loaded { workspace: Some(workspace), ..loaded };
        assert!(matches!(decide(false, &loaded), Err(Refusal::Precondition(_))));
    }

    #[test]
    fn the_default_workspace_stays() {
        let request = DeleteWorkspaceRequest { name: DEFAULT.into(), ..Default::default() };
        let refused = request.plan(Locks::default(), &World::admin().context());
        assert!(matches!(refused, Err(Refusal::Precondition(_))));
    }
}
