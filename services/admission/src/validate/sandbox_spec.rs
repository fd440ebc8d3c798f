//! The specification of a sandbox.

use std::collections::BTreeSet;

use prost::Message as _;
use prost_types::Struct;
use roadstead_policy::budget;
use roadstead_proto::api::v1::{GpuResourceRequirements, SandboxRestartPolicy, SandboxSpec, SandboxTemplate};
use roadstead_store::row::Pairs;

use super::environment::environment;
use super::{Checked, at_most, count_at_most, name};
use crate::refusal::Refusal;

const LOG_LEVEL_BYTES: usize = 32;
const TEMPLATE_TEXT_BYTES: usize = 1024;
const TEMPLATE_ENTRIES: usize = 128;
const STRUCT_BYTES: usize = 64 * 1024;
const ARGUMENTS: usize = 256;
const ARGUMENT_BYTES: usize = 32 * 1024;
const COMMAND_BYTES: usize = 256 * 1024;

/// Everything of a specification but its policy, which is checked against what is attached.
///
/// # Errors
/// `Invalid` with the field.
pub fn sandbox_spec(spec: &SandboxSpec) -> Checked {
    at_most("spec.log_level", &spec.log_level, LOG_LEVEL_BYTES)?;
    environment("spec.environment", &spec.environment)?;
    if let Some(template) = &spec.template {
        check_template(template)?;
    }
    check_providers(&spec.providers)?;
    let requirements = spec.resource_requirements.as_ref();
    gpu("spec.resource_requirements.gpu.count", requirements.and_then(|requirements| requirements.gpu.as_ref()))?;
    if SandboxRestartPolicy::try_from(spec.restart_policy).is_err() {
        return Err(Refusal::invalid("spec.restart_policy", "unknown value"));
    }
    check_command(&spec.command)
}

/// Names of providers to attach: at most 32, no name twice.
///
/// # Errors
/// `Invalid` with the field.
pub fn check_providers(providers: &[String]) -> Checked {
    count_at_most("spec.providers", providers.len(), budget::PROVIDERS)?;
    let mut seen = BTreeSet::new();
    for provider in providers {
        name::provider("spec.providers", provider)?;
        if !seen.insert(provider) {
            return Err(Refusal::invalid("spec.providers", "names a provider twice"));
        }
    }
    Ok(())
}

fn check_template(template: &SandboxTemplate) -> Checked {
    for (field, text) in [
        ("spec.template.image", &template.image),
        ("spec.template.runtime_class_name", &template.runtime_class_name),
        ("spec.template.agent_socket", &template.agent_socket),
    ] {
        template_text(field, text)?;
    }
    check_map("spec.template.labels", &template.labels)?;
    check_map("spec.template.annotations", &template.annotations)?;
    environment("spec.template.environment", &template.environment)?;
    for (field, value) in
        [("spec.template.resources", &template.resources), ("spec.template.driver_config", &template.driver_config)]
    {
        structure(field, value.as_ref())?;
    }
    Ok(())
}

/// A text that goes to whatever runs the sandbox.
pub(super) fn template_text(field: &str, text: &str) -> Checked {
    at_most(field, text, TEMPLATE_TEXT_BYTES)
}

/// Free-form values for whatever runs the sandbox.
pub(super) fn structure(field: &str, value: Option<&Struct>) -> Checked {
    if value.is_some_and(|value| value.encoded_len() > STRUCT_BYTES) {
        return Err(Refusal::invalid(field, format!("larger than {STRUCT_BYTES} bytes")));
    }
    Ok(())
}

/// A wish for graphics processors. `field` is that of their number.
pub(super) fn gpu(field: &str, asked: Option<&GpuResourceRequirements>) -> Checked {
    if asked.is_some_and(|gpu| gpu.count == Some(0)) {
        return Err(Refusal::invalid(field, "must be above 0 if set"));
    }
    Ok(())
}

fn check_map(field: &str, map: &Pairs) -> Checked {
    count_at_most(field, map.len(), TEMPLATE_ENTRIES)?;
    map.iter().try_for_each(|(key, value)| {
        at_most(field, key, TEMPLATE_TEXT_BYTES)?;
        at_most(field, value, TEMPLATE_TEXT_BYTES)
    })
}

fn check_command(command: &[String]) -> Checked {
    const FIELD: &str = "spec.command";
    count_at_most(FIELD, command.len(), ARGUMENTS)?;
    if command.first().is_some_and(String::is_empty) {
        return Err(Refusal::invalid(FIELD, "the program's name is empty"));
    }
    for argument in command {
        at_most(FIELD, argument, ARGUMENT_BYTES)?;
        if argument.contains('\0') {
            return Err(Refusal::invalid(FIELD, "an argument may not contain NUL"));
        }
    }
    if command.iter().map(String::len).sum::<usize>() > COMMAND_BYTES {
        return Err(Refusal::invalid(FIELD, format!("more than {COMMAND_BYTES} bytes together")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::ResourceRequirements;

    use super::*;

    fn refused(spec: &SandboxSpec) -> String {
        match sandbox_spec(spec) {
            Err(Refusal::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_empty_specification_passes() {
        assert_eq!(sandbox_spec(&SandboxSpec::default()), Ok(()));
    }

    #[test]
    fn each_part_is_refused_at_its_own_field() {
        let base = SandboxSpec::default;
        let spec = SandboxSpec { log_level: "x".repeat(33), ..base() };
        assert_eq!(refused(&spec), "spec.log_level");
        let spec = SandboxSpec { environment: [("1".to_owned(), String::new())].into(), ..base() };
        assert_eq!(refused(&spec), "spec.environment");
        let spec = SandboxSpec { providers: (0..33).map(|at| format!("p{at}")).collect(), ..base() };
        assert_eq!(refused(&spec), "spec.providers");
        let spec = SandboxSpec { providers: vec!["p".into(), "p".into()], ..base() };
        assert_eq!(refused(&spec), "spec.providers");
        let spec = SandboxSpec { command: vec![String::new()], ..base() };
        assert_eq!(refused(&spec), "spec.command");
        let spec = SandboxSpec { command: vec!["x".repeat(32 * 1024); 9], ..base() };
        assert_eq!(refused(&spec), "spec.command");
        let spec = SandboxSpec { restart_policy: 9, ..base() };
        assert_eq!(refused(&spec), "spec.restart_policy");
        let gpu = Some(GpuResourceRequirements { count: Some(0) });
        let spec = SandboxSpec { resource_requirements: Some(ResourceRequirements { gpu }), ..base() };
        assert_eq!(refused(&spec), "spec.resource_requirements.gpu.count");
        let template = Some(SandboxTemplate { image: "x".repeat(1025), ..Default::default() });
        assert_eq!(refused(&SandboxSpec { template, ..base() }), "spec.template.image");
    }
}
