//! What admission serves, as one value: the operation of each command, and what the ledger knows of its method.

use std::fmt;
use std::sync::Arc;

use roadstead_proto::method::Method;

use crate::ledger::MethodRow;
use crate::ledger::method_row::ROWS;
use crate::operation::{self, Name, Operation, Unreadable};

/// Reads the operation of a command.
pub type Read = Arc<dyn Fn(Name, &[u8]) -> Result<Box<dyn Operation>, Unreadable> + Send + Sync>;

/// The table of what is served. By default, everything that there is.
#[derive(Clone)]
pub struct Served {
    pub rows: Vec<MethodRow>,
    pub read: Read,
}

impl Default for Served {
    fn default() -> Self {
        Self { rows: ROWS.to_vec(), read: Arc::new(operation::read) }
    }
}

impl Served {
    /// The row of a command, if it is a method that takes a request id.
    #[must_use]
    pub fn row(&self, name: Name) -> Option<MethodRow> {
        match name {
            Name::Method(method) => self.row_of(method),
            Name::Report(_) => None,
        }
    }

    fn row_of(&self, method: Method) -> Option<MethodRow> {
        self.rows.iter().find(|row| row.method == method).copied()
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Served").field("rows", &self.rows).finish_non_exhaustive()
    }
}
