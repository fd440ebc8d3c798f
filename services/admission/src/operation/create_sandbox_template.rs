//! `CreateSandboxTemplate`.

use bytes::Bytes;
use roadstead_proto::api::datamodel::ObjectMeta;
use roadstead_proto::api::v1::{CreateSandboxTemplateRequest, SandboxTemplateResponse, SandboxWorkloadTemplateSpec};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{ByName, Loaded, Lock, Locks, Reads, Write};
use roadstead_store::{row, view};

use super::{Decision, Operation, workspace};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::{label, name, workload_template};

impl Operation for CreateSandboxTemplateRequest {
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
        let (metadata, spec) = asked(self)?;
        name::label("template.metadata.name", &metadata.name)?;
        let of_scope = |known: &ByName| metadata.workspace == known.name;
        if !metadata.workspace.is_empty() && !locks.workspace.as_ref().is_some_and(of_scope) {
            return Err(Refusal::invalid("template.metadata.workspace", "must be empty or the selected workspace"));
        }
        label::labels(&metadata.labels)?;
        label::annotations(&metadata.annotations)?;
        workload_template::spec(spec)?;
        // Additions to one workspace wait for each other, so that its count is exact.
        let workspace = locks.workspace.map(|workspace| ByName { lock: Lock::Update, ..workspace });
        let template = Some(ByName { name: metadata.name.clone(), lock: Lock::Share });
        let reads = Reads { template_count: true, ..locks.reads };
        Ok(Locks { workspace, template, reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let workspace = workspace(loaded)?;
        let (metadata, spec) = asked(self)?;
        if loaded.template.is_some() {
            return Err(Refusal::already_exists(Object::Template, &metadata.name));
        }
        let limit = context.rules.templates_per_workspace;
        if loaded.template_count >= limit {
            return Err(Refusal::Exhausted(format!("a workspace has at most {limit} templates; delete some first")));
        }
        let row = row::WorkloadTemplate {
            id: context.ids.fresh(),
            workspace_id: workspace.id,
            workspace_name: workspace.name.clone(),
            name: metadata.name.clone(),
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.clone(),
            resource_version: 1,
            created_at: loaded.now,
            spec: spec.clone(),
        };
        let receipt = replay::object(row.id, row.resource_version);
        let response = response(&row);
        Ok(Decision::new(vec![Write::InsertTemplate(row)], &response, receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let row = loaded.template.as_ref()?;
        replay::same_version(receipt, row.id, row.resource_version)?;
        Some(replay::encoded(&response(row)))
    }
}

/// The two parts of a template, which both have to be there.
fn asked(request: &CreateSandboxTemplateRequest) -> Result<(&ObjectMeta, &SandboxWorkloadTemplateSpec), Refusal> {
    let template = request.template.as_ref().ok_or_else(|| Refusal::invalid("template", "required"))?;
    let metadata = template.metadata.as_ref().ok_or_else(|| Refusal::invalid("template.metadata.name", "required"))?;
    let spec = template.spec.as_ref().ok_or_else(|| Refusal::invalid("template.spec.workload", "required"))?;
    Ok((metadata, spec))
}

fn response(row: &row::WorkloadTemplate) -> SandboxTemplateResponse {
    SandboxTemplateResponse { template: Some(view::template(row)) }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::{SandboxWorkloadConfig, SandboxWorkloadTemplate};

    use super::*;
    use crate::sample::{self, World};

    fn request(name: &str, workspace: &str) -> CreateSandboxTemplateRequest {
        let metadata = ObjectMeta { name: name.into(), workspace: workspace.into(), ..Default::default() };
        let workload = Some(SandboxWorkloadConfig { image: "image".into(), ..Default::default() });
        let spec = Some(SandboxWorkloadTemplateSpec { workload, ..Default::default() });
        let template = Some(SandboxWorkloadTemplate { metadata: Some(metadata), spec });
        CreateSandboxTemplateRequest { template, ..Default::default() }
    }

    fn plan(request: &CreateSandboxTemplateRequest) -> Result<Locks, Refusal> {
        let workspace = Some(ByName { name: "w".into(), lock: Lock::Share });
        request.plan(Locks { workspace, ..Default::default() }, &World::user().context())
    }

    fn decide(loaded: &Loaded) -> Result<Decision, Refusal> {
        request("t", "").decide(loaded, &World::user().context())
    }

    #[test]
    fn a_template_is_kept_as_it_was_given() {
        let decision = decide(&sample::in_workspace()).unwrap();
        let [Write::InsertTemplate(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((row.name.as_str(), row.workspace_name.as_str(), row.resource_version), ("t", "w", 1));
        assert_eq!(row.spec.workload.as_ref().unwrap().image, "image");
    }

    #[test]
    fn a_template_is_not_made_twice_nor_past_the_limit() {
        let known = Loaded { template: Some(sample::template("t")), ..sample::in_workspace() };
        assert!(matches!(decide(&known), Err(Refusal::AlreadyExists { object: Object::Template, .. })));
        let full = Loaded { template_count: 1000, ..sample::in_workspace() };
        assert!(matches!(decide(&full), Err(Refusal::Exhausted(_))));
    }

    #[test]
    fn additions_to_one_workspace_wait_for_each_other() {
        let locks = plan(&request("t", "w")).unwrap();
        assert_eq!(locks.workspace.unwrap().lock, Lock::Update);
        assert!(locks.reads.template_count);
    }

    #[test]
    fn each_part_is_checked() {
        let part = |change: fn(&mut SandboxWorkloadTemplate)| {
            let mut request = request("t", "");
            change(request.template.as_mut().unwrap());
            request
        };
        for (bad, at) in [
            (CreateSandboxTemplateRequest::default(), "template"),
            (part(|template| template.metadata = None), "template.metadata.name"),
            (request("", ""), "template.metadata.name"),
            (request("t", "other"), "template.metadata.workspace"),
            (part(|template| template.spec = None), "template.spec.workload"),
            (part(|template| template.spec = Some(Default::default())), "template.spec.workload"),
        ] {
            assert!(matches!(plan(&bad), Err(Refusal::Invalid { field, .. }) if field == at), "{at}");
        }
    }

    #[test]
    fn a_replay_shows_the_original_only() {
        let row = sample::template("t");
        let loaded = Loaded { template: Some(row.clone()), ..sample::in_workspace() };
        let shown = |receipt: &Receipt, loaded| request("t", "").replay(receipt, loaded, &World::user().context());
        assert_eq!(shown(&replay::object(row.id, 1), &loaded), Some(replay::encoded(&response(&row))));
        assert_eq!(shown(&replay::object(sample::id_of("another"), 1), &loaded), None);
        assert_eq!(shown(&replay::object(row.id, 1), &sample::in_workspace()), None);
    }
}
