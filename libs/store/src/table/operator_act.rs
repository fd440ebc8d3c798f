//! What operators did. Rows are added and read, never changed.

use uuid::Uuid;

use crate::fields::{Fields, Malformed};
use crate::flight::Step;
use crate::operator::{Act, ActRow};
use crate::parameter::value;

const INSERT: &str = "INSERT INTO operator_act (operator, act, object_id, reason) VALUES ($1, $2, $3, $4)";
const OF: &str = "SELECT at, operator, act, reason FROM operator_act WHERE object_id = $1 ORDER BY id LIMIT 100";

pub(crate) fn insert(act: Act, what: &'static str, object_id: Uuid) -> Step {
    Step::new(INSERT, [value(act.operator), value(what), value(object_id), value(act.reason)])
}

/// Of one object, oldest first.
pub(crate) fn of(object_id: Uuid) -> Step {
    Step::new(OF, [value(object_id)])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<ActRow, Malformed> {
    Ok(ActRow { at: fields.time()?, operator: fields.take()?, act: fields.take()?, reason: fields.take()? })
}
