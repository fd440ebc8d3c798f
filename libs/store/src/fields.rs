//! The columns of a row, taken in the order of the statement's list.

use std::time::SystemTime;

use bytes::Bytes;
use prost::Message;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Json};

use crate::row::Pairs;

/// A row that is not what the statement promised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a row cannot be read: {0}")]
pub(crate) struct Malformed(pub(crate) String);

/// A cursor over the columns of one row.
pub(crate) struct Fields<'a> {
    row: &'a Row,
    next: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(row: &'a Row) -> Self {
        Self { row, next: 0 }
    }

    /// The next column.
    pub(crate) fn take<T: FromSql<'a>>(&mut self) -> Result<T, Malformed> {
        let value = self.row.try_get(self.next).map_err(|error| Malformed(format!("column {}: {error}", self.next)))?;
        self.next += 1;
        Ok(value)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        self.take::<Vec<u8>>().map(Bytes::from)
    }

    pub(crate) fn count(&mut self) -> Result<u64, Malformed> {
        self.take::<i64>().map(i64::cast_unsigned)
    }

    pub(crate) fn version(&mut self) -> Result<u32, Malformed> {
        let version = self.take::<i64>()?;
        u32::try_from(version).map_err(|_| Malformed(format!("version {version}")))
    }

    pub(crate) fn pairs(&mut self) -> Result<Pairs, Malformed> {
        self.take::<Json<Pairs>>().map(|json| json.0)
    }

    pub(crate) fn message<M: Message + Default>(&mut self) -> Result<M, Malformed> {
        M::decode(self.take::<&[u8]>()?).map_err(|error| Malformed(error.to_string()))
    }

    /// A message, or none where the column is null.
    pub(crate) fn optional_message<M: Message + Default>(&mut self) -> Result<Option<M>, Malformed> {
        let encoded: Option<&[u8]> = self.take()?;
        encoded.map(|bytes| M::decode(bytes).map_err(|error| Malformed(error.to_string()))).transpose()
    }

    pub(crate) fn time(&mut self) -> Result<SystemTime, Malformed> {
        self.take()
    }

    /// An enum of the API.
    pub(crate) fn number<E: TryFrom<i32>>(&mut self) -> Result<E, Malformed> {
        let number = self.take::<i16>()?;
        E::try_from(number.into()).map_err(|_| Malformed(format!("enum value {number}")))
    }

    /// Whether the next column, which stays the next one, is null.
    pub(crate) fn is_next_null<T: FromSql<'a>>(&self) -> Result<bool, Malformed> {
        let value: Option<T> =
            self.row.try_get(self.next).map_err(|error| Malformed(format!("column {}: {error}", self.next)))?;
        Ok(value.is_none())
    }

    /// Steps over `columns` columns.
    pub(crate) fn skip(&mut self, columns: usize) {
        self.next += columns;
    }
}

/// The only row, if there is one.
pub(crate) fn first<T>(
    rows: &[Row],
    read: impl FnOnce(&mut Fields<'_>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    rows.first().map(|row| read(&mut Fields::of(row))).transpose()
}

/// Every row.
pub(crate) fn all<T>(
    rows: &[Row],
    mut read: impl FnMut(&mut Fields<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    rows.iter().map(|row| read(&mut Fields::of(row))).collect()
}

/// The only row of a statement that always has one.
pub(crate) fn only<T>(
    rows: &[Row],
    read: impl FnOnce(&mut Fields<'_>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    first(rows, read)?.ok_or_else(|| Malformed("no row".to_owned()))
}
