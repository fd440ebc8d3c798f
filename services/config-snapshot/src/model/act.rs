//! What may happen in the model.

use proptest::prelude::*;

use super::database::Content;
use super::{BUILDERS, NAMES};

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Commit(usize, Content),
    CommitGlobal(u8),
    Delete(usize),
    BackUp,
    Restore,
    /// Publishes what is in the outbox; it may die before it has noted that.
    Relay {
        dies: bool,
    },
    /// Marks the next sandbox of an expansion, or begins one.
    Expand,
    ExpansionDies,
    /// A builder begins what waits for it, or does its next step.
    Build(usize),
    /// Somebody asks for that name's entry.
    Ask(usize),
    Dies(usize),
    /// A builder hears nothing of its write.
    GiveUp(usize),
    /// That write arrives, or never does.
    Arrive(usize),
    Vanish(usize),
    /// The workers gave no sign of life.
    Redeliver,
    Save,
    Wipe,
    RollBack,
    /// The next pass of the sweep begins, if none is under way.
    Sweep,
}

impl Act {
    /// Whether broker or database lose something by it.
    pub(super) fn is_a_loss(self) -> bool {
        matches!(self, Self::Restore | Self::Wipe | Self::RollBack)
    }
}

pub(super) fn any_act() -> impl Strategy<Value = Act> {
    let name = 0..NAMES;
    prop_oneof![
        8 => (name.clone(), (0..3_u8, 0..2_u8)).prop_map(|(name, content)| Act::Commit(name, content)),
        2 => (0..2_u8).prop_map(Act::CommitGlobal),
        1 => name.clone().prop_map(Act::Delete),
        1 => Just(Act::BackUp),
        1 => Just(Act::Restore),
        6 => prop::bool::weighted(0.2).prop_map(|dies| Act::Relay { dies }),
        4 => Just(Act::Expand),
        1 => Just(Act::ExpansionDies),
        50 => (0..BUILDERS).prop_map(Act::Build),
        4 => name.prop_map(Act::Ask),
        1 => (0..BUILDERS).prop_map(Act::Dies),
        2 => (0..BUILDERS).prop_map(Act::GiveUp),
        16 => (0..4_usize).prop_map(Act::Arrive),
        1 => (0..4_usize).prop_map(Act::Vanish),
        1 => Just(Act::Redeliver),
        1 => Just(Act::Save),
        1 => Just(Act::Wipe),
        1 => Just(Act::RollBack),
        3 => Just(Act::Sweep),
    ]
}
