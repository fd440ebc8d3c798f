//! Histories of policies.

use super::{Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::{Fields, Malformed, all, first};
use crate::flight::Step;
use crate::parameter::value;
use crate::row::PolicyRevision;
use crate::table;
use crate::table::policy_revision::{columns, read};
use tokio_postgres::Row;
use uuid::Uuid;

/// What a history says, and which of its versions the sandbox has loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    /// Version that the sandbox reported as loaded; 0 if none.
    pub active_version: u32,
    /// Newest first.
    pub revisions: Vec<PolicyRevision>,
}

/// `$4` is a version, or null for the newest.
const OF_SANDBOX: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, s.current_policy_version, ",
    columns!(),
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 \
     LEFT JOIN LATERAL (SELECT * FROM policy_revision r WHERE r.scope = s.id AND r.version = coalesce($4, \
     (SELECT max(n.version) FROM policy_revision n WHERE n.scope = s.id))) r ON true"
);

/// Bodies stay where they are.
macro_rules! without_body {
    () => {
        "r.scope, r.version, r.hash, ''::bytea AS policy, r.status, r.load_error, r.created_at, r.loaded_at, \
         r.provenance"
    };
}

const LIST_OF_SANDBOX: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, s.current_policy_version, ",
    columns!(),
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 LEFT JOIN LATERAL (SELECT ",
    without_body!(),
    " FROM policy_revision r WHERE r.scope = s.id AND r.version < $4 ORDER BY r.version DESC LIMIT $5) r ON true \
     ORDER BY r.version DESC"
);

const GLOBAL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM policy_revision r WHERE r.scope = '00000000-0000-0000-0000-000000000000' AND r.version = coalesce($1, \
     (SELECT max(n.version) FROM policy_revision n WHERE n.scope = '00000000-0000-0000-0000-000000000000'))"
);

const LIST_GLOBAL: &str = concat!(
    "SELECT ",
    without_body!(),
    " FROM policy_revision r WHERE r.scope = '00000000-0000-0000-0000-000000000000' AND r.version < $1 \
     ORDER BY r.version DESC LIMIT $2"
);

impl Database {
    /// One revision of a sandbox's policy, the newest without a `version`. No revision: an empty list; no sandbox: none.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn policy_revision(
        &self,
        workspace: &str,
        sandbox: &str,
        reader: Reader<'_>,
        version: Option<u32>,
    ) -> Result<Seen<Option<Policies>>, StoreError> {
        let step = Step::new(
            OF_SANDBOX,
            [value(workspace.to_owned()), reader.parameter(), value(sandbox.to_owned()), value(version.map(i64::from))],
        );
        Ok(history(&self.rows(step).await?)?)
    }

    /// A page of a sandbox's policy revisions without their bodies, newest first, below the version `before`.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn policy_revisions(
        &self,
        workspace: &str,
        sandbox: &str,
        reader: Reader<'_>,
        before: Option<u32>,
        most: u32,
    ) -> Result<Seen<Option<Policies>>, StoreError> {
        let step = Step::new(
            LIST_OF_SANDBOX,
            [
                value(workspace.to_owned()),
                reader.parameter(),
                value(sandbox.to_owned()),
                value(before.map_or(i64::MAX, i64::from)),
                value(i64::from(most)),
            ],
        );
        Ok(history(&self.rows(step).await?)?)
    }

    /// One revision of the global policy, the newest without a `version`.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn global_policy_revision(&self, version: Option<u32>) -> Result<Option<PolicyRevision>, StoreError> {
        let rows = self.rows(Step::new(GLOBAL, [value(version.map(i64::from))])).await?;
        Ok(first(&rows, read)?)
    }

    /// A page of the global policy's revisions without their bodies, newest first, below the version `before`.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn global_policy_revisions(
        &self,
        before: Option<u32>,
        most: u32,
    ) -> Result<Vec<PolicyRevision>, StoreError> {
        let parameters = [value(before.map_or(i64::MAX, i64::from)), value(i64::from(most))];
        Ok(all(&self.rows(Step::new(LIST_GLOBAL, parameters)).await?, read)?)
    }
}

fn history(rows: &[Row]) -> Result<Seen<Option<Policies>>, Malformed> {
    let head = super::seen_one(rows, |fields| {
        fields.skip(1);
        fields.version()
    })?;
    let Some(active_version) = head.found else { return Ok(Seen { access: head.access, found: None }) };
    let mut revisions = Vec::with_capacity(rows.len());
    for row in rows {
        let mut fields = Fields::of(row);
        fields.skip(table::workspace::COLUMNS + 3);
        if !fields.is_next_null::<Uuid>()? {
            revisions.push(read(&mut fields)?);
        }
    }
    Ok(Seen { access: head.access, found: Some(Policies { active_version, revisions }) })
}
