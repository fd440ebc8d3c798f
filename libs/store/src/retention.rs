//! placeholder
use std::time::Duration;
/// How long a success stays claimed, from its completion.
pub const CLAIM_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
