//! One state of a sandbox, as streams show it.

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{SandboxPhase, SandboxStreamEvent};
use roadstead_proto::internal::SandboxEntry;

/// Which state is newer: the epoch first, which rises when Postgres is restored to an earlier state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) epoch: u64,
    pub(crate) version: u64,
}

/// A state of a sandbox that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) version: Version,
    pub(crate) workspace_id: String,
    pub(crate) state: State,
}

/// What there is to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The encoded event, and whether a stream that waits for an end ends here.
    Here { event: Bytes, terminal: bool },
    /// The sandbox is no more, and no sandbox will have its id again.
    Gone,
}

impl Shown {
    /// Encodes the event once, for all streams.
    pub(crate) fn of(entry: SandboxEntry) -> Self {
        let SandboxEntry { epoch, version, workspace_id, gone: _, sandbox } = entry;
        let state = sandbox.map_or(State::Gone, |sandbox| {
            let phase = sandbox.status.as_ref().map_or(SandboxPhase::Unspecified, |status| status.phase());
            let event = SandboxStreamEvent { payload: Some(Payload::Sandbox(sandbox)), cursor: String::new() };
            State::Here { event: event.encode_to_vec().into(), terminal: is_terminal(phase) }
        });
        Self { version: Version { epoch, version }, workspace_id, state }
    }

    /// Whether this is to replace `other`: a later life of the database wins, in one life gone is final, and otherwise
    /// the newer version wins.
    pub(crate) fn supersedes(&self, other: &Self) -> bool {
        if self.version.epoch != other.version.epoch {
            return self.version.epoch > other.version.epoch;
        }
        match (&self.state, &other.state) {
            (_, State::Gone) => false,
            (State::Gone, State::Here { .. }) => true,
            (State::Here { .. }, State::Here { .. }) => self.version > other.version,
        }
    }
}

/// The phases with which `stop_on_terminal` ends a stream.
const fn is_terminal(phase: SandboxPhase) -> bool {
    matches!(phase, SandboxPhase::Ready | SandboxPhase::Error | SandboxPhase::Completed | SandboxPhase::Stopped)
}
