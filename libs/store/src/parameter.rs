//! Values on their way into a statement. The driver prints parameters in its debug log; these print nothing.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use prost::Message;
use tokio_postgres::types::{IsNull, Json, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::row::Pairs;

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// One value, owned.
pub(crate) struct Parameter(Box<dyn ToSql + Sync + Send>);

/// Whatever the driver knows how to write.
pub(crate) fn value(value: impl ToSql + Sync + Send + 'static) -> Parameter {
    Parameter(Box::new(value))
}

/// A counter. Those that a peer chooses may use all 64 bits; they are only read back, never compared in SQL.
pub(crate) fn count(value: u64) -> Parameter {
    self::value(value.cast_signed())
}

/// A point in time, at most the last second of the year 9999, as in the public API.
pub(crate) fn time(at: SystemTime) -> Parameter {
    value(within_range(at))
}

/// As [`time`], or null.
pub(crate) fn optional_time(at: Option<SystemTime>) -> Parameter {
    value(at.map(within_range))
}

/// String pairs as JSON.
pub(crate) fn pairs(pairs: Pairs) -> Parameter {
    value(Json(pairs))
}

/// An encoded message.
pub(crate) fn message(message: &impl Message) -> Parameter {
    value(message.encode_to_vec())
}

/// An enum of the API.
pub(crate) fn number(value: impl Into<i32>) -> Parameter {
    let number: i32 = value.into();
    // Values of the API's enums are small; anything else breaks a check of the table.
    self::value(i16::try_from(number).unwrap_or(i16::MAX))
}

/// A sandbox's id, or nil for the whole deployment.
pub(crate) fn scope(scope: Option<Uuid>) -> Parameter {
    value(scope.unwrap_or(Uuid::nil()))
}

pub(crate) fn within_range(at: SystemTime) -> SystemTime {
    const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);
    at.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST_SECOND)
}

impl ToSql for Parameter {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.0.to_sql_checked(kind, out)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl fmt::Debug for Parameter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("..")
    }
}
