//! Services that sandboxes expose.

use super::{After, Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::all;
use crate::flight::Step;
use crate::parameter::{Parameter, time, value};
use crate::row::ServiceEndpoint;
use crate::table::service_endpoint::{columns, read};

const GET: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 \
     LEFT JOIN service_endpoint e ON e.sandbox_id = s.id AND e.service = $4"
);

const LIST: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    from_access!(),
    " LEFT JOIN LATERAL (SELECT * FROM service_endpoint e WHERE e.workspace_name = $1 \
     AND (e.created_at, e.name, e.id) > ($3, $4, $5) ORDER BY e.created_at, e.name, e.id LIMIT $6) e ON seen \
     ORDER BY e.created_at, e.name, e.id"
);

/// A row without a service says if the sandbox is there.
const OF_SANDBOX: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, ",
    columns!(),
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 \
     LEFT JOIN LATERAL (SELECT * FROM service_endpoint e WHERE e.sandbox_id = s.id \
     AND (e.created_at, e.name, e.id) > ($4, $5, $6) ORDER BY e.created_at, e.name, e.id LIMIT $7) e ON true \
     ORDER BY e.created_at, e.name, e.id"
);

const LIST_ALL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM service_endpoint e WHERE (e.created_at, e.name, e.workspace_name, e.id) > ($1, $2, $3, $4) \
     ORDER BY e.created_at, e.name, e.workspace_name, e.id LIMIT $5"
);

impl Database {
    /// A service of a sandbox by name; its one service without a name for the empty one.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn service(
        &self,
        workspace: &str,
        sandbox: &str,
        service: &str,
        reader: Reader<'_>,
    ) -> Result<Seen<Option<ServiceEndpoint>>, StoreError> {
        let step = Step::new(
            GET,
            [value(workspace.to_owned()), reader.parameter(), value(sandbox.to_owned()), value(service.to_owned())],
        );
        Ok(super::seen_one(&self.rows(step).await?, read)?)
    }

    /// A page of the workspace's services. `page.labels` plays no part.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn services(
        &self,
        workspace: &str,
        reader: Reader<'_>,
        page: Page,
    ) -> Result<Seen<Vec<ServiceEndpoint>>, StoreError> {
        let parameters = super::with([value(workspace.to_owned()), reader.parameter()], behind(page));
        Ok(super::seen_all(&self.rows(Step { sql: LIST, parameters }).await?, read)?)
    }

    /// A page of one sandbox's services; none if there is no such sandbox. `page.labels` plays no part.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandbox_services(
        &self,
        workspace: &str,
        sandbox: &str,
        reader: Reader<'_>,
        page: Page,
    ) -> Result<Seen<Option<Vec<ServiceEndpoint>>>, StoreError> {
        let named = [value(workspace.to_owned()), reader.parameter(), value(sandbox.to_owned())];
        let parameters = super::with(named, behind(page));
        Ok(super::seen_of_parent(&self.rows(Step { sql: OF_SANDBOX, parameters }).await?, read)?)
    }

    /// A page of the services of all workspaces, for those who may see everything. `page.labels` plays no part.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn services_everywhere(&self, page: Page) -> Result<Vec<ServiceEndpoint>, StoreError> {
        let Page { after: After { created_at, name, workspace, id }, most, .. } = page;
        let step =
            Step::new(LIST_ALL, [time(created_at), value(name), value(workspace), value(id), value(i64::from(most))]);
        Ok(all(&self.rows(step).await?, read)?)
    }
}

/// Time, name, id, limit.
fn behind(page: Page) -> [Parameter; 4] {
    let Page { after, most, .. } = page;
    [time(after.created_at), value(after.name), value(after.id), value(i64::from(most))]
}
