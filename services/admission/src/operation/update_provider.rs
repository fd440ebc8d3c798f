//! `UpdateProvider`.

use bytes::Bytes;
use roadstead_proto::api::datamodel::Provider;
use roadstead_proto::api::v1::{
    ProviderMutationKind, ProviderMutationReceipt, ProviderResponse, UpdateProviderRequest,
};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Lock, Locks, Providers, Reads, Sandboxes, Write};
use roadstead_store::{row, view};
use uuid::Uuid;

use super::{Decision, Operation, at_version, attachment, create_provider, credentials, workspace};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::{Checked, count_at_most, name, provider};

/// Receipts that one answer carries; with more sandboxes than that, the first by id have one.
const RECEIPTS: usize = 100;

impl Operation for UpdateProviderRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        let asked = asked(self)?;
        let name = name_of(asked);
        name::provider("provider.metadata.name", name)?;
        create_provider::no_handles(asked)?;
        provider::credentials(&asked.credentials)?;
        provider::config(&asked.config)?;
        count_at_most("credential_expiration_times", self.credential_expiration_times.len(), provider::CREDENTIALS)?;
        let cleared = self.clear_credential_expiration_keys.len();
        count_at_most("clear_credential_expiration_keys", cleared, provider::CREDENTIALS)?;
        // The sandboxes are locked so that no other provider of theirs takes the same variable meanwhile.
        Ok(Locks {
            providers: Providers::Named(vec![name.to_owned()], Lock::Update),
            sandboxes: Sandboxes::OfLockedProviders,
            reads: Reads { attached_providers: true, ..locks.reads },
            ..locks
        })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let workspace = workspace(loaded)?;
        let asked = asked(self)?;
        let before = loaded.providers.first().ok_or_else(|| Refusal::not_found(Object::Provider, name_of(asked)))?;
        at_version(asked.metadata.as_ref().map_or(0, |metadata| metadata.resource_version), before.resource_version)?;
        check_fixed(asked, before)?;

        let mut row = before.clone();
        apply(self, asked, &mut row, context)?;
        credentials::fits(&row, context.vault)?;
        if row.credentials.is_empty() {
            return Err(Refusal::invalid("provider.credentials", "a provider keeps at least one credential"));
        }
        compatible_everywhere(&row, loaded)?;

        let mutation_id = context.ids.fresh();
        row.resource_version += 1;
        let receipts = receipts(mutation_id, &row, loaded, context);
        let of_target = loaded.sandboxes.iter().zip(&receipts);
        let shown = of_target.map(|(sandbox, row)| view::provider_receipt(row, &sandbox.name, &workspace.name));
        let (mutation_id, shown) = (mutation_id.to_string(), shown.collect::<Vec<_>>());
        let receipt = replay::provider_change(row.id, row.resource_version, mutation_id.clone(), shown.clone());
        let response = response(&row, &workspace.name, mutation_id, shown);
        let mut writes = vec![Write::UpdateProvider(row)];
        if !receipts.is_empty() {
            writes.push(Write::InsertReceipts(receipts));
        }
        Ok(Decision::new(writes, &response, receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let row = loaded.providers.first()?;
        let recorded = replay::same_version(receipt, row.id, row.resource_version)?.clone();
        let workspace = &loaded.workspace.as_ref()?.name;
        Some(replay::encoded(&response(row, workspace, recorded.mutation_id, recorded.target_receipts)))
    }
}

/// Makes the changes that are asked for.
fn apply(
    request: &UpdateProviderRequest,
    asked: &Provider,
    row: &mut row::Provider,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    credentials::merge_config(&mut row.config, &asked.config);
    credentials::merge(&mut row.credentials, &asked.credentials, row.id, context.vault);
    let field = "provider.credential_expiration_times";
    credentials::expire(&mut row.credentials, &asked.credential_expiration_times, field)?;
    let field = "credential_expiration_times";
    credentials::expire(&mut row.credentials, &request.credential_expiration_times, field)?;
    for known in &mut row.credentials {
        if request.clear_credential_expiration_keys.contains(&known.key) {
            known.expires_at = None;
        }
    }
    Ok(())
}

fn asked(request: &UpdateProviderRequest) -> Result<&Provider, Refusal> {
    request.provider.as_ref().ok_or_else(|| Refusal::invalid("provider", "required"))
}

fn name_of(asked: &Provider) -> &str {
    asked.metadata.as_ref().map_or("", |metadata| &metadata.name)
}

fn check_fixed(asked: &Provider, before: &row::Provider) -> Checked {
    for (field, asked, before) in [
        ("provider.type", &asked.r#type, &before.kind),
        ("provider.profile_workspace", &asked.profile_workspace, &before.profile_workspace),
    ] {
        if !asked.is_empty() && asked != before {
            return Err(Refusal::invalid(field, "may not change; leave it out"));
        }
    }
    Ok(())
}

/// Checks the provider as it will be beside the others of every sandbox that has it.
fn compatible_everywhere(row: &row::Provider, loaded: &Loaded) -> Result<(), Refusal> {
    loaded.sandboxes.iter().try_for_each(|sandbox| {
        let others = loaded.attached_providers.iter().filter(|other| other.id != row.id);
        let beside = others.filter(|other| sandbox.providers.contains(&other.name));
        attachment::compatible(beside.chain([row]))
    })
}

fn receipts(
    mutation_id: Uuid,
    row: &row::Provider,
    loaded: &Loaded,
    context: &Context<'_>,
) -> Vec<row::ProviderReceipt> {
    let kind = ProviderMutationKind::Update;
    let receipt = |sandbox| attachment::receipt(kind, mutation_id, sandbox, row, true, loaded, context);
    loaded.sandboxes.iter().take(RECEIPTS).map(receipt).collect()
}

fn response(
    row: &row::Provider,
    workspace: &str,
    mutation_id: String,
    target_receipts: Vec<ProviderMutationReceipt>,
) -> ProviderResponse {
    ProviderResponse { provider: Some(view::provider(row, workspace)), mutation_id, target_receipts }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use roadstead_proto::api::datamodel::ObjectMeta;

    use super::*;
    use crate::ledger::replay::RECEIPT_BYTES;
    use crate::sample::{self, World};

    fn request(provider: Provider) -> UpdateProviderRequest {
        let metadata = Some(ObjectMeta { name: "p".into(), ..provider.metadata.unwrap_or_default() });
        UpdateProviderRequest { provider: Some(Provider { metadata, ..provider }), ..Default::default() }
    }

    fn found(row: row::Provider) -> Loaded {
        Loaded { providers: vec![row], ..sample::in_workspace() }
    }

    fn decide(provider: Provider, loaded: &Loaded) -> Result<Decision, Refusal> {
        request(provider).decide(loaded, &World::user().context())
    }

    fn updated(decision: &Decision) -> &row::Provider {
        match decision.writes.as_slice() {
            [Write::UpdateProvider(row)] | [Write::UpdateProvider(row), Write::InsertReceipts(_)] => row,
            other => panic!("{other:?}"),
        }
    }

    fn set(key: &str, value: &str) -> Provider {
        Provider { credentials: [(key.to_owned(), value.to_owned())].into(), ..Default::default() }
    }

    #[test]
    fn an_update_merges_and_raises_the_version() {
        let loaded = found(sample::provider("p", &["A", "B"]));
        let decision = decide(set("B", ""), &loaded).unwrap();
        let row = updated(&decision);
        assert_eq!(row.resource_version, 2);
        assert_eq!(row.credentials.iter().map(|known| known.key.as_str()).collect::<Vec<_>>(), ["A"]);
        let same = decide(Provider::default(), &loaded).unwrap();
        assert_eq!(updated(&same).credentials, loaded.providers[0].credentials);
    }

    #[test]
    fn type_and_profile_workspace_are_fixed_and_a_stale_version_is_told() {
        let loaded = found(sample::provider("p", &["A"]));
        let changed = Provider { r#type: "other".into(), ..Default::default() };
        assert!(matches!(decide(changed, &loaded), Err(Refusal::Invalid { .. })));
        let same = Provider { r#type: "generic".into(), ..Default::default() };
        assert!(decide(same, &loaded).is_ok());
        let metadata = Some(ObjectMeta { resource_version: 7, ..Default::default() });
        let stale = Provider { metadata, ..Default::default() };
        assert!(matches!(decide(stale, &loaded), Err(Refusal::VersionConflict { current: 1 })));
        assert!(matches!(decide(Provider::default(), &sample::in_workspace()), Err(Refusal::NotFound { .. })));
    }

    #[test]
    fn a_variable_of_another_provider_on_the_same_sandbox_is_refused() {
        let row = sample::provider("p", &["A"]);
        let sandbox = row::Sandbox { providers: vec!["p".into(), "q".into()], ..sample::sandbox("s") };
        let attached_providers = vec![row.clone(), sample::provider("q", &["B"])];
        let loaded = Loaded { sandboxes: vec![sandbox], attached_providers, ..found(row) };
        assert!(matches!(decide(set("B", "x"), &loaded), Err(Refusal::Precondition(_))));
        assert!(decide(set("C", "x"), &loaded).is_ok());
    }

    #[test]
    fn each_sandbox_gets_a_receipt_and_all_together_stay_within_what_is_kept() {
        let sandboxes = (0..500).map(|at| sample::sandbox(&format!("sandbox-{at}"))).collect();
        let loaded = Loaded { sandboxes, ..found(sample::provider(&"p".repeat(250), &["A"])) };
        let decision = decide(set("A", "x"), &loaded).unwrap();
        let recorded = replay::same_version(&decision.receipt, updated(&decision).id, 2).unwrap();
        assert_eq!(recorded.target_receipts.len(), RECEIPTS);
        assert!(decision.receipt.encoded_len() <= RECEIPT_BYTES);
    }

    #[test]
    fn the_last_credential_stays() {
        assert!(decide(set("A", ""), &found(sample::provider("p", &["A"]))).is_err());
    }
}
