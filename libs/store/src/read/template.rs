//! Workload templates.

use super::{Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::all;
use crate::flight::Step;
use crate::parameter::value;
use crate::row::WorkloadTemplate;
use crate::table::workload_template::{columns, read};

const GET: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    from_access!(),
    " LEFT JOIN workload_template t ON seen AND t.workspace_name = $1 AND t.name = $3"
);

const LIST: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    from_access!(),
    " LEFT JOIN LATERAL (SELECT * FROM workload_template t WHERE t.workspace_name = $1 AND t.labels @> $3 \
     AND (t.created_at, t.name, t.id) > ($4, $5, $6) ORDER BY t.created_at, t.name, t.id LIMIT $7) t ON seen \
     ORDER BY t.created_at, t.name, t.id"
);

const LIST_ALL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM workload_template t WHERE t.labels @> $1 \
     AND (t.created_at, t.name, t.workspace_name, t.id) > ($2, $3, $4, $5) \
     ORDER BY t.created_at, t.name, t.workspace_name, t.id LIMIT $6"
);

impl Database {
    /// A template by name.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn template(
        &self,
        workspace: &str,
        name: &str,
        reader: Reader<'_>,
    ) -> Result<Seen<Option<WorkloadTemplate>>, StoreError> {
        let step = Step::new(GET, [value(workspace.to_owned()), reader.parameter(), value(name.to_owned())]);
        Ok(super::seen_one(&self.rows(step).await?, read)?)
    }

    /// A page of the workspace's templates.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn templates(
        &self,
        workspace: &str,
        reader: Reader<'_>,
        page: Page,
    ) -> Result<Seen<Vec<WorkloadTemplate>>, StoreError> {
        let parameters = super::with([value(workspace.to_owned()), reader.parameter()], page.in_workspace());
        Ok(super::seen_all(&self.rows(Step { sql: LIST, parameters }).await?, read)?)
    }

    /// A page of the templates of all workspaces, for those who may see everything.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn templates_everywhere(&self, page: Page) -> Result<Vec<WorkloadTemplate>, StoreError> {
        let rows = self.rows(Step::new(LIST_ALL, page.everywhere())).await?;
        Ok(all(&rows, read)?)
    }
}
