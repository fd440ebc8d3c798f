//! Members.

use super::list::fitting;
use super::{Listed, Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::flight::Step;
use crate::parameter::value;
use crate::row::Member;
use crate::table::member;

const LIST: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", l.id, l.workspace_id, l.subject, l.role, l.resource_version, l.created_at, l.candidates",
    from_access!(),
    " LEFT JOIN LATERAL ",
    fitting!(
        "SELECT m.*, octet_length(m.subject) AS size FROM member m WHERE m.workspace_name = $1 \
         AND (m.created_at, m.subject, m.id) > ($3, $4, $5) ORDER BY m.created_at, m.subject, m.id LIMIT $6",
        "created_at, subject, id"
    ),
    " l ON seen ORDER BY l.created_at, l.subject, l.id"
);

impl Database {
    /// A page of the workspace's members. `page.labels` plays no part.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn members(
        &self,
        workspace: &str,
        reader: Reader<'_>,
        page: Page,
    ) -> Result<Seen<Listed<Member>>, StoreError> {
        let most = page.most;
        let mut parameters = vec![value(workspace.to_owned()), reader.parameter()];
        parameters.extend(page.in_workspace());
        Ok(super::seen_all(&self.rows(Step { sql: LIST, parameters }).await?, most, member::read)?)
    }
}
