//! A sandbox from a workload template: which parts of its specification are the template's, and which the request's.

use std::borrow::Cow;
use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, ResourceRequirements, SandboxResources, SandboxSpec, SandboxTemplate,
    SandboxWorkloadTemplateProvenance,
};
use roadstead_store::mutation::{ByName, Loaded, Lock};
use roadstead_store::row;

use crate::refusal::{Object, Refusal};
use crate::validate::name;

/// What the request itself says: all of it, or what a template leaves open.
///
/// # Errors
/// `Invalid` if there is neither a specification nor a template, or if both say the same.
pub(super) fn asked(request: &CreateSandboxRequest) -> Result<Cow<'_, SandboxSpec>, Refusal> {
    if request.workload_template.is_empty() {
        return request.spec.as_ref().map(Cow::Borrowed).ok_or_else(|| Refusal::invalid("spec", "required"));
    }
    name::label("workload_template", &request.workload_template)?;
    let Some(spec) = &request.spec else { return Ok(Cow::default()) };
    for (field, is_set) in [
        ("spec.log_level", !spec.log_level.is_empty()),
        ("spec.environment", !spec.environment.is_empty()),
        ("spec.template", spec.template.is_some()),
        ("spec.resource_requirements", spec.resource_requirements.is_some()),
    ] {
        if is_set {
            return Err(Refusal::invalid(field, "must be left out: the workload template decides it"));
        }
    }
    Ok(Cow::Borrowed(spec))
}

/// The template to resolve. Nobody may delete it meanwhile.
pub(super) fn template(request: &CreateSandboxRequest) -> Option<ByName> {
    let name = &request.workload_template;
    (!name.is_empty()).then(|| ByName { name: name.clone(), lock: Lock::Share })
}

/// The whole specification.
///
/// # Errors
/// `NotFound` if there is no such template.
pub(super) fn resolved<'a>(
    request: &'a CreateSandboxRequest,
    loaded: &Loaded,
) -> Result<Cow<'a, SandboxSpec>, Refusal> {
    let asked = asked(request)?;
    if request.workload_template.is_empty() {
        return Ok(asked);
    }
    let template = loaded.template.as_ref();
    let template = template.ok_or_else(|| Refusal::not_found(Object::Template, &request.workload_template))?;
    Ok(Cow::Owned(applied(template, asked.into_owned())))
}

/// What a sandbox keeps of where it came from.
pub(super) fn provenance(template: &row::WorkloadTemplate) -> SandboxWorkloadTemplateProvenance {
    SandboxWorkloadTemplateProvenance {
        name: template.name.clone(),
        resource_version: template.resource_version.to_string(),
    }
}

fn applied(template: &row::WorkloadTemplate, asked: SandboxSpec) -> SandboxSpec {
    let workload = template.spec.workload.clone().unwrap_or_default();
    let resources = workload.resources.unwrap_or_default();
    SandboxSpec {
        environment: workload.environment,
        template: Some(SandboxTemplate {
            image: workload.image,
            resources: limits(&resources),
            driver_config: template.spec.driver_config.clone(),
            ..Default::default()
        }),
        resource_requirements: resources.gpu.map(|gpu| ResourceRequirements { gpu: Some(gpu) }),
        ..asked
    }
}

/// Processor and memory as whatever runs the sandbox reads them.
fn limits(resources: &SandboxResources) -> Option<Struct> {
    let value = |kind| Value { kind: Some(kind) };
    let named = [("cpu", &resources.cpu), ("memory", &resources.memory)];
    let fields: BTreeMap<_, _> = named
        .into_iter()
        .filter(|(_, amount)| !amount.is_empty())
        .map(|(name, amount)| (name.to_owned(), value(Kind::StringValue(amount.clone()))))
        .collect();
    if fields.is_empty() {
        return None;
    }
    let limits = value(Kind::StructValue(Struct { fields }));
    Some(Struct { fields: [("limits".to_owned(), limits)].into() })
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::{GpuResourceRequirements, SandboxWorkloadConfig};

    use super::*;
    use crate::sample;

    fn from_template(spec: Option<SandboxSpec>) -> CreateSandboxRequest {
        CreateSandboxRequest { workload_template: "t".into(), spec, ..Default::default() }
    }

    fn full() -> row::WorkloadTemplate {
        let mut row = sample::template("t");
        row.spec.workload = Some(SandboxWorkloadConfig {
            image: "image".into(),
            environment: [("A".into(), "1".into())].into(),
            resources: Some(SandboxResources {
                cpu: "2".into(),
                memory: "1Gi".into(),
                gpu: Some(GpuResourceRequirements { count: Some(1) }),
            }),
        });
        row.spec.driver_config = Some(Struct::default());
        row
    }

    fn text<'a>(of: &'a Struct, path: &[&str]) -> Option<&'a str> {
        let (first, rest) = path.split_first()?;
        match of.fields.get(*first)?.kind.as_ref()? {
            Kind::StringValue(found) if rest.is_empty() => Some(found),
            Kind::StructValue(inner) => text(inner, rest),
            _ => None,
        }
    }

    #[test]
    fn the_template_decides_the_workload_and_the_request_the_rest() {
        let asked = SandboxSpec { command: vec!["run".into()], tty: true, ..Default::default() };
        let loaded = Loaded { template: Some(full()), ..sample::in_workspace() };
        let request = from_template(Some(asked));
        let spec = resolved(&request, &loaded).unwrap();
        let template = spec.template.as_ref().unwrap();
        assert_eq!((template.image.as_str(), spec.environment["A"].as_str()), ("image", "1"));
        let resources = template.resources.as_ref().unwrap();
        assert_eq!(text(resources, &["limits", "cpu"]), Some("2"));
        assert_eq!(text(resources, &["limits", "memory"]), Some("1Gi"));
        assert!(template.driver_config.is_some());
        assert_eq!(spec.resource_requirements.unwrap().gpu.unwrap().count, Some(1));
        assert_eq!((spec.command.as_slice(), spec.tty), (["run".to_owned()].as_slice(), true));
    }

    #[test]
    fn an_empty_workload_leaves_everything_open() {
        let loaded = Loaded { template: Some(sample::template("t")), ..sample::in_workspace() };
        let request = from_template(None);
        let spec = resolved(&request, &loaded).unwrap();
        assert_eq!(spec.template, Some(SandboxTemplate::default()));
        assert_eq!(spec.resource_requirements, None);
    }

    #[test]
    fn what_the_template_decides_must_be_left_out() {
        let base = SandboxSpec::default;
        for (spec, at) in [
            (SandboxSpec { log_level: "debug".into(), ..base() }, "spec.log_level"),
            (SandboxSpec { environment: [("A".into(), "1".into())].into(), ..base() }, "spec.environment"),
            (SandboxSpec { template: Some(SandboxTemplate::default()), ..base() }, "spec.template"),
            (
                SandboxSpec { resource_requirements: Some(ResourceRequirements::default()), ..base() },
                "spec.resource_requirements",
            ),
        ] {
            assert!(asked(&CreateSandboxRequest { spec: Some(spec.clone()), ..Default::default() }).is_ok());
            let refused = asked(&from_template(Some(spec))).unwrap_err();
            assert!(matches!(refused, Refusal::Invalid { field, .. } if field == at), "{at}");
        }
    }

    #[test]
    fn a_missing_template_is_not_found() {
        let refused = resolved(&from_template(None), &sample::in_workspace()).unwrap_err();
        assert!(matches!(refused, Refusal::NotFound { object: Object::Template, .. }));
    }
}
