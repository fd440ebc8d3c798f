//! Which providers are attached to which sandboxes, in order of attachment.

use std::collections::HashMap;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Malformed, all};
use crate::flight::Step;
use crate::parameter::value;

const ATTACH: &str = "INSERT INTO attachment (sandbox_id, provider_id) VALUES ($1, $2)";

const DETACH: &str = "WITH hit AS (DELETE FROM attachment WHERE sandbox_id = $1 AND provider_id = $2 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'attachment') FROM hit";

const NAMES: &str = "SELECT a.sandbox_id, p.name FROM attachment a JOIN provider p ON p.id = a.provider_id
    WHERE a.sandbox_id = ANY ($1) ORDER BY a.ordinal";

const SANDBOXES: &str = "SELECT s.workspace_id, a.sandbox_id FROM attachment a JOIN sandbox s ON s.id = a.sandbox_id
    WHERE a.provider_id = $1 AND a.sandbox_id > $2 ORDER BY a.sandbox_id LIMIT $3";

pub(crate) fn attach(sandbox_id: Uuid, provider_id: Uuid) -> Step {
    Step::new(ATTACH, [value(sandbox_id), value(provider_id)])
}

pub(crate) fn detach(sandbox_id: Uuid, provider_id: Uuid) -> Step {
    Step::new(DETACH, [value(sandbox_id), value(provider_id)])
}

/// Workspace and id of sandboxes that have the provider, by id, after `after`.
pub(crate) fn sandboxes(provider_id: Uuid, after: Uuid, most: u32) -> Step {
    Step::new(SANDBOXES, [value(provider_id), value(after), value(i64::from(most))])
}

/// Rows of sandbox id and provider name.
pub(crate) fn names_of(sandboxes: Vec<Uuid>) -> Step {
    Step::new(NAMES, [value(sandboxes)])
}

/// Names of providers by sandbox, from rows of sandbox id and name.
pub(crate) fn names(rows: &[Row]) -> Result<HashMap<Uuid, Vec<String>>, Malformed> {
    let mut names: HashMap<Uuid, Vec<String>> = HashMap::new();
    for (sandbox_id, name) in all(rows, |fields| Ok((fields.take()?, fields.take()?)))? {
        names.entry(sandbox_id).or_default().push(name);
    }
    Ok(names)
}
