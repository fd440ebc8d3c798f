//! Sandboxes by id, for the hub of an edge: as they stand in Postgres, in the form of the projection.

use prost::Message as _;
use roadstead_proto::internal::{SandboxEntriesReply, SandboxEntriesRequest, SandboxEntry};
use roadstead_store::{Database, view};
use uuid::Uuid;

use crate::page;
use crate::refusal::Refusal;

/// Most ids in one request.
const MAX_IDS: usize = 100;

/// The entries in the order asked for, cut where the reply would become too large; whoever asks sees that and asks for
/// the rest.
pub(crate) async fn answer(
    database: &Database,
    request: SandboxEntriesRequest,
) -> Result<SandboxEntriesReply, Refusal> {
    if request.sandbox_ids.len() > MAX_IDS {
        return Err(Refusal::field("sandbox_ids", "must be at most 100"));
    }
    let ids = request.sandbox_ids.iter().map(|id| Uuid::try_parse(id)).collect::<Result<Vec<_>, _>>();
    let ids = ids.map_err(|_| Refusal::field("sandbox_ids", "must be ids"))?;
    let (epoch, rows) = database.sandbox_entries(&ids).await?;
    let entries = rows.iter().map(|row| match row {
        Some(row) => SandboxEntry {
            epoch,
            version: row.resource_version,
            workspace_id: row.workspace_id.to_string(),
            gone: false,
            sandbox: Some(view::sandbox(row)),
        },
        None => SandboxEntry { epoch, gone: true, ..SandboxEntry::default() },
    });
    let (entries, _cut) = page::cut(entries.collect(), SandboxEntry::encoded_len);
    Ok(SandboxEntriesReply { entries })
}
