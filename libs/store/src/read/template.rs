//! Workload templates.

use super::list::{self, List, everywhere, fitting, in_workspace, rarest, selected_everywhere, selected_in_workspace};
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

macro_rules! list {
    ($candidates:expr) => {
        concat!(
            "SELECT ",
            access_columns!(),
            ", ",
            columns!(),
            ", t.candidates",
            from_access!(),
            " LEFT JOIN LATERAL ",
            fitting!($candidates, "created_at, name, id"),
            " t ON seen ORDER BY t.created_at, t.name, t.id"
        )
    };
}

const LIST: List = List {
    every: list!(in_workspace!("workload_template", measured!())),
    selected: list!(selected_in_workspace!("workload_template", measured!())),
};

macro_rules! list_all {
    ($candidates:expr) => {
        concat!(
            "SELECT ",
            columns!(),
            ", t.candidates FROM ",
            fitting!($candidates, "created_at, name, workspace_name, id"),
            " t ORDER BY t.created_at, t.name, t.workspace_name, t.id"
        )
    };
}

const LIST_ALL: List = List {
    every: list_all!(everywhere!("workload_template", measured!())),
    selected: list_all!(selected_everywhere!("workload_template", measured!())),
};

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
