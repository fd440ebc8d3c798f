//! The read side: each operation is one statement, with the caller's rights in the same snapshot.

mod entry;
mod list;
mod member;
mod policy;
mod provider;
mod readiness;
mod sandbox;
mod service;
mod setting;
mod standing;
mod template;
mod workspace;

use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1::WorkspaceRole;
use tokio_postgres::Row;
use uuid::Uuid;

pub use entry::Version;
pub use list::Listed;
pub use policy::Policies;
pub use readiness::Readiness;
pub use standing::Standing;

use crate::fields::{Fields, Malformed};
use crate::parameter::{Parameter, value};
use crate::row::{Pairs, Workspace};
use crate::table;

/// Who asks. A reader with a subject sees nothing of a workspace without being its member; without one, the rights were
/// judged elsewhere (platform admins).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader<'a> {
    pub subject: Option<&'a str>,
}

impl Reader<'_> {
    /// Someone who may see everything.
    pub const ADMIN: Reader<'static> = Reader { subject: None };

    fn parameter(self) -> Parameter {
        value(self.subject.map(str::to_owned))
    }
}

/// A workspace and what the reader is in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    pub workspace: Option<Workspace>,
    /// None also for a reader without a subject.
    pub role: Option<WorkspaceRole>,
}

/// What was read, and the access it was read with. Without access nothing was.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen<T> {
    pub access: Access,
    pub found: T,
}

/// Last item of a page: the next one starts behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    pub created_at: SystemTime,
    pub name: String,
    /// Name of the item's workspace; empty for workspaces.
    pub workspace: String,
    pub id: Uuid,
}

impl Default for After {
    /// In front of everything.
    fn default() -> Self {
        Self { created_at: SystemTime::UNIX_EPOCH, name: String::new(), workspace: String::new(), id: Uuid::nil() }
    }
}

impl After {
    /// Milliseconds since 1970; the resolution in which objects are created.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        let since = self.created_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// The point in time of that many milliseconds since 1970.
    #[must_use]
    pub fn at_ms(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// Which part of a list is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// All of these pairs must be on an item.
    pub labels: Pairs,
    pub after: After,
    /// Most items.
    pub most: u32,
}

/// Columns of [`access`], from [`FROM_ACCESS`].
macro_rules! access_columns {
    () => {
        concat!(crate::table::workspace::columns!(), ", m.role")
    };
}
/// One row, whatever is there: `$1` is the workspace's name, `$2` the subject or null. `seen` says if the reader may look.
macro_rules! from_access {
    () => {
        " FROM (VALUES (true)) one LEFT JOIN workspace w ON w.name = $1 \
         LEFT JOIN member m ON m.workspace_name = $1 AND m.subject = $2 \
         CROSS JOIN LATERAL (VALUES ($2::text IS NULL OR m.role IS NOT NULL)) sight (seen)"
    };
}
pub(crate) use {access_columns, from_access};

/// Reads [`access_columns!`].
pub(crate) fn access(fields: &mut Fields<'_>) -> Result<Access, Malformed> {
    let workspace = if fields.is_next_null::<Uuid>()? {
        fields.skip(table::workspace::COLUMNS);
        None
    } else {
        Some(table::workspace::read(fields)?)
    };
    let role: Option<i16> = fields.take()?;
    let role = role
        .map(|role| WorkspaceRole::try_from(i32::from(role)).map_err(|_| Malformed(format!("role {role}"))))
        .transpose()?;
    Ok(Access { workspace, role })
}

/// One item, or null columns with a null id in front.
fn seen_one<T>(
    rows: &[Row],
    read: impl FnOnce(&mut Fields<'_>) -> Result<T, Malformed>,
) -> Result<Seen<Option<T>>, Malformed> {
    crate::fields::only(rows, |fields| {
        let access = access(fields)?;
        let found = if fields.is_next_null::<Uuid>()? { None } else { Some(read(fields)?) };
        Ok(Seen { access, found })
    })
}

/// A page of items, or one row with a null id.
fn seen_all<T>(
    rows: &[Row],
    most: u32,
    read: impl FnMut(&mut Fields<'_>) -> Result<T, Malformed>,
) -> Result<Seen<Listed<T>>, Malformed> {
    let access = crate::fields::only(rows, access)?;
    Ok(Seen { access, found: list::items(rows, table::workspace::COLUMNS + 1, most, read)? })
}

/// A page of items of a parent, each row with the parent's id in front, and one row with null columns if there are none.
/// None: there is no parent.
fn seen_of_parent<T>(
    rows: &[Row],
    most: u32,
    read: impl FnMut(&mut Fields<'_>) -> Result<T, Malformed>,
) -> Result<Seen<Option<Listed<T>>>, Malformed> {
    let Seen { access, found } = seen_one(rows, |_| Ok(()))?;
    let Some(()) = found else { return Ok(Seen { access, found: None }) };
    Ok(Seen { access, found: Some(list::items(rows, table::workspace::COLUMNS + 2, most, read)?) })
}
