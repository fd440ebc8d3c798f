//! Lists: which statement reads a page, how many bytes of it, and what more there is.
//!
//! A page costs what is on it. Its place is found by an index in the order of the list; with a selector, by the index of
//! the labels in that same order. Rows are measured before they are read, and those that begin behind the first 4 MiB are
//! left for the next page.

use tokio_postgres::Row;
use uuid::Uuid;

use super::{Page, Reader};
use crate::fields::{Fields, Malformed};
use crate::flight::Step;
use crate::parameter::{Parameter, pairs, time, value};
use crate::row::Pairs;

/// A page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// Whether more follow behind the last one.
    pub more: bool,
}

/// `$candidates`, which come in the order of `$order` and have their `size` in bytes, cut to what fits on a page. Each
/// row also says how many candidates there were.
macro_rules! fitting {
    ($candidates:expr, $order:literal) => {
        concat!(
            "(SELECT * FROM (SELECT c.*, count(*) OVER () AS candidates, \
             sum(c.size) OVER (ORDER BY ",
            $order,
            " ROWS UNBOUNDED PRECEDING) - c.size AS before FROM (",
            $candidates,
            ") c) measured WHERE before < 4194304)"
        )
    };
}

/// Of the pairs in `$pairs` the one that the fewest objects bear, among those that `$scope` names. More than a thousand
/// are not told apart, and a pair that is alone is not counted.
macro_rules! rarest {
    ($table:literal, $pairs:literal, $scope:literal) => {
        concat!(
            "(SELECT asked.pair FROM unnest(",
            $pairs,
            "::text[]) asked (pair) CROSS JOIN LATERAL (SELECT count(*) AS bearers FROM (SELECT FROM label b WHERE \
             cardinality(",
            $pairs,
            "::text[]) > 1 AND b.kind = '",
            $table,
            "' AND b.pair = asked.pair",
            $scope,
            " LIMIT 1000) few) counted ORDER BY counted.bearers, asked.pair LIMIT 1)"
        )
    };
}

/// Candidates in the workspace `$1` behind `($3, $4, $5)`, at most `$6`.
macro_rules! in_workspace {
    ($table:literal, $shown:expr) => {
        concat!(
            "SELECT ",
            $shown,
            " FROM ",
            $table,
            " WHERE workspace_name = $1 AND (created_at, name, id) > ($3, $4, $5) ORDER BY created_at, name, id LIMIT $6"
        )
    };
}

/// As `in_workspace`, with the labels `$7`, which as pairs are `$8`. One object at a time is looked up, in the order of
/// the label.
macro_rules! selected_in_workspace {
    ($table:literal, $shown:expr) => {
        concat!(
            "SELECT o.* FROM label l CROSS JOIN LATERAL (SELECT ",
            $shown,
            " FROM ",
            $table,
            " WHERE id = l.object_id AND labels @> $7 LIMIT 1) o WHERE l.kind = '",
            $table,
            "' AND l.pair = ",
            rarest!($table, "$8", " AND b.workspace_name = $1"),
            " AND l.workspace_name = $1 AND (l.created_at, l.name, l.object_id) > ($3, $4, $5) \
             ORDER BY l.created_at, l.name, l.object_id LIMIT $6"
        )
    };
}

/// Candidates in all workspaces behind `($1, $2, $3, $4)`, at most `$5`.
macro_rules! everywhere {
    ($table:literal, $shown:expr) => {
        concat!(
            "SELECT ",
            $shown,
            " FROM ",
            $table,
            " WHERE (created_at, name, workspace_name, id) > ($1, $2, $3, $4) \
             ORDER BY created_at, name, workspace_name, id LIMIT $5"
        )
    };
}

/// As `everywhere`, with the labels `$6`, which as pairs are `$7`.
macro_rules! selected_everywhere {
    ($table:literal, $shown:expr) => {
        concat!(
            "SELECT o.* FROM label l CROSS JOIN LATERAL (SELECT ",
            $shown,
            " FROM ",
            $table,
            " WHERE id = l.object_id AND labels @> $6 LIMIT 1) o WHERE l.kind = '",
            $table,
            "' AND l.pair = ",
            rarest!($table, "$7", ""),
            " AND (l.created_at, l.name, l.workspace_name, l.object_id) > ($1, $2, $3, $4) \
             ORDER BY l.created_at, l.name, l.workspace_name, l.object_id LIMIT $5"
        )
    };
}

/// A page of one workspace: who reads, `$columns` of each object as `$alias`, and how many candidates there were.
macro_rules! page_in_workspace {
    ($alias:literal, $columns:expr, $candidates:expr) => {
        concat!(
            "SELECT ",
            access_columns!(),
            ", ",
            $columns,
            ", ",
            $alias,
            ".candidates",
            from_access!(),
            " LEFT JOIN LATERAL ",
            fitting!($candidates, "created_at, name, id"),
            " ",
            $alias,
            " ON seen ORDER BY ",
            $alias,
            ".created_at, ",
            $alias,
            ".name, ",
            $alias,
            ".id"
        )
    };
}

/// A page of all workspaces: `$columns` of each object as `$alias`, and how many candidates there were.
macro_rules! page_everywhere {
    ($alias:literal, $columns:expr, $candidates:expr) => {
        concat!(
            "SELECT ",
            $columns,
            ", ",
            $alias,
            ".candidates FROM ",
            fitting!($candidates, "created_at, name, workspace_name, id"),
            " ",
            $alias,
            " ORDER BY ",
            $alias,
            ".created_at, ",
            $alias,
            ".name, ",
            $alias,
            ".workspace_name, ",
            $alias,
            ".id"
        )
    };
}

/// The [`List`] of a table inside one workspace: what is shown of an object, and its `$measured` columns.
macro_rules! list_in_workspace {
    ($table:literal, $alias:literal, $columns:expr, $measured:expr) => {
        List {
            every: page_in_workspace!($alias, $columns, in_workspace!($table, $measured)),
            selected: page_in_workspace!($alias, $columns, selected_in_workspace!($table, $measured)),
        }
    };
}

/// The [`List`] of a table over all workspaces.
macro_rules! list_everywhere {
    ($table:literal, $alias:literal, $columns:expr, $measured:expr) => {
        List {
            every: page_everywhere!($alias, $columns, everywhere!($table, $measured)),
            selected: page_everywhere!($alias, $columns, selected_everywhere!($table, $measured)),
        }
    };
}
pub(crate) use {
    everywhere, fitting, in_workspace, list_everywhere, list_in_workspace, page_everywhere, page_in_workspace, rarest,
    selected_everywhere, selected_in_workspace,
};

/// The statements of a list: for all its items, and for those with certain labels.
pub(super) struct List {
    pub(super) every: &'static str,
    pub(super) selected: &'static str,
}

impl List {
    /// `$1` is the workspace, `$2` the reader, `$3` to `$6` where the page begins and how long it is.
    pub(super) fn in_workspace(&self, workspace: &str, reader: Reader<'_>, page: Page) -> Step {
        let labels = page.labels.clone();
        let mut parameters = vec![value(workspace.to_owned()), reader.parameter()];
        parameters.extend(page.in_workspace());
        self.step(parameters, labels)
    }

    /// `$1` to `$5` are where the page begins and how long it is.
    pub(super) fn everywhere(&self, page: Page) -> Step {
        let labels = page.labels.clone();
        self.step(page.everywhere().into(), labels)
    }

    /// The last two parameters are the labels, if there are any, in two forms.
    pub(super) fn step(&self, mut parameters: Vec<Parameter>, labels: Pairs) -> Step {
        if labels.is_empty() {
            return Step { sql: self.every, parameters };
        }
        let asked: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        parameters.extend([pairs(labels), value(asked)]);
        Step { sql: self.selected, parameters }
    }
}

impl Page {
    /// Time, name, id, limit: for lists inside one workspace.
    pub(super) fn in_workspace(self) -> [Parameter; 4] {
        let limit = self.limit();
        [time(self.after.created_at), value(self.after.name), value(self.after.id), limit]
    }

    /// Time, name, workspace, id, limit: for lists over all workspaces.
    pub(super) fn everywhere(self) -> [Parameter; 5] {
        let limit = self.limit();
        let after = self.after;
        [time(after.created_at), value(after.name), value(after.workspace), value(after.id), limit]
    }

    fn limit(&self) -> Parameter {
        limit(self.most)
    }
}

/// One more than is shown tells whether more follow.
pub(super) fn limit(most: u32) -> Parameter {
    value(i64::from(most) + 1)
}

/// Reads at most `most` items that stand behind `skip` columns, each with the number of candidates behind it. A row with
/// null columns is none.
pub(super) fn items<T>(
    rows: &[Row],
    skip: usize,
    most: u32,
    mut read: impl FnMut(&mut Fields<'_>) -> Result<T, Malformed>,
) -> Result<Listed<T>, Malformed> {
    let (mut items, mut candidates) = (Vec::with_capacity(rows.len()), 0);
    for row in rows {
        let mut fields = Fields::of(row);
        fields.skip(skip);
        if !fields.is_next_null::<Uuid>()? {
            items.push(read(&mut fields)?);
            candidates = fields.count()?;
        }
    }
    items.truncate(most as usize);
    Ok(Listed { more: candidates > items.len() as u64, items })
}
