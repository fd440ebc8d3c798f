//! What the projection and the sweepers read: by id, each with the epoch of the same snapshot.

use std::collections::BTreeMap;

use roadstead_proto::api::v1::WorkspaceRole;
use uuid::Uuid;

use super::list::fitting;
use super::sandbox::bytes;
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

/// The sandboxes of `$1` in the order in which they are asked for, as far as they fit. One that is not there takes no room.
const SANDBOXES: &str = concat!(
    "SELECT e.value, s.place, ",
    columns!(),
    ", ",
    provider_names!(),
    " FROM epoch e LEFT JOIN ",
    fitting!(
        concat!(
            "SELECT asked.place, s.*, coalesce(",
            bytes!(),
            ", 0) AS size FROM unnest($1::uuid[]) WITH ORDINALITY asked (id, place) LEFT JOIN sandbox s ON s.id = asked.id \
             ORDER BY asked.place"
        ),
        "place"
    ),
    " s ON true ORDER BY s.place"
);

const RIGHTS: &str = "SELECT e.value, w.id, m.subject, m.role
    FROM epoch e LEFT JOIN workspace w ON w.id = $1 LEFT JOIN member m ON m.workspace_id = w.id";

const VERSIONS: &str = "SELECT workspace_id, id, resource_version FROM sandbox WHERE id > $1 ORDER BY id LIMIT $2";

const WORKSPACES: &str = "SELECT id FROM workspace WHERE id > $1 ORDER BY id LIMIT $2";

impl Database {
    /// The epoch, and the first of the sandboxes that are asked for, at least one and no more than 4 MiB; none in the place
    /// of one that is not there.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandbox_entries(&self, ids: &[Uuid]) -> Result<(u64, Vec<Option<Sandbox>>), StoreError> {
        let rows = self.rows(Step::new(SANDBOXES, [value(ids.to_vec())])).await?;
        let epoch = only(&rows, |fields| fields.count())?;
        let mut sandboxes = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut fields = Fields::of(row);
            fields.skip(1);
            if fields.take::<Option<i64>>()?.is_some() {
                let there = !fields.is_next_null::<Uuid>()?;
                sandboxes.push(there.then(|| read_whole(&mut fields)).transpose()?);
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
