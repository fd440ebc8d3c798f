//! What may happen in the model.

use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Another policy.
    Policy,
    /// Something else of the configuration; it may then not be admitted.
    Other(u8, bool),
    Environment(u8),
    BackUp,
    Restore,
    /// A mark is worked off.
    Build,
    Save,
    Wipe,
    RollBack,
    Sweep,
    /// Of a session, the present one or the one before:
    Of(Which, Of),
    Pass(u64),
    /// The supervisor takes in the next update.
    Take,
    Becomes(Mood),
    /// Its connection is lost, and it has another session.
    Reconnect,
    /// It starts anew, with nothing in effect.
    StartAnew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Present,
    Former,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// Its bootstrap is answered; the answer arrives.
    Bootstrap,
    BootstrapArrives,
    /// It reads again; the answer arrives.
    Read,
    ReadArrives,
    /// A feed message arrives, is lost, or something tells that some may have been.
    Feed,
    Lose,
    Gap,
    Send,
    Answer,
    Report,
    /// Admission hears the report; the bridge hears so, or not.
    Admission {
        told: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Applies,
    Silent,
    /// It applies what it gets, and does not say so.
    Mute,
    Refuses {
        retryable: bool,
    },
}

pub(super) fn any_act() -> impl Strategy<Value = Act> {
    let of = prop_oneof![
        4 => Just(Of::Bootstrap),
        4 => Just(Of::BootstrapArrives),
        3 => Just(Of::Read),
        3 => Just(Of::ReadArrives),
        8 => Just(Of::Feed),
        1 => Just(Of::Lose),
        1 => Just(Of::Gap),
        12 => Just(Of::Send),
        8 => Just(Of::Answer),
        4 => Just(Of::Report),
        4 => any::<bool>().prop_map(|told| Of::Admission { told }),
    ];
    let which = prop_oneof![6 => Just(Which::Present), 1 => Just(Which::Former)];
    let mood = prop_oneof![
        4 => Just(Mood::Applies),
        1 => Just(Mood::Silent),
        2 => Just(Mood::Mute),
        3 => any::<bool>().prop_map(|retryable| Mood::Refuses { retryable }),
    ];
    prop_oneof![
        2 => Just(Act::Policy),
        2 => (0..3_u8, prop::bool::weighted(0.8)).prop_map(|(other, admitted)| Act::Other(other, admitted)),
        2 => (0..3_u8).prop_map(Act::Environment),
        1 => Just(Act::BackUp),
        1 => Just(Act::Restore),
        8 => Just(Act::Build),
        1 => Just(Act::Save),
        1 => Just(Act::Wipe),
        1 => Just(Act::RollBack),
        2 => Just(Act::Sweep),
        60 => (which, of).prop_map(|(which, of)| Act::Of(which, of)),
        6 => prop_oneof![0..600_u64, 0..150_000_u64].prop_map(Act::Pass),
        14 => Just(Act::Take),
        5 => mood.prop_map(Act::Becomes),
        1 => Just(Act::Reconnect),
        1 => Just(Act::StartAnew),
    ]
}
