//! Workspaces.

use super::{Access, Page, Reader, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::{all, only};
use crate::flight::Step;
use crate::parameter::value;
use crate::row::Workspace;
use crate::table::workspace::{self, columns};

const GET: &str = concat!("SELECT ", access_columns!(), from_access!());

/// `$6` restricts the list to workspaces of which it is a member.
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM workspace w WHERE w.labels @> $1 AND (w.created_at, w.name, w.id) > ($2, $3, $4) \
     AND ($6::text IS NULL OR EXISTS (SELECT FROM member m WHERE m.workspace_name = w.name AND m.subject = $6)) \
     ORDER BY w.created_at, w.name, w.id LIMIT $5"
);

impl Database {
    /// A workspace and what the reader is in it. Both are read, whatever the rights.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn workspace(&self, name: &str, reader: Reader<'_>) -> Result<Access, StoreError> {
        let rows = self.rows(Step::new(GET, [value(name.to_owned()), reader.parameter()])).await?;
        Ok(only(&rows, super::access)?)
    }

    /// A page of the workspaces that the reader is a member of; of all of them for one without a subject.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn workspaces(&self, reader: Reader<'_>, page: Page) -> Result<Vec<Workspace>, StoreError> {
        let parameters = super::with(page.in_workspace(), [reader.parameter()]);
        let rows = self.rows(Step { sql: LIST, parameters }).await?;
        Ok(all(&rows, workspace::read)?)
    }
}
