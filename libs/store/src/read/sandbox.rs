//! Sandboxes.

use super::{Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::all;
use crate::flight::Step;
use crate::parameter::value;
use crate::row::Sandbox;
use crate::table::sandbox::{columns, provider_names, read_whole};

const GET: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    ", ",
    provider_names!(),
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3"
);

const LIST: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    ", ",
    provider_names!(),
    from_access!(),
    " LEFT JOIN LATERAL (SELECT * FROM sandbox s WHERE s.workspace_name = $1 AND s.labels @> $3 \
     AND (s.created_at, s.name, s.id) > ($4, $5, $6) ORDER BY s.created_at, s.name, s.id LIMIT $7) s ON seen \
     ORDER BY s.created_at, s.name, s.id"
);

const LIST_ALL: &str = concat!(
    "SELECT ",
    columns!(),
    ", ",
    provider_names!(),
    " FROM sandbox s WHERE s.labels @> $1 AND (s.created_at, s.name, s.workspace_name, s.id) > ($2, $3, $4, $5) \
     ORDER BY s.created_at, s.name, s.workspace_name, s.id LIMIT $6"
);

impl Database {
    /// A sandbox by name.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandbox(
        &self,
        workspace: &str,
        name: &str,
        reader: Reader<'_>,
    ) -> Result<Seen<Option<Sandbox>>, StoreError> {
        let step = Step::new(GET, [value(workspace.to_owned()), reader.parameter(), value(name.to_owned())]);
        Ok(super::seen_one(&self.rows(step).await?, read_whole)?)
    }

    /// A page of the workspace's sandboxes.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandboxes(
        &self,
        workspace: &str,
        reader: Reader<'_>,
        page: Page,
    ) -> Result<Seen<Vec<Sandbox>>, StoreError> {
        let parameters = super::with([value(workspace.to_owned()), reader.parameter()], page.in_workspace());
        Ok(super::seen_all(&self.rows(Step { sql: LIST, parameters }).await?, read_whole)?)
    }

    /// A page of the sandboxes of all workspaces, for those who may see everything.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandboxes_everywhere(&self, page: Page) -> Result<Vec<Sandbox>, StoreError> {
        let rows = self.rows(Step::new(LIST_ALL, page.everywhere())).await?;
        Ok(all(&rows, read_whole)?)
    }
}
