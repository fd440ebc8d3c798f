//! Checks that need no state: shape, size and count of what a request says (behaviour 1.2, 1.3, 1.9).

pub mod environment;
pub mod label;
pub mod name;
pub mod provider;
pub mod request_id;
pub mod sandbox_spec;
pub mod selector;
pub mod workload_template;

use crate::refusal::Refusal;

/// A check's result.
pub type Checked = Result<(), Refusal>;

/// Refuses text of more than `limit` bytes.
pub(crate) fn at_most(field: impl Into<String>, text: &str, limit: usize) -> Checked {
    if text.len() > limit {
        return Err(Refusal::invalid(field, format!("longer than {limit} bytes")));
    }
    Ok(())
}

/// Refuses more than `limit` entries.
pub(crate) fn count_at_most(field: impl Into<String>, count: usize, limit: usize) -> Checked {
    if count > limit {
        return Err(Refusal::invalid(field, format!("more than {limit} entries")));
    }
    Ok(())
}
