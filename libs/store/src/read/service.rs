//! Services that sandboxes expose.

use super::list::{self, everywhere, fitting, in_workspace};
use super::{Listed, Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::flight::Step;
use crate::parameter::value;
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

/// All of a service is short.
macro_rules! measured {
    () => {
        "*, 0 AS size"
    };
}

const LIST: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    ", e.candidates",
    from_access!(),
    " LEFT JOIN LATERAL ",
    fitting!(in_workspace!("service_endpoint", measured!()), "created_at, name, id"),
    " e ON seen ORDER BY e.created_at, e.name, e.id"
);

/// A row without a service says if the sandbox is there.
const OF_SANDBOX: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, ",
    columns!(),
    ", e.candidates",
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $7 LEFT JOIN LATERAL ",
    fitting!(
        concat!(
            "SELECT ",
            measured!(),
            " FROM service_endpoint WHERE sandbox_id = s.id AND (created_at, name, id) > ($3, $4, $5) \
             ORDER BY created_at, name, id LIMIT $6"
        ),
        "created_at, name, id"
    ),
    " e ON true ORDER BY e.created_at, e.name, e.id"
);

const LIST_ALL: &str = concat!(
    "SELECT ",
    columns!(),
    ", e.candidates FROM ",
    fitting!(everywhere!("service_endpoint", measured!()), "created_at, name, workspace_name, id"),
    " e ORDER BY e.created_at, e.name, e.workspace_name, e.id"
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
    ) -> Result<Seen<Listed<ServiceEndpoint>>, StoreError> {
        let most = page.most;
        let mut parameters = vec![value(workspace.to_owned()), reader.parameter()];
        parameters.extend(page.in_workspace());
        Ok(super::seen_all(&self.rows(Step { sql: LIST, parameters }).await?, most, read)?)
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
    ) -> Result<Seen<Option<Listed<ServiceEndpoint>>>, StoreError> {
        let most = page.most;
        let mut parameters = vec![value(workspace.to_owned()), reader.parameter()];
        parameters.extend(page.in_workspace());
        parameters.push(value(sandbox.to_owned()));
        Ok(super::seen_of_parent(&self.rows(Step { sql: OF_SANDBOX, parameters }).await?, most, read)?)
    }

    /// A page of the services of all workspaces, for those who may see everything. `page.labels` plays no part.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn services_everywhere(&self, page: Page) -> Result<Listed<ServiceEndpoint>, StoreError> {
        let most = page.most;
        let rows = self.rows(Step::new(LIST_ALL, page.everywhere())).await?;
        Ok(list::items(&rows, 0, most, read)?)
    }
}
