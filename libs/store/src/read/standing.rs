//! Which tokens of a sandbox count, and who holds its session.

use uuid::Uuid;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::first;
use crate::flight::Step;
use crate::parameter::value;

/// What a bridge needs to know of a sandbox before it lets somebody speak for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Tokens of another one do not count.
    pub generation: u64,
    pub session_id: Option<Uuid>,
    /// None exactly without a session.
    pub bridge_id: Option<Uuid>,
}

const STANDING: &str = "SELECT generation, session_id, session_bridge_id FROM sandbox WHERE id = $1";

impl Database {
    /// How a sandbox stands; none if it is gone.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn standing(&self, sandbox_id: Uuid) -> Result<Option<Standing>, StoreError> {
        let rows = self.rows(Step::new(STANDING, [value(sandbox_id)])).await?;
        Ok(first(&rows, |fields| {
            Ok(Standing { generation: fields.count()?, session_id: fields.take()?, bridge_id: fields.take()? })
        })?)
    }
}
