//! Providers, always without the values of their credentials: the watch role may not even ask for those.

use super::{Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::fields::all;
use crate::flight::Step;
use crate::parameter::value;
use crate::row::Provider;
use crate::table::provider::{columns, read};

/// What a list may order by and show; a role that may not read the values cannot use `*`.
macro_rules! shown {
    () => {
        "p.id, p.workspace_id, p.workspace_name, p.name, p.kind, p.profile_workspace, p.config, p.labels, \
         p.annotations, p.resource_version, p.created_at, p.credential_keys, p.credential_expirations"
    };
}

const GET: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    ", NULL::bytea[]",
    from_access!(),
    " LEFT JOIN provider p ON seen AND p.workspace_name = $1 AND p.name = $3"
);

const LIST: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    ", NULL::bytea[]",
    from_access!(),
    " LEFT JOIN LATERAL (SELECT ",
    shown!(),
    " FROM provider p WHERE p.workspace_name = $1 AND p.labels @> $3 \
     AND (p.created_at, p.name, p.id) > ($4, $5, $6) ORDER BY p.created_at, p.name, p.id LIMIT $7) p ON seen \
     ORDER BY p.created_at, p.name, p.id"
);

const LIST_ALL: &str = concat!(
    "SELECT ",
    columns!(),
    ", NULL::bytea[], p.workspace_name",
    " FROM provider p WHERE p.labels @> $1 AND (p.created_at, p.name, p.workspace_name, p.id) > ($2, $3, $4, $5) \
     ORDER BY p.created_at, p.name, p.workspace_name, p.id LIMIT $6"
);

/// A row without a provider says if the sandbox is there.
const ATTACHED: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, ",
    columns!(),
    ", NULL::bytea[]",
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 LEFT JOIN LATERAL (SELECT ",
    shown!(),
    " FROM attachment a JOIN provider p ON p.id = a.provider_id WHERE a.sandbox_id = s.id AND p.name > $4 \
     ORDER BY p.name LIMIT $5) p ON true ORDER BY p.name"
);

impl Database {
    /// A provider by name.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn provider(
        &self,
        workspace: &str,
        name: &str,
        reader: Reader<'_>,
    ) -> Result<Seen<Option<Provider>>, StoreError> {
        let step = Step::new(GET, [value(workspace.to_owned()), reader.parameter(), value(name.to_owned())]);
        Ok(super::seen_one(&self.rows(step).await?, read)?)
    }

    /// A page of the workspace's providers.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn providers(
        &self,
        workspace: &str,
        reader: Reader<'_>,
        page: Page,
    ) -> Result<Seen<Vec<Provider>>, StoreError> {
        let parameters = super::with([value(workspace.to_owned()), reader.parameter()], page.in_workspace());
        Ok(super::seen_all(&self.rows(Step { sql: LIST, parameters }).await?, read)?)
    }

    /// A page of the providers of all workspaces with the names of those, for readers who may see everything.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn providers_everywhere(&self, page: Page) -> Result<Vec<(String, Provider)>, StoreError> {
        let rows = self.rows(Step::new(LIST_ALL, page.everywhere())).await?;
        Ok(all(&rows, |fields| {
            let provider = read(fields)?;
            Ok((fields.take()?, provider))
        })?)
    }

    /// The providers attached to a sandbox, by name, after the name `after`; none if there is no such sandbox.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandbox_providers(
        &self,
        workspace: &str,
        sandbox: &str,
        reader: Reader<'_>,
        after: &str,
        most: u32,
    ) -> Result<Seen<Option<Vec<Provider>>>, StoreError> {
        let step = Step::new(
            ATTACHED,
            [
                value(workspace.to_owned()),
                reader.parameter(),
                value(sandbox.to_owned()),
                value(after.to_owned()),
                value(i64::from(most)),
            ],
        );
        Ok(super::seen_of_parent(&self.rows(step).await?, read)?)
    }
}
