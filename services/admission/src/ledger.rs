//! What makes a mutation happen at most once (D3): the key of a claim, the fingerprint of a request, the decision
//! about a command that was seen before, and how its success is shown again.

pub mod decide;
pub mod fingerprint;
pub mod key;
pub mod method_row;
pub mod replay;

pub use decide::{Asked, Binding, Verdict, decide};
pub use fingerprint::{Fingerprint, Fingerprints};
pub use key::{Address, Scope};
pub use method_row::{MethodRow, Protection, Replay, ScopeRule};
