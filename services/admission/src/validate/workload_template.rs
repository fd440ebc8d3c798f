//! The specification of a workload template: what a sandbox made from it will have, so under the same limits.

use prost_types::Duration;
use roadstead_proto::api::v1::SandboxWorkloadTemplateSpec;

use super::environment::environment;
use super::sandbox_spec::{gpu, structure, template_text};
use super::{Checked, at_most};
use crate::refusal::Refusal;

/// Longest duration that the API's type can say, in seconds.
const LONGEST: i64 = 315_576_000_000;
/// Longest name of an amount, such as `500m` or `2Gi`.
const AMOUNT_BYTES: usize = 64;

/// Checks it.
///
/// # Errors
/// `Invalid` with the field.
pub fn spec(spec: &SandboxWorkloadTemplateSpec) -> Checked {
    let workload = spec.workload.as_ref().ok_or_else(|| Refusal::invalid("template.spec.workload", "required"))?;
    template_text("template.spec.workload.image", &workload.image)?;
    environment("template.spec.workload.environment", &workload.environment)?;
    if let Some(resources) = &workload.resources {
        at_most("template.spec.workload.resources.cpu", &resources.cpu, AMOUNT_BYTES)?;
        at_most("template.spec.workload.resources.memory", &resources.memory, AMOUNT_BYTES)?;
        gpu("template.spec.workload.resources.gpu.count", resources.gpu.as_ref())?;
    }
    structure("template.spec.driver_config", spec.driver_config.as_ref())?;
    let startup = spec.desired_service_level.as_ref().and_then(|level| level.startup.as_ref());
    match startup.and_then(|startup| startup.ready_within.as_ref()) {
        Some(time) if !is_positive(time) => {
            let field = "template.spec.desired_service_level.startup.ready_within";
            Err(Refusal::invalid(field, "must be a valid duration above zero"))
        }
        _ => Ok(()),
    }
}

fn is_positive(time: &Duration) -> bool {
    let Duration { seconds, nanos } = *time;
    (0..=LONGEST).contains(&seconds) && (0..1_000_000_000).contains(&nanos) && (seconds, nanos) != (0, 0)
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::{
        GpuResourceRequirements, SandboxResources, SandboxServiceLevel, SandboxStartup, SandboxWorkloadConfig,
    };

    use super::*;

    fn refused(template: &SandboxWorkloadTemplateSpec) -> Option<String> {
        match spec(template) {
            Ok(()) => None,
            Err(Refusal::Invalid { field, .. }) => Some(field),
            other => panic!("{other:?}"),
        }
    }

    fn of(workload: SandboxWorkloadConfig) -> SandboxWorkloadTemplateSpec {
        SandboxWorkloadTemplateSpec { workload: Some(workload), ..Default::default() }
    }

    #[test]
    fn a_workload_may_be_empty_but_not_absent() {
        assert_eq!(refused(&of(SandboxWorkloadConfig::default())), None);
        assert_eq!(refused(&SandboxWorkloadTemplateSpec::default()).as_deref(), Some("template.spec.workload"));
    }

    #[test]
    fn each_part_is_refused_at_its_own_field() {
        let config = SandboxWorkloadConfig::default;
        let resources = |resources| of(SandboxWorkloadConfig { resources: Some(resources), ..config() });
        let long = || "x".repeat(1025);
        for (bad, at) in [
            (of(SandboxWorkloadConfig { image: long(), ..config() }), "image"),
            (
                of(SandboxWorkloadConfig { environment: [("1".into(), String::new())].into(), ..config() }),
                "environment",
            ),
            (resources(SandboxResources { cpu: long(), ..Default::default() }), "resources.cpu"),
            (resources(SandboxResources { memory: long(), ..Default::default() }), "resources.memory"),
            (
                resources(SandboxResources {
                    gpu: Some(GpuResourceRequirements { count: Some(0) }),
                    ..Default::default()
                }),
                "resources.gpu.count",
            ),
        ] {
            assert_eq!(refused(&bad), Some(format!("template.spec.workload.{at}")));
        }
    }

    #[test]
    fn a_wish_for_speed_is_a_valid_time_above_zero() {
        let within = |seconds, nanos| {
            let startup = Some(SandboxStartup { ready_within: Some(Duration { seconds, nanos }), max_burst: 0 });
            let desired_service_level = Some(SandboxServiceLevel { startup });
            refused(&SandboxWorkloadTemplateSpec { desired_service_level, ..of(SandboxWorkloadConfig::default()) })
        };
        for (seconds, nanos) in [(1, 0), (0, 1), (LONGEST, 0)] {
            assert_eq!(within(seconds, nanos), None);
        }
        for (seconds, nanos) in [(0, 0), (-1, 0), (0, -1), (1, -1), (0, 1_000_000_000), (LONGEST + 1, 0)] {
            assert!(within(seconds, nanos).is_some(), "{seconds} s {nanos} ns");
        }
    }
}
