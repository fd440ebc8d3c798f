//! Workspaces.

use super::list::{self, List, fitting, rarest};
use super::{Access, Listed, Page, Reader, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::only;
use crate::flight::Step;
use crate::parameter::{pairs, value};
use crate::row::Workspace;
use crate::table::workspace::{self, columns};

const GET: &str = concat!("SELECT ", access_columns!(), from_access!());

/// What is listed, and what of it can be large.
macro_rules! measured {
    () => {
        "*, pg_column_size(labels) AS size"
    };
}

macro_rules! list {
    ($candidates:expr) => {
        concat!(
            "SELECT ",
            columns!(),
            ", w.candidates FROM ",
            fitting!($candidates, "created_at, name, id"),
            " w ORDER BY w.created_at, w.name, w.id"
        )
    };
}

const LIST: List = List {
    every: list!(concat!(
        "SELECT ",
        measured!(),
        " FROM workspace WHERE (created_at, name, id) > ($1, $2, $3) ORDER BY created_at, name, id LIMIT $4"
    )),
    selected: list!(concat!(
        "SELECT w.* FROM label l CROSS JOIN LATERAL (SELECT ",
        measured!(),
        " FROM workspace WHERE id = l.object_id AND labels @> $5 LIMIT 1) w WHERE l.kind = 'workspace' \
         AND l.pair = ",
        rarest!("workspace", "$6", " AND b.workspace_name = ''"),
        " AND l.workspace_name = '' AND (l.created_at, l.name, l.object_id) > ($1, $2, $3) \
         ORDER BY l.created_at, l.name, l.object_id LIMIT $4"
    )),
};

/// Those of which `$5` is a member, in the order of its memberships; `$6` are labels.
const LIST_OF_MEMBER: &str = list!(concat!(
    "SELECT w.* FROM member m CROSS JOIN LATERAL (SELECT ",
    measured!(),
    " FROM workspace WHERE id = m.workspace_id AND labels @> $6 LIMIT 1) w WHERE m.subject = $5 \
     AND (m.workspace_created_at, m.workspace_name, m.workspace_id) > ($1, $2, $3) \
     ORDER BY m.workspace_created_at, m.workspace_name, m.workspace_id LIMIT $4"
));

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
    pub async fn workspaces(&self, reader: Reader<'_>, page: Page) -> Result<Listed<Workspace>, StoreError> {
        let (most, labels) = (page.most, page.labels.clone());
        let mut parameters = Vec::from(page.in_workspace());
        let step = match reader.subject {
            None => LIST.step(parameters, labels),
            Some(subject) => {
                parameters.extend([value(subject.to_owned()), pairs(labels)]);
                Step { sql: LIST_OF_MEMBER, parameters }
            }
        };
        Ok(list::items(&self.rows(step).await?, 0, most, workspace::read)?)
    }
}
