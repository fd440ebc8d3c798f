//! Renewals of processes, by Postgres's clock (D6).

use std::time::SystemTime;

use uuid::Uuid;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::only;
use crate::table::process;

/// What kind of process renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    Bridge,
    Admission,
}

/// Answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The process was judged gone: it closes the sessions it has. Said by its first renewal after the judgement and by
    /// those of the 12 s that follow, since an answer may be lost.
    pub judged_gone: bool,
    /// Postgres's clock.
    pub now: SystemTime,
}

impl Database {
    /// Renews a process's row, in one statement. A gap of more than 7 s begins a new life, in which the process judges
    /// nobody for 20 s.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn renew(&self, kind: ProcessKind, id: Uuid) -> Result<Renewed, StoreError> {
        let kind = match kind {
            ProcessKind::Bridge => 1,
            ProcessKind::Admission => 2,
        };
        let rows = self.rows(process::renew(id, kind)).await?;
        Ok(only(&rows, |fields| Ok(Renewed { judged_gone: fields.take()?, now: fields.time()? }))?)
    }
}
