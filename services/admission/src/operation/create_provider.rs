//! `CreateProvider`.

use bytes::Bytes;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1::{CreateProviderRequest, ProviderResponse};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Lock, Locks, Providers, Write};
use roadstead_store::{row, view};

use super::{Decision, Operation, credentials, workspace};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::name::coined;
use crate::refusal::{Object, Refusal};
use crate::validate::{Checked, label, name, provider};

impl Operation for CreateProviderRequest {
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
        let asked = asked(self)?;
        let name = name_of(asked, context);
        check(asked, &name)?;
        if let Some(workspace) = &locks.workspace {
            check_profile_workspace(asked, &workspace.name)?;
        }
        Ok(Locks { providers: Providers::Named(vec![name], Lock::Share), ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let workspace = workspace(loaded)?;
        let asked = asked(self)?;
        let name = name_of(asked, context);
        if !loaded.providers.is_empty() {
            return Err(Refusal::already_exists(Object::Provider, name));
        }
        let metadata = asked.metadata.clone().unwrap_or_default();
        let mut row = row::Provider {
            id: context.ids.fresh(),
            workspace_id: workspace.id,
            name,
            kind: asked.r#type.clone(),
            profile_workspace: asked.profile_workspace.clone(),
            config: asked.config.clone(),
            credentials: Vec::new(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            resource_version: 1,
            created_at: loaded.now,
        };
        credentials::merge(&mut row.credentials, &asked.credentials, row.id, context.vault);
        let field = "provider.credential_expiration_times";
        credentials::expire(&mut row.credentials, &asked.credential_expiration_times, field)?;

        let mutation_id = context.ids.fresh().to_string();
        let receipt = replay::provider_change(row.id, row.resource_version, mutation_id.clone(), Vec::new());
        let response = response(&row, &workspace.name, mutation_id);
        Ok(Decision::new(vec![Write::InsertProvider(row)], &response, receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let row = loaded.providers.first()?;
        let recorded = replay::same_version(receipt, row.id, row.resource_version)?;
        let workspace = &loaded.workspace.as_ref()?.name;
        Some(replay::encoded(&response(row, workspace, recorded.mutation_id.clone())))
    }
}

fn asked(request: &CreateProviderRequest) -> Result<&Provider, Refusal> {
    request.provider.as_ref().ok_or_else(|| Refusal::invalid("provider", "required"))
}

fn name_of(asked: &Provider, context: &Context<'_>) -> String {
    match &asked.metadata {
        Some(ObjectMeta { name, .. }) if !name.is_empty() => name.clone(),
        _ => coined(&context.naming),
    }
}

fn check(asked: &Provider, name: &str) -> Checked {
    name::provider("provider.metadata.name", name)?;
    name::provider_type("provider.type", &asked.r#type)?;
    if let Some(metadata) = &asked.metadata {
        label::labels(&metadata.labels)?;
        label::annotations(&metadata.annotations)?;
    }
    no_handles(asked)?;
    if asked.credentials.is_empty() {
        return Err(Refusal::invalid("provider.credentials", "required: a provider has at least one credential"));
    }
    if asked.credentials.values().any(String::is_empty) {
        return Err(Refusal::invalid("provider.credentials", "a value may not be empty"));
    }
    provider::credentials(&asked.credentials)?;
    provider::config(&asked.config)?;
    let sizes = asked.credentials.iter().map(|(key, value)| (key.as_str(), value.len()));
    provider::whole(sizes, &asked.config)
}

/// Handles are made by the server.
pub(super) fn no_handles(asked: &Provider) -> Checked {
    if asked.credential_handles.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid("provider.credential_handles", "must be left out; send credentials"))
}

fn check_profile_workspace(asked: &Provider, workspace: &str) -> Checked {
    if asked.profile_workspace.is_empty() || asked.profile_workspace == workspace {
        return Ok(());
    }
    Err(Refusal::invalid("provider.profile_workspace", "must be empty or the provider's own workspace"))
}

fn response(row: &row::Provider, workspace: &str, mutation_id: String) -> ProviderResponse {
    let provider = Some(view::provider(row, workspace));
    ProviderResponse { provider, mutation_id, target_receipts: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use roadstead_store::mutation::{ByName, Lock};

    use super::*;
    use crate::operation::Reply;
    use crate::sample::{self, World};

    fn asked_for() -> Provider {
        Provider {
            metadata: Some(ObjectMeta { name: "p".into(), ..Default::default() }),
            r#type: "generic".into(),
            credentials: [("API_KEY".to_owned(), "hush".to_owned())].into(),
            ..Default::default()
        }
    }

    fn request(provider: Provider) -> CreateProviderRequest {
        CreateProviderRequest { provider: Some(provider), ..Default::default() }
    }

    fn plan(provider: Provider) -> Result<Locks, Refusal> {
        let workspace = Some(ByName { name: "w".into(), lock: Lock::Share });
        request(provider).plan(Locks { workspace, ..Default::default() }, &World::user().context())
    }

    #[test]
    fn credentials_are_sealed_and_never_shown() {
        let decision = request(asked_for()).decide(&sample::in_workspace(), &World::user().context()).unwrap();
        let [Write::InsertProvider(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert!(row.credentials[0].sealed_value.starts_with(b"sealed:"));
        let Reply::Response(body) = &decision.reply else { panic!("no response") };
        assert!(!body.windows(4).any(|bytes| bytes == b"hush"));
        assert!(body.windows(8).any(|bytes| bytes == b"REDACTED"));
    }

    #[test]
    fn a_taken_name_is_refused() {
        let loaded = Loaded { providers: vec![sample::provider("p", &["A"])], ..sample::in_workspace() };
        let refused = request(asked_for()).decide(&loaded, &World::user().context()).unwrap_err();
        assert!(matches!(refused, Refusal::AlreadyExists { object: Object::Provider, .. }));
    }

    #[test]
    fn each_part_is_checked() {
        assert!(plan(asked_for()).is_ok());
        assert!(plan(Provider { profile_workspace: "w".into(), ..asked_for() }).is_ok());
        for bad in [
            Provider { r#type: String::new(), ..asked_for() },
            Provider { credentials: BTreeMap::new(), ..asked_for() },
            Provider { credentials: [("A".to_owned(), String::new())].into(), ..asked_for() },
            Provider { credential_handles: [("A".to_owned(), Default::default())].into(), ..asked_for() },
            Provider { profile_workspace: "other".into(), ..asked_for() },
        ] {
            assert!(matches!(plan(bad), Err(Refusal::Invalid { .. })));
        }
        let none = CreateProviderRequest::default().plan(Locks::default(), &World::user().context());
        assert!(matches!(none, Err(Refusal::Invalid { .. })));
    }

    #[test]
    fn a_replay_shows_the_recorded_version_only() {
        let row = sample::provider("p", &["A"]);
        let loaded = Loaded { providers: vec![row.clone()], ..sample::in_workspace() };
        let receipt = |version| replay::provider_change(row.id, version, "m".into(), Vec::new());
        assert!(request(asked_for()).replay(&receipt(1), &loaded, &World::user().context()).is_some());
        assert!(request(asked_for()).replay(&receipt(2), &loaded, &World::user().context()).is_none());
    }
}
