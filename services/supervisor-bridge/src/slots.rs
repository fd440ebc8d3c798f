//! What one session sends and what it hears back (D6): two slots, one for each half of a sandbox's configuration.
//!
//! Pure: entries, answers and the time come in; frames and reports go out as values. A frame is made only when the
//! transport asks for one, so none is ever queued here, and a reader that was slow gets the newest content first.

mod digest;
mod half;
pub mod update_id;
mod verdict;

use std::time::Instant;

use bytes::Bytes;
use roadstead_proto::api::sandbox::SandboxConfigSnapshot;
use roadstead_proto::api::v1::{ConfigApplyOutcome, ConfigUpdateResult};
use uuid::Uuid;

pub use self::digest::Digest;
use self::half::{Half, Heard, Reply};
pub use self::half::{OVERTAKE_AFTER, REMEMBERED, RESEND_AFTER};
use self::verdict::bounded;
pub use self::verdict::{Component, HalfVerdict, LONGEST_ERROR, Verdict};

/// The place of an entry in the order of accepted entries of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    pub epoch: u64,
    pub sequence: u64,
}

/// Both halves of a sandbox's configuration, accepted together.
#[derive(Clone, Debug)]
pub struct Entry {
    pub order: Order,
    pub config_digest: Digest,
    /// Large, and gone once the supervisor has it.
    pub config: Box<SandboxConfigSnapshot>,
    pub environment_digest: Digest,
    /// Encrypted; opened only for the frame.
    pub environment: Bytes,
}

/// An update to be sent: one half or both, each whole.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Rises with every update of the session, from 1.
    pub ordinal: u64,
    pub config: Option<Box<SandboxConfigSnapshot>>,
    /// Encrypted.
    pub environment: Option<Bytes>,
    /// Whether all of it was sent before.
    pub again: bool,
    /// Since when its newest content has been wanted.
    pub wanted_since: Instant,
}

/// What to do after an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// The verdict has changed and is to be reported.
    pub report: bool,
    /// The supervisor claims to have newer content: look for a newer entry.
    pub reread: bool,
    /// The answer spoke of no frame that is remembered and unanswered.
    pub unknown: bool,
}

/// The two slots of a session.
#[derive(Debug, Default)]
pub struct Slots {
    newest: Option<Order>,
    ordinal: u64,
    config: Half<Box<SandboxConfigSnapshot>>,
    environment: Half<Bytes>,
    verdict: Verdict,
}

impl Slots {
    /// Takes in an accepted entry. One that is not newer than the newest is dropped, and the answer is false.
    pub fn offer(&mut self, entry: Entry, now: Instant) -> bool {
        if self.newest.is_some_and(|newest| entry.order <= newest) {
            return false;
        }
        self.newest = Some(entry.order);
        let admitted = entry.config.configuration_admitted;
        // Both halves of an entry are of one epoch.
        let epoch = Uuid::try_parse(&entry.config.provider_attachment_epoch).unwrap_or_default();
        let config = self.config.want(entry.config_digest, epoch, entry.config, admitted, now);
        let environment = self.environment.want(entry.environment_digest, epoch, entry.environment, true, now);
        if config {
            self.environment.other_half_changed(now);
        }
        if environment {
            self.config.other_half_changed(now);
        }
        true
    }

    /// The place of the newest entry that was taken in.
    #[must_use]
    pub const fn newest(&self) -> Option<Order> {
        self.newest
    }

    /// When the next frame is to be sent, if nothing changes before.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match (self.config.due(), self.environment.due()) {
            (Some(config), Some(environment)) => Some(config.min(environment)),
            (config, environment) => config.or(environment),
        }
    }

    /// The frame that is due, with every half that is. The transport asks for it when it can send.
    pub fn take_frame(&mut self, now: Instant) -> Option<Frame> {
        let wanted_since = self.due().filter(|due| *due <= now)?;
        let ordinal = self.ordinal + 1;
        let config = self.config.take_due(ordinal, now);
        let environment = self.environment.take_due(ordinal, now);
        if config.is_none() && environment.is_none() {
            return None;
        }
        self.ordinal = ordinal;
        let new = |again: bool| !again;
        let again =
            !(config.as_ref().is_some_and(|half| new(half.1)) || environment.as_ref().is_some_and(|half| new(half.1)));
        Some(Frame {
            ordinal,
            config: config.map(|half| half.0),
            environment: environment.map(|half| half.0),
            again,
            wanted_since,
        })
    }

    /// Takes in the supervisor's answer to the frame with this ordinal.
    pub fn hear(&mut self, ordinal: u64, answer: &ConfigUpdateResult, now: Instant) -> Reaction {
        let config_installable = self.config.installable(ordinal);
        let joint = config_installable.is_some() && self.environment.installable(ordinal).is_some();
        let retryable = answer.failure.as_ref().is_some_and(|failure| failure.retryable);
        let outcome = answer.outcome();
        let error = describe(answer);

        // Only an admitted configuration can be in effect; the environment is judged by itself.
        let admitted = config_installable.unwrap_or(true);
        let (config_outcome, config_error) = if admitted || !says_installed(outcome) {
            (outcome, error.clone())
        } else {
            (ConfigApplyOutcome::FailedClosed, "a configuration that is not admitted cannot be installed".to_owned())
        };

        let config = self.config.hear(ordinal, reply(config_outcome, retryable), joint, now);
        let environment = self.environment.hear(ordinal, reply(outcome, retryable), joint, now);
        if config == Heard::Unknown && environment == Heard::Unknown {
            return Reaction { unknown: true, ..Reaction::default() };
        }
        if self.config.has_moved_on(ordinal) {
            self.environment.other_half_changed(now);
        }
        if self.environment.has_moved_on(ordinal) {
            self.config.other_half_changed(now);
        }

        let before = self.verdict.clone();
        if let Heard::News { digest, epoch } = config {
            self.verdict.settle(
                Component::Config,
                digest,
                epoch,
                says_installed(config_outcome),
                config_outcome,
                config_error,
            );
        }
        if let Heard::News { digest, epoch } = environment {
            self.verdict.settle(Component::Environment, digest, epoch, says_installed(outcome), outcome, error);
        }
        if let Some(load) = answer.policy_load.as_ref().filter(|load| load.version > 0) {
            if load.loaded {
                self.verdict.loaded(load.version);
            } else {
                self.verdict.failed(load.version, &load.error);
            }
        }
        if answer.admission.is_some() || matches!(config, Heard::News { .. }) {
            self.verdict.admission(ordinal, answer.admission.clone());
        }
        let report = !self.verdict.says_the_same(&before);
        if report {
            self.verdict.count(ordinal);
        }
        Reaction { report, reread: outcome == ConfigApplyOutcome::IgnoredStale, unknown: false }
    }

    /// What the session has done so far.
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Since when the oldest unanswered frame has been waiting for its answer.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Instant> {
        match (self.config.unanswered_since(), self.environment.unanswered_since()) {
            (Some(config), Some(environment)) => Some(config.min(environment)),
            (config, environment) => config.or(environment),
        }
    }
}

/// Whether the outcome says that the content is in effect.
const fn says_installed(outcome: ConfigApplyOutcome) -> bool {
    matches!(outcome, ConfigApplyOutcome::Applied | ConfigApplyOutcome::IgnoredDuplicate | ConfigApplyOutcome::Degraded)
}

const fn reply(outcome: ConfigApplyOutcome, retryable: bool) -> Reply {
    match outcome {
        ConfigApplyOutcome::Applied | ConfigApplyOutcome::IgnoredDuplicate | ConfigApplyOutcome::Degraded => {
            Reply::Installed
        }
        ConfigApplyOutcome::IgnoredStale => Reply::Stale,
        ConfigApplyOutcome::RetainedLocalOverride => Reply::Refused { retryable: false },
        ConfigApplyOutcome::FailedRetainedLastKnownGood | ConfigApplyOutcome::FailedClosed => {
            Reply::Refused { retryable }
        }
        ConfigApplyOutcome::Unsupported => Reply::Unsupported,
        // An outcome that we do not know is no proof that anything is in effect.
        ConfigApplyOutcome::Unspecified => Reply::Refused { retryable: true },
    }
}

/// The failure as one bounded line.
fn describe(answer: &ConfigUpdateResult) -> String {
    match &answer.failure {
        None => String::new(),
        Some(failure) if failure.code.is_empty() => bounded(&failure.message),
        Some(failure) => bounded(&format!("{}: {}", failure.code, failure.message)),
    }
}

#[cfg(test)]
mod tests;
