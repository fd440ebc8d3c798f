//! What the projection and the sweepers read: by id, each with the epoch of the same snapshot.

use std::collections::{BTreeMap, HashMap};

use roadstead_proto::api::v1::WorkspaceRole;
use uuid::Uuid;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::{Fields, all, only};
use crate::flight::Step;
use crate::parameter::value;
use crate::row::Sandbox;
use crate::table::sandbox::{columns, provider_names, read_whole};

/// A sandbox's row in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub workspace_id: Uuid,
    pub id: Uuid,
    pub resource_version: u64,
}

const SANDBOXES: &str = concat!(
    "SELECT e.value, ",
    columns!(),
    ", ",
    provider_names!(),
    " FROM epoch e LEFT JOIN sandbox s ON s.id = ANY ($1)"
);

const RIGHTS: &str = "SELECT e.value, w.id, m.subject, m.role
    FROM epoch e LEFT JOIN workspace w ON w.id = $1 LEFT JOIN member m ON m.workspace_id = w.id";

const VERSIONS: &str = "SELECT workspace_id, id, resource_version FROM sandbox WHERE id > $1 ORDER BY id LIMIT $2";

const WORKSPACES: &str = "SELECT id FROM workspace WHERE id > $1 ORDER BY id LIMIT $2";

impl Database {
    /// The epoch, and those of the sandboxes that are there.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandbox_entries(&self, ids: &[Uuid]) -> Result<(u64, HashMap<Uuid, Sandbox>), StoreError> {
        let rows = self.rows(Step::new(SANDBOXES, [value(ids.to_vec())])).await?;
        let epoch = only(&rows, |fields| fields.count())?;
        let mut sandboxes = HashMap::with_capacity(rows.len());
        for row in &rows {
            let mut fields = Fields::of(row);
            fields.skip(1);
            if !fields.is_next_null::<Uuid>()? {
                let sandbox = read_whole(&mut fields)?;
                sandboxes.insert(sandbox.id, sandbox);
            }
        }
        Ok((epoch, sandboxes))
    }

    /// The epoch, and the members of a workspace with their roles; none if there is no such workspace.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn rights(
        &self,
        workspace_id: Uuid,
    ) -> Result<(u64, Option<BTreeMap<String, WorkspaceRole>>), StoreError> {
        let rows = self.rows(Step::new(RIGHTS, [value(workspace_id)])).await?;
        let (epoch, there) = only(&rows, |fields| Ok((fields.count()?, !fields.is_next_null::<Uuid>()?)))?;
        if !there {
            return Ok((epoch, None));
        }
        let mut members = BTreeMap::new();
        for row in &rows {
            let mut fields = Fields::of(row);
            fields.skip(2);
            if let Some(subject) = fields.take::<Option<String>>()? {
                members.insert(subject, fields.number()?);
            }
        }
        Ok((epoch, Some(members)))
    }

    /// A page of all sandboxes by id, after `after` (nil in front of all).
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandbox_versions(&self, after: Uuid, most: u32) -> Result<Vec<Version>, StoreError> {
        let rows = self.rows(Step::new(VERSIONS, [value(after), value(i64::from(most))])).await?;
        Ok(all(&rows, |fields| {
            Ok(Version { workspace_id: fields.take()?, id: fields.take()?, resource_version: fields.count()? })
        })?)
    }

    /// A page of all workspaces by id, after `after` (nil in front of all).
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn workspace_ids(&self, after: Uuid, most: u32) -> Result<Vec<Uuid>, StoreError> {
        let rows = self.rows(Step::new(WORKSPACES, [value(after), value(i64::from(most))])).await?;
        Ok(all(&rows, |fields| fields.take())?)
    }
}
