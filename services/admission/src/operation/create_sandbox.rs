//! `CreateSandbox`.

mod exposures;
mod workload;

use std::collections::BTreeSet;

use bytes::Bytes;
use roadstead_policy::{canonical, check};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, PolicyStatus, SandboxPhase, SandboxResponse, SandboxRestartPolicy, SandboxSpec, SandboxStatus,
};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Lock, Locks, Providers, Reads, Sandboxes, Write};
use roadstead_store::{row, view};

use super::{Decision, Operation, attachment, fits, session, workspace};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::name::coined;
use crate::phase::{self, Why};
use crate::refusal::{Object, Refusal, Shown};
use crate::validate::{label, name, sandbox_spec};

impl Operation for CreateSandboxRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn creates(&self) -> bool {
        true
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        if self.await_main_process_attachment {
            // To take in silence what is not served would be a lie.
            return Err(Refusal::Unserved("await_main_process_attachment"));
        }
        let spec = workload::asked(self)?;
        let name = name_of(self, context);
        name::label("name", &name)?;
        label::labels(&self.labels)?;
        label::annotations(&self.annotations)?;
        sandbox_spec::sandbox_spec(&spec)?;
        exposures::check(&self.service_exposures)?;
        if let Some(policy) = &spec.policy {
            let attached: BTreeSet<String> = spec.providers.iter().cloned().collect();
            check::policy(policy, check::Scope::Sandbox { attached: &attached })?;
        }
        let providers = match spec.providers.as_slice() {
            [] => Providers::None,
            names => Providers::Named(names.to_vec(), Lock::Share),
        };
        let template = workload::template(self);
        // For a replay, which shows where they are reached.
        let reads = Reads { services: !self.service_exposures.is_empty(), ..locks.reads };
        Ok(Locks { template, providers, sandboxes: Sandboxes::Named(name), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let name = name_of(self, context);
        if !loaded.sandboxes.is_empty() {
            return Err(Refusal::already_exists(Object::Sandbox, name));
        }
        let spec = workload::resolved(self, loaded)?;
        let providers = resolved(&spec.providers, loaded)?;
        attachment::compatible(providers.iter().copied())?;

        let row = new_row(self, name, &spec, loaded, context)?;
        fits(&row)?;
        let services = exposures::rows(&self.service_exposures, &row, context)?;
        let mut writes = vec![Write::InsertSandbox(row.clone())];
        writes.extend(providers.iter().map(|provider| Write::Attach { sandbox_id: row.id, provider_id: provider.id }));
        writes.extend(row.spec.policy.as_ref().map(|policy| {
            Write::InsertPolicyRevision(row::PolicyRevision {
                scope: Some(row.id),
                version: 1,
                hash: canonical::hash(policy),
                policy: policy.clone(),
                status: PolicyStatus::Loaded,
                load_error: String::new(),
                created_at: loaded.now,
                loaded_at: Some(loaded.now),
                provenance: row::Pairs::new(),
            })
        }));
        let response = response(&row, &services, context);
        writes.extend(services.into_iter().map(Write::InsertService));
        let receipt = replay::sandbox_now(row.id, true, None);
        Ok(Decision::new(writes, &response, receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, context: &Context<'_>) -> Option<Bytes> {
        let (_, row) = replay::live_sandbox(receipt, loaded)?;
        let services = exposures::of(&self.service_exposures, &loaded.services);
        Some(replay::encoded(&response(row, services, context)))
    }
}

fn name_of(request: &CreateSandboxRequest, context: &Context<'_>) -> String {
    if request.name.is_empty() { coined(&context.naming) } else { request.name.clone() }
}

/// The named providers, in the order of their names in the request.
fn resolved<'a>(names: &[String], loaded: &'a Loaded) -> Result<Vec<&'a row::Provider>, Refusal> {
    let find =
        |name: &String| {
            loaded.providers.iter().find(|provider| provider.name == *name).ok_or_else(|| {
                Refusal::precondition(format!("provider {} does not exist; create it first", Shown(name)))
            })
        };
    names.iter().map(find).collect()
}

fn new_row(
    request: &CreateSandboxRequest,
    name: String,
    asked: &SandboxSpec,
    loaded: &Loaded,
    context: &Context<'_>,
) -> Result<row::Sandbox, Refusal> {
    let workspace = workspace(loaded)?;
    let mut row = row::Sandbox {
        id: context.ids.fresh(),
        workspace_id: workspace.id,
        workspace_name: workspace.name.clone(),
        name,
        labels: request.labels.clone(),
        annotations: request.annotations.clone(),
        resource_version: 1,
        created_at: loaded.now,
        deletion_at: None,
        spec: completed(asked, context),
        created_from: loaded.template.as_ref().map(workload::provenance),
        status: SandboxStatus::default(),
        phase: SandboxPhase::Provisioning,
        current_policy_version: 0,
        attachment_epoch: context.ids.fresh(),
        generation: 0,
        deadline: None,
        refused_content: String::new(),
        configuration_instance_id: String::new(),
        session: None,
        providers: asked.providers.clone(),
    };
    phase::begin(&mut row, "initial", session::at(loaded, context));
    phase::say(&mut row.status, Why::SupervisorNotConnected, loaded.now);
    Ok(row)
}

/// The specification with what the server sets; attachments are kept beside it.
fn completed(asked: &SandboxSpec, context: &Context<'_>) -> SandboxSpec {
    let mut spec = asked.clone();
    spec.providers.clear();
    spec.provider_attachment_epoch.clear();
    spec.policy = spec.policy.map(canonical::authored);
    if spec.restart_policy() == SandboxRestartPolicy::Unspecified {
        spec.set_restart_policy(SandboxRestartPolicy::Never);
    }
    let template = spec.template.get_or_insert_default();
    if template.image.is_empty() {
        template.image.clone_from(&context.rules.default_image);
    }
    // Without a command it is a shell for somebody to sit at.
    spec.tty |= spec.command.is_empty();
    spec
}

fn response<'a>(
    row: &row::Sandbox,
    services: impl IntoIterator<Item = &'a row::ServiceEndpoint>,
    context: &Context<'_>,
) -> SandboxResponse {
    SandboxResponse { sandbox: Some(view::sandbox(row)), service_urls: exposures::urls(services, context) }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
    use roadstead_proto::api::v1::{ConfigurationAdmissionState, SandboxServiceExposure};

    use prost::Message as _;
    use roadstead_store::mutation::{ByName, Lock};

    use super::*;
    use crate::operation::Reply;
    use crate::sample::{self, World};

    fn request(spec: SandboxSpec) -> CreateSandboxRequest {
        CreateSandboxRequest { name: "s".into(), spec: Some(spec), ..Default::default() }
    }

    fn decide(request: &CreateSandboxRequest, loaded: &Loaded) -> Result<Decision, Refusal> {
        request.decide(loaded, &World::user().context())
    }

    fn inserted(decision: &Decision) -> &row::Sandbox {
        match decision.writes.first() {
            Some(Write::InsertSandbox(row)) => row,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_sandbox_waits_for_its_supervisor_within_a_window() {
        let decision = decide(&request(SandboxSpec::default()), &sample::in_workspace()).unwrap();
        let row = inserted(&decision);
        assert_eq!((row.phase, row.resource_version, row.generation), (SandboxPhase::Provisioning, 1, 1));
        assert_eq!(row.deadline, Some(sample::NOW + World::user().rules.provisioning_window));
        let status = &row.status;
        assert_eq!(status.configuration_activated, Some(false));
        let admission = status.configuration_admission.clone().unwrap_or_default();
        assert_eq!(admission.state(), ConfigurationAdmissionState::Pending);
        assert!(status.provisioning.as_ref().unwrap().configuration_change_id.starts_with("initial:"));
        assert_eq!(status.conditions[0].reason, "SupervisorNotConnected");
    }

    #[test]
    fn what_is_left_out_is_completed_and_what_belongs_elsewhere_is_taken_out() {
        let spec =
            SandboxSpec { providers: vec!["p".into()], provider_attachment_epoch: "mine".into(), ..Default::default() };
        let loaded = Loaded { providers: vec![sample::provider("p", &["A"])], ..sample::in_workspace() };
        let decision = decide(&request(spec), &loaded).unwrap();
        let row = inserted(&decision);
        assert_eq!(row.spec.restart_policy(), SandboxRestartPolicy::Never);
        assert_eq!(row.spec.template.as_ref().unwrap().image, World::user().rules.default_image);
        assert!(row.spec.tty && row.spec.providers.is_empty() && row.spec.provider_attachment_epoch.is_empty());
        assert_eq!(row.providers, ["p"]);
        assert!(matches!(decision.writes.as_slice(), [Write::InsertSandbox(_), Write::Attach { .. }]));
    }

    #[test]
    fn a_missing_provider_and_two_that_collide_are_preconditions() {
        let spec = SandboxSpec { providers: vec!["p".into(), "q".into()], ..Default::default() };
        let one = Loaded { providers: vec![sample::provider("p", &["A"])], ..sample::in_workspace() };
        let refused = decide(&request(spec.clone()), &one).unwrap_err();
        assert!(matches!(&refused, Refusal::Precondition(text) if text.contains("'q'")), "{refused}");
        let providers = vec![sample::provider("p", &["A"]), sample::provider("q", &["A"])];
        let both = Loaded { providers, ..sample::in_workspace() };
        assert!(matches!(decide(&request(spec), &both), Err(Refusal::Precondition(_))));
    }

    #[test]
    fn a_policy_becomes_the_first_revision() {
        let policy = Some(SandboxPolicy { version: 1, ..Default::default() });
        let decision = decide(&request(SandboxSpec { policy, ..Default::default() }), &sample::in_workspace()).unwrap();
        let Some(Write::InsertPolicyRevision(revision)) = decision.writes.last() else { panic!("no revision") };
        assert_eq!((revision.version, revision.status), (1, PolicyStatus::Loaded));
        assert_eq!(revision.scope, Some(inserted(&decision).id));
    }

    #[test]
    fn a_taken_name_is_refused_and_a_missing_one_is_coined_the_same_each_time() {
        let taken = Loaded { sandboxes: vec![sample::sandbox("s")], ..sample::in_workspace() };
        let refused = decide(&request(SandboxSpec::default()), &taken).unwrap_err();
        assert!(matches!(refused, Refusal::AlreadyExists { object: Object::Sandbox, .. }));

        let nameless = CreateSandboxRequest { name: String::new(), ..request(SandboxSpec::default()) };
        let world = World::user();
        let locks = nameless.plan(Locks::default(), &world.context()).unwrap();
        let Sandboxes::Named(planned) = locks.sandboxes else { panic!("no name") };
        assert_eq!(inserted(&decide(&nameless, &sample::in_workspace()).unwrap()).name, planned);
    }

    #[test]
    fn a_sandbox_from_a_template_says_so() {
        let request =
            CreateSandboxRequest { workload_template: "t".into(), spec: None, ..request(SandboxSpec::default()) };
        let locks = request.plan(Locks::default(), &World::user().context()).unwrap();
        assert!(matches!(locks.template, Some(ByName { lock: Lock::Share, .. })));
        let loaded = Loaded { template: Some(sample::template("t")), ..sample::in_workspace() };
        let decision = decide(&request, &loaded).unwrap();
        let row = inserted(&decision);
        let provenance = row.created_from.clone().unwrap();
        assert_eq!((provenance.name.as_str(), provenance.resource_version.as_str()), ("t", "1"));
        assert_eq!(row.spec.template.as_ref().unwrap().image, World::user().rules.default_image);
        let missing = decide(&request, &sample::in_workspace()).unwrap_err();
        assert!(matches!(missing, Refusal::NotFound { object: Object::Template, .. }));
    }

    #[test]
    fn exposed_services_are_made_with_it_and_shown_again_while_they_stand() {
        let exposure =
            |service: &str| SandboxServiceExposure { service: service.into(), target_port: 8080, ..Default::default() };
        let request = CreateSandboxRequest {
            service_exposures: vec![exposure(""), exposure("web")],
            ..request(SandboxSpec::default())
        };
        let world = World::user();
        let decision = request.decide(&sample::in_workspace(), &world.context()).unwrap();
        let [Write::InsertSandbox(row), Write::InsertService(unnamed), Write::InsertService(web)] =
            decision.writes.as_slice()
        else {
            panic!("{:?}", decision.writes)
        };
        assert_eq!((unnamed.name().as_str(), web.name().as_str()), ("s", "s--web"));
        assert_eq!((unnamed.sandbox_id, web.sandbox_id), (row.id, row.id));
        let names = |body: &Bytes| {
            let response = SandboxResponse::decode(body.clone()).unwrap();
            response.service_urls.into_keys().collect::<Vec<_>>()
        };
        let Reply::Response(body) = &decision.reply else { panic!("{:?}", decision.reply) };
        assert_eq!(names(body), ["", "web"]);

        // One was deleted since, and one came by itself.
        let services = vec![sample::service("another"), web.clone()];
        let loaded = Loaded { sandboxes: vec![row.clone()], services, ..sample::in_workspace() };
        let shown = request.replay(&decision.receipt, &loaded, &world.context()).unwrap();
        assert_eq!(names(&shown), ["web"]);
    }

    #[test]
    fn what_is_not_served_is_said_and_not_ignored() {
        let base = || request(SandboxSpec::default());
        let plan =
            |request: CreateSandboxRequest| request.plan(Locks::default(), &World::user().context()).unwrap_err();
        let request = CreateSandboxRequest { await_main_process_attachment: true, ..base() };
        assert!(matches!(plan(request), Refusal::Unserved(_)));
    }

    #[test]
    fn reserved_rules_and_missing_specifications_are_invalid() {
        let rule = NetworkPolicyRule { endpoints: vec![NetworkEndpoint::default()], ..Default::default() };
        let policy =
            Some(SandboxPolicy { network_policies: [("_provider_x".to_owned(), rule)].into(), ..Default::default() });
        for request in [request(SandboxSpec { policy, ..Default::default() }), CreateSandboxRequest::default()] {
            let plan = request.plan(Locks::default(), &World::user().context());
            assert!(matches!(plan, Err(Refusal::Invalid { .. })));
        }
    }
}
