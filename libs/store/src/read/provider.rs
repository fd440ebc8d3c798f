//! Providers, always without the values of their credentials: the watch role may not even ask for those.

use super::list::{
    self, List, everywhere, fitting, in_workspace, list_everywhere, list_in_workspace, page_everywhere,
    page_in_workspace, rarest, selected_everywhere, selected_in_workspace,
};
use super::{Listed, Page, Reader, Seen, access_columns, from_access};
use crate::database::Database;
use crate::error::StoreError;
use crate::flight::Step;
use crate::parameter::value;
use crate::row::Provider;
use crate::table::provider::{columns, read};

const GET: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    columns!(),
    ", NULL::bytea[]",
    from_access!(),
    " LEFT JOIN provider p ON seen AND p.workspace_name = $1 AND p.name = $3"
);

/// What is listed, and what of it can be large; a role that may not read the values cannot use `*`.
macro_rules! measured {
    () => {
        "id, workspace_id, workspace_name, name, kind, profile_workspace, config, labels, annotations, resource_version, \
         created_at, credential_keys, credential_expirations, pg_column_size(config) + pg_column_size(annotations) \
         + pg_column_size(labels) + pg_column_size(credential_keys) AS size"
    };
}

const LIST: List = list_in_workspace!("provider", "p", concat!(columns!(), ", NULL::bytea[]"), measured!());

const LIST_ALL: List =
    list_everywhere!("provider", "p", concat!(columns!(), ", NULL::bytea[], p.workspace_name"), measured!());

/// A row without a provider says if the sandbox is there.
const ATTACHED: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", s.id, ",
    columns!(),
    ", NULL::bytea[], p.candidates",
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3 LEFT JOIN LATERAL ",
    fitting!(
        concat!(
            "SELECT ",
            measured!(),
            " FROM attachment a JOIN provider p ON p.id = a.provider_id WHERE a.sandbox_id = s.id AND p.name > $4 \
             ORDER BY p.name LIMIT $5"
        ),
        "name"
    ),
    " p ON true ORDER BY p.name"
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
    ) -> Result<Seen<Listed<Provider>>, StoreError> {
        let most = page.most;
        Ok(super::seen_all(&self.rows(LIST.in_workspace(workspace, reader, page)).await?, most, read)?)
    }

    /// A page of the providers of all workspaces with the names of those, for readers who may see everything.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn providers_everywhere(&self, page: Page) -> Result<Listed<(String, Provider)>, StoreError> {
        let most = page.most;
        let rows = self.rows(LIST_ALL.everywhere(page)).await?;
        Ok(list::items(&rows, 0, most, |fields| {
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
    ) -> Result<Seen<Option<Listed<Provider>>>, StoreError> {
        let step = Step::new(
            ATTACHED,
            [
                value(workspace.to_owned()),
                reader.parameter(),
                value(sandbox.to_owned()),
                value(after.to_owned()),
                list::limit(most),
            ],
        );
        Ok(super::seen_of_parent(&self.rows(step).await?, most, read)?)
    }
}
