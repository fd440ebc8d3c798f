//! Sandboxes.

use super::list::{self, List, everywhere, fitting, in_workspace, rarest, selected_everywhere, selected_in_workspace};
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

macro_rules! list {
    ($candidates:expr) => {
        concat!(
            "SELECT ",
            access_columns!(),
            ", ",
            columns!(),
            ", ",
            provider_names!(),
            ", s.candidates",
            from_access!(),
            " LEFT JOIN LATERAL ",
            fitting!($candidates, "created_at, name, id"),
            " s ON seen ORDER BY s.created_at, s.name, s.id"
        )
    };
}

const LIST: List = List {
    every: list!(in_workspace!("sandbox", measured!())),
    selected: list!(selected_in_workspace!("sandbox", measured!())),
};

macro_rules! list_all {
    ($candidates:expr) => {
        concat!(
            "SELECT ",
            columns!(),
            ", ",
            provider_names!(),
            ", s.candidates FROM ",
            fitting!($candidates, "created_at, name, workspace_name, id"),
            " s ORDER BY s.created_at, s.name, s.workspace_name, s.id"
        )
    };
}

const LIST_ALL: List = List {
    every: list_all!(everywhere!("sandbox", measured!())),
    selected: list_all!(selected_everywhere!("sandbox", measured!())),
};

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
