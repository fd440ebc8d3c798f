//! Receipts: what a success leaves behind, and whether the object it speaks of can still be shown (behaviour 2.8).

use bytes::Bytes;
use prost::Message;
use roadstead_proto::api::v1;
use roadstead_proto::internal::{Receipt, receipt};
use roadstead_store::mutation::Loaded;
use roadstead_store::row;
use uuid::Uuid;

/// Largest receipt that is kept, in bytes.
pub const RECEIPT_BYTES: usize = 64 * 1024;

/// Of an object that is shown again while it is at this version.
#[must_use]
pub fn object(id: Uuid, version: u64) -> Receipt {
    provider_change(id, version, String::new(), Vec::new())
}

/// Of a provider, with what its change said beside.
#[must_use]
pub fn provider_change(
    id: Uuid,
    version: u64,
    mutation_id: String,
    target_receipts: Vec<v1::ProviderMutationReceipt>,
) -> Receipt {
    of(receipt::Kind::Object(receipt::ObjectAtVersion { id: id.to_string(), version, mutation_id, target_receipts }))
}

/// Of a deletion.
#[must_use]
pub fn deletion(outcome: v1::DeletionOutcome) -> Receipt {
    of(receipt::Kind::Deletion(receipt::Deletion { outcome: outcome.into(), sandbox_id: String::new() }))
}

/// Of a sandbox's deletion.
#[must_use]
pub fn sandbox_deletion(outcome: v1::DeletionOutcome, sandbox_id: String) -> Receipt {
    of(receipt::Kind::Deletion(receipt::Deletion { outcome: outcome.into(), sandbox_id }))
}

/// Of a change of a sandbox, which is shown again as it is then.
#[must_use]
pub fn sandbox_now(id: Uuid, changed: bool, provider_receipt: Option<v1::ProviderMutationReceipt>) -> Receipt {
    of(receipt::Kind::Sandbox(receipt::SandboxNow { id: id.to_string(), changed, provider_receipt }))
}

/// Of a configuration write; without a sandbox it was global.
#[must_use]
pub fn config(sandbox: Option<Uuid>, response: v1::UpdateConfigResponse) -> Receipt {
    let sandbox_id = sandbox.map(|id| id.to_string()).unwrap_or_default();
    of(receipt::Kind::Config(receipt::ConfigWritten { sandbox_id, response: Some(response) }))
}

/// Of a service: where it is reached is kept, so that a replay shows what was told.
#[must_use]
pub fn service_exposed(row: &row::ServiceEndpoint, url: String) -> Receipt {
    of(receipt::Kind::Service(receipt::ServiceExposed {
        id: row.id.to_string(),
        version: row.resource_version,
        sandbox_id: row.sandbox_id.to_string(),
        url,
    }))
}

/// Of a token: for whom, never the token.
#[must_use]
pub const fn token(grant: receipt::TokenGrant) -> Receipt {
    of(receipt::Kind::Token(grant))
}

const fn of(kind: receipt::Kind) -> Receipt {
    Receipt { kind: Some(kind) }
}

/// The recorded outcome of a deletion.
#[must_use]
pub fn recorded(receipt: &Receipt) -> Option<&receipt::Deletion> {
    match &receipt.kind {
        Some(receipt::Kind::Deletion(deletion)) => Some(deletion),
        _ => None,
    }
}

/// The receipt of an object, if that object is the one at hand and unchanged since.
#[must_use]
pub fn same_version(receipt: &Receipt, id: Uuid, version: u64) -> Option<&receipt::ObjectAtVersion> {
    match &receipt.kind {
        Some(receipt::Kind::Object(object)) if object.version == version && object.id == id.to_string() => Some(object),
        _ => None,
    }
}

/// The receipt of a sandbox's change and that sandbox as it is now; none if it is gone or replaced.
#[must_use]
pub fn live_sandbox<'a>(
    receipt: &'a Receipt,
    loaded: &'a Loaded,
) -> Option<(&'a receipt::SandboxNow, &'a row::Sandbox)> {
    match &receipt.kind {
        Some(receipt::Kind::Sandbox(now)) => Some((now, by_id(loaded, &now.id)?)),
        _ => None,
    }
}

/// The receipt of a service and that service, while its sandbox lives and it is unchanged since.
#[must_use]
pub fn same_service<'a>(
    receipt: &'a Receipt,
    loaded: &'a Loaded,
) -> Option<(&'a receipt::ServiceExposed, &'a row::ServiceEndpoint)> {
    match &receipt.kind {
        Some(receipt::Kind::Service(exposed)) => {
            by_id(loaded, &exposed.sandbox_id)?;
            let mut services = loaded.services.iter();
            let row =
                services.find(|row| row.id.to_string() == exposed.id && row.resource_version == exposed.version)?;
            Some((exposed, row))
        }
        _ => None,
    }
}

/// The recorded answer of a configuration write, while its sandbox lives.
#[must_use]
pub fn config_scalars<'a>(receipt: &'a Receipt, loaded: &Loaded) -> Option<&'a v1::UpdateConfigResponse> {
    match &receipt.kind {
        Some(receipt::Kind::Config(written)) => {
            if !written.sandbox_id.is_empty() {
                by_id(loaded, &written.sandbox_id)?;
            }
            written.response.as_ref()
        }
        _ => None,
    }
}

fn by_id<'a>(loaded: &'a Loaded, id: &str) -> Option<&'a row::Sandbox> {
    loaded.sandboxes.iter().find(|sandbox| sandbox.id.to_string() == id)
}

/// An encoded message.
#[must_use]
pub fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
