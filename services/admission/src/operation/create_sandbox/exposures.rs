//! Services that a sandbox exposes from its creation on.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_proto::api::v1::SandboxServiceExposure;
use roadstead_store::row;

use crate::context::Context;
use crate::operation::service::{self, Target};
use crate::refusal::Refusal;
use crate::validate::{Checked, count_at_most};

/// Services that one creation may expose.
const MOST: usize = 32;
const FIELD: &str = "service_exposures";

/// Their number, names and ports.
///
/// # Errors
/// `Invalid` with the field.
pub(super) fn check(exposures: &[SandboxServiceExposure]) -> Checked {
    count_at_most(FIELD, exposures.len(), MOST)?;
    let mut seen = BTreeSet::new();
    for exposure in exposures {
        service::check_name("service_exposures.service", &exposure.service)?;
        target(exposure)?;
        if !seen.insert(&exposure.service) {
            return Err(Refusal::invalid(FIELD, "names a service twice"));
        }
    }
    Ok(())
}

/// The services of a new sandbox.
///
/// # Errors
/// Never, once they were checked.
pub(super) fn rows(
    exposures: &[SandboxServiceExposure],
    sandbox: &row::Sandbox,
    context: &Context<'_>,
) -> Result<Vec<row::ServiceEndpoint>, Refusal> {
    let row = |exposure: &SandboxServiceExposure| {
        let id = context.ids.fresh();
        Ok(service::new(id, sandbox, &exposure.service, target(exposure)?, sandbox.created_at))
    };
    exposures.iter().map(row).collect()
}

/// Those of a sandbox's services that its creation exposed.
pub(super) fn of<'a>(
    exposures: &[SandboxServiceExposure],
    services: &'a [row::ServiceEndpoint],
) -> impl Iterator<Item = &'a row::ServiceEndpoint> {
    let names: BTreeSet<&str> = exposures.iter().map(|exposure| exposure.service.as_str()).collect();
    services.iter().filter(move |row| names.contains(row.service.as_str()))
}

/// Where services are reached, by their names.
pub(super) fn urls<'a>(
    services: impl IntoIterator<Item = &'a row::ServiceEndpoint>,
    context: &Context<'_>,
) -> BTreeMap<String, String> {
    let url = |row: &row::ServiceEndpoint| {
        context.rules.service_urls.url(&row.workspace_name, &row.sandbox_name, &row.service)
    };
    services.into_iter().map(|row| (row.service.clone(), url(row))).collect()
}

fn target(exposure: &SandboxServiceExposure) -> Result<Target, Refusal> {
    Target::read("service_exposures.", exposure.target_port, exposure.authorization_mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposure(service: &str) -> SandboxServiceExposure {
        SandboxServiceExposure { service: service.into(), target_port: 80, ..Default::default() }
    }

    #[test]
    fn they_are_few_told_apart_and_well_formed() {
        let many = |count| (0..count).map(|at| exposure(&format!("web-{at}"))).collect::<Vec<_>>();
        assert!(check(&many(MOST)).is_ok());
        assert!(check(&[exposure(""), exposure("web")]).is_ok());
        for bad in [
            many(MOST + 1),
            vec![exposure("web"), exposure("web")],
            vec![exposure(""), exposure("")],
            vec![exposure("a--b")],
            vec![SandboxServiceExposure { target_port: 0, ..exposure("web") }],
            vec![SandboxServiceExposure { authorization_mode: 3, ..exposure("web") }],
        ] {
            assert!(matches!(check(&bad), Err(Refusal::Invalid { .. })));
        }
    }
}
