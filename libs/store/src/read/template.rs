//! Workload templates.

use super::list::{
    self, List, everywhere, fitting, in_workspace, list_everywhere, list_in_workspace, page_everywhere,
    page_in_workspace, rarest, selected_everywhere, selected_in_workspace,
};
use super::{Listed, Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
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

/// What is listed, and what of it can be large.
macro_rules! measured {
    () => {
        "*, octet_length(spec) + pg_column_size(annotations) + pg_column_size(labels) AS size"
    };
}

const LIST: List = list_in_workspace!("workload_template", "t", columns!(), measured!());

const LIST_ALL: List = list_everywhere!("workload_template", "t", columns!(), measured!());

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
    ) -> Result<Seen<Listed<WorkloadTemplate>>, StoreError> {
        let most = page.most;
        Ok(super::seen_all(&self.rows(LIST.in_workspace(workspace, reader, page)).await?, most, read)?)
    }

    /// A page of the templates of all workspaces, for those who may see everything.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn templates_everywhere(&self, page: Page) -> Result<Listed<WorkloadTemplate>, StoreError> {
        let most = page.most;
        Ok(list::items(&self.rows(LIST_ALL.everywhere(page)).await?, 0, most, read)?)
    }
}
