//! Members.

use super::{Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::flight::Step;
use crate::parameter::{time, value};
use crate::row::Member;
use crate::table::member;

const LIST: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", l.* ",
    from_access!(),
    " LEFT JOIN LATERAL (SELECT m.id, m.workspace_id, m.subject, m.role, m.resource_version, m.created_at FROM member m \
     WHERE m.workspace_name = $1 AND (m.created_at, m.subject, m.id) > ($3, $4, $5) \
     ORDER BY m.created_at, m.subject, m.id LIMIT $6) l ON seen ORDER BY l.created_at, l.subject, l.id"
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
    ) -> Result<Seen<Vec<Member>>, StoreError> {
        let Page { after, most, .. } = page;
        let step = Step::new(
            LIST,
            [
                value(workspace.to_owned()),
                reader.parameter(),
                time(after.created_at),
                value(after.name),
                value(after.id),
                value(i64::from(most)),
            ],
        );
        Ok(super::seen_all(&self.rows(step).await?, member::read)?)
    }
}
