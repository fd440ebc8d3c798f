//! Messages made from their description: with everything set, changed in one thing at a time, and written in another
//! order.

mod change;
mod full;
mod reorder;

pub use change::{Change, changes, changes_at};
pub use full::full;
pub use reorder::reordered;

#[cfg(test)]
mod tests;
