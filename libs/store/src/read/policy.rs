//! Histories of policies.

use super::list::{self, fitting};
use super::{Listed, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::{Malformed, first};
use crate::flight::Step;
use crate::parameter::value;
use crate::row::PolicyRevision;
use crate::table;
use crate::table::policy_revision::{columns, read};
use tokio_postgres::Row;

/// What a history says, and which of its versions the sandbox has loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    /// Version that the sandbox reported as loaded; 0 if none.
    pub active_version: u32,
    /// Newest first.
    pub revisions: Listed<PolicyRevision>,
}

/// `$4` is a version, or null for the newest.
const OF_SANDBOX: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, s.current_policy_version, ",
    columns!(),
    ", 1::bigint",
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 \
     LEFT JOIN LATERAL (SELECT * FROM policy_revision r WHERE r.scope = s.id AND r.version = coalesce($4, \
     (SELECT max(n.version) FROM policy_revision n WHERE n.scope = s.id))) r ON true"
);

/// Bodies stay where they are. What else can be large is measured.
macro_rules! without_body {
    () => {
        "SELECT r.scope, r.version, r.hash, ''::bytea AS policy, r.status, r.load_error, r.created_at, r.loaded_at, \
         r.provenance, pg_column_size(r.provenance) + octet_length(r.load_error) AS size FROM policy_revision r"
    };
}

const LIST_OF_SANDBOX: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, s.current_policy_version, ",
    columns!(),
    ", r.candidates",
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 LEFT JOIN LATERAL ",
    fitting!(
        concat!(without_body!(), " WHERE r.scope = s.id AND r.version < $4 ORDER BY r.version DESC LIMIT $5"),
        "version DESC"
    ),
    " r ON true ORDER BY r.version DESC"
);

const GLOBAL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM policy_revision r WHERE r.scope = '00000000-0000-0000-0000-000000000000' AND r.version = coalesce($1, \
     (SELECT max(n.version) FROM policy_revision n WHERE n.scope = '00000000-0000-0000-0000-000000000000'))"
);

const LIST_GLOBAL: &str = concat!(
    "SELECT ",
    columns!(),
    ", r.candidates FROM ",
    fitting!(
        concat!(
            without_body!(),
            " WHERE r.scope = '00000000-0000-0000-0000-000000000000' AND r.version < $1 ORDER BY r.version DESC LIMIT $2"
        ),
        "version DESC"
    ),
    " r ORDER BY r.version DESC"
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
        Ok(history(&self.rows(step).await?, 1)?)
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
                list::limit(most),
            ],
        );
        Ok(history(&self.rows(step).await?, most)?)
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
    ) -> Result<Listed<PolicyRevision>, StoreError> {
        let parameters = [value(before.map_or(i64::MAX, i64::from)), list::limit(most)];
        Ok(list::items(&self.rows(Step::new(LIST_GLOBAL, parameters)).await?, 0, most, read)?)
    }
}

fn history(rows: &[Row], most: u32) -> Result<Seen<Option<Policies>>, Malformed> {
    let head = super::seen_one(rows, |fields| {
        fields.skip(1);
        fields.version()
    })?;
    let Some(active_version) = head.found else { return Ok(Seen { access: head.access, found: None }) };
    let revisions = list::items(rows, table::workspace::COLUMNS + 3, most, read)?;
    Ok(Seen { access: head.access, found: Some(Policies { active_version, revisions }) })
}
