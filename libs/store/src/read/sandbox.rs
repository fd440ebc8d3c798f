//! Sandboxes.

use super::list::{
    self, List, everywhere, fitting, in_workspace, list_everywhere, list_in_workspace, page_everywhere,
    page_in_workspace, rarest, selected_everywhere, selected_in_workspace,
};
use super::{Listed, Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
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

/// What of a sandbox can be large.
macro_rules! bytes {
    () => {
        "octet_length(spec) + octet_length(status) + pg_column_size(annotations) + pg_column_size(labels)"
    };
}
pub(super) use bytes;

/// What is listed.
macro_rules! measured {
    () => {
        concat!("*, ", bytes!(), " AS size")
    };
}

const LIST: List = list_in_workspace!("sandbox", "s", concat!(columns!(), ", ", provider_names!()), measured!());

const LIST_ALL: List = list_everywhere!("sandbox", "s", concat!(columns!(), ", ", provider_names!()), measured!());

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
    ) -> Result<Seen<Listed<Sandbox>>, StoreError> {
        let most = page.most;
        Ok(super::seen_all(&self.rows(LIST.in_workspace(workspace, reader, page)).await?, most, read_whole)?)
    }

    /// A page of the sandboxes of all workspaces, for those who may see everything.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandboxes_everywhere(&self, page: Page) -> Result<Listed<Sandbox>, StoreError> {
        let most = page.most;
        Ok(list::items(&self.rows(LIST_ALL.everywhere(page)).await?, 0, most, read_whole)?)
    }
}
