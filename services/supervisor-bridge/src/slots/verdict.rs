//! What a session has done with all that it was sent. Cumulative, so the newest report says everything.

use roadstead_proto::api::v1::{ConfigApplyOutcome, SandboxConfigurationAdmission};
use roadstead_proto::internal::{HalfResult, SessionResult};
use uuid::Uuid;

use super::Digest;

/// Longest error text that is kept, in bytes.
pub const LONGEST_ERROR: usize = 1024;

/// The cumulative result of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    number: u64,
    config: Option<HalfVerdict>,
    environment: Option<HalfVerdict>,
    loaded_version: u32,
    failed: Option<(u32, String)>,
    /// Ordinal of the newest answer that spoke of it, and what that said.
    admission: Option<(u64, Option<SandboxConfigurationAdmission>)>,
}

/// Last word on one half.
#[derive(Clone, Debug, PartialEq)]
pub struct HalfVerdict {
    pub installed: Option<Digest>,
    pub refused: Option<Digest>,
    pub outcome: ConfigApplyOutcome,
    pub error: String,
    /// Attachment epoch of the content that the outcome is of.
    pub epoch: Uuid,
}

/// Which half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Config,
    Environment,
}

impl Verdict {
    /// The number of the newest result, 0 before the first. It is the ordinal of the update that was answered; should an
    /// answer to an older one arrive later and still say something new, the number goes on by one, so that it always
    /// rises.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Takes in an outcome for the content with this digest, of this attachment epoch.
    pub(super) fn settle(
        &mut self,
        component: Component,
        digest: Digest,
        epoch: Uuid,
        installed: bool,
        outcome: ConfigApplyOutcome,
        error: String,
    ) {
        let half = match component {
            Component::Config => &mut self.config,
            Component::Environment => &mut self.environment,
        };
        let before = half.take();
        let (was_installed, was_refused) = before.map_or((None, None), |half| (half.installed, half.refused));
        *half = Some(if installed {
            HalfVerdict { installed: Some(digest), refused: was_refused, outcome, error, epoch }
        } else {
            HalfVerdict { installed: was_installed, refused: Some(digest), outcome, error, epoch }
        });
    }

    /// Takes in that a policy version was loaded.
    pub(super) fn loaded(&mut self, version: u32) {
        self.loaded_version = self.loaded_version.max(version);
    }

    /// Takes in that a policy version could not be loaded.
    pub(super) fn failed(&mut self, version: u32, error: &str) {
        if self.failed.as_ref().is_none_or(|(failed, _)| *failed < version) {
            self.failed = Some((version, bounded(error)));
        }
    }

    /// Takes in the verdict that came with the answer to this ordinal. None: the answer was on other content and says
    /// nothing, so what was said before no longer holds.
    pub(super) fn admission(&mut self, ordinal: u64, admission: Option<SandboxConfigurationAdmission>) {
        if self.admission.as_ref().is_none_or(|(newest, _)| *newest < ordinal) {
            let admission = admission.map(|said| SandboxConfigurationAdmission { error: bounded(&said.error), ..said });
            self.admission = Some((ordinal, admission));
        }
    }

    /// Whether a report of this would tell nothing that one of the other does not.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        other.number > 0 && self.report(Uuid::nil()) == other.report(Uuid::nil())
    }

    /// Gives the result its number after the answer to this ordinal.
    pub(super) fn count(&mut self, ordinal: u64) {
        self.number = ordinal.max(self.number + 1);
    }

    /// The report for admission.
    #[must_use]
    pub fn report(&self, session_id: Uuid) -> SessionResult {
        let (failed_version, failed_error) = self.failed.clone().unwrap_or_default();
        SessionResult {
            session_id: session_id.to_string(),
            number: self.number,
            config: self.config.as_ref().map(HalfVerdict::report),
            environment: self.environment.as_ref().map(HalfVerdict::report),
            loaded_version: self.loaded_version,
            failed_version,
            failed_error,
            admission: self.admission.as_ref().and_then(|(_, admission)| admission.clone()),
        }
    }
}

impl HalfVerdict {
    fn report(&self) -> HalfResult {
        let bytes = |digest: Option<Digest>| digest.map(|digest| digest.bytes().to_vec().into()).unwrap_or_default();
        HalfResult {
            installed: bytes(self.installed),
            refused: bytes(self.refused),
            outcome: self.outcome.into(),
            error: self.error.clone(),
            attachment_epoch: self.epoch.as_bytes().to_vec().into(),
        }
    }
}

/// A supervisor's text without control characters and no longer than [`LONGEST_ERROR`].
pub(super) fn bounded(text: &str) -> String {
    let mut kept = String::with_capacity(text.len().min(LONGEST_ERROR));
    for letter in text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }) {
        if kept.len() + letter.len_utf8() > LONGEST_ERROR {
            break;
        }
        kept.push(letter);
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_are_bounded_and_free_of_control_characters(text in "(?s).{0,2000}") {
            let kept = bounded(&text);
            prop_assert!(kept.len() <= LONGEST_ERROR);
            prop_assert!(!kept.chars().any(char::is_control));
        }

        #[test]
        fn numbers_rise_with_every_change(ordinals in proptest::collection::vec(1_u64..20, 1..40)) {
            let mut verdict = Verdict::default();
            let mut before = 0;
            for ordinal in ordinals {
                verdict.count(ordinal);
                prop_assert!(verdict.number() > before && verdict.number() >= ordinal);
                before = verdict.number();
            }
        }
    }

    #[test]
    fn a_failure_of_a_lower_version_does_not_hide_that_of_a_higher_one() {
        let mut verdict = Verdict::default();
        verdict.failed(3, "three");
        verdict.failed(2, "two");
        verdict.loaded(5);
        verdict.loaded(4);
        let report = verdict.report(Uuid::nil());
        assert_eq!((report.failed_version, report.failed_error.as_str(), report.loaded_version), (3, "three", 5));
    }

    #[test]
    fn a_refusal_keeps_what_is_installed() {
        let (old, new) = (Digest::new([1; 32]), Digest::new([2; 32]));
        let mut verdict = Verdict::default();
        verdict.settle(Component::Config, old, Uuid::from_u128(1), true, ConfigApplyOutcome::Applied, String::new());
        verdict.settle(
            Component::Config,
            new,
            Uuid::from_u128(2),
            false,
            ConfigApplyOutcome::FailedClosed,
            "no".into(),
        );
        let half = verdict.report(Uuid::nil()).config.unwrap_or_default();
        assert_eq!((&half.installed[..], &half.refused[..]), (&old.bytes()[..], &new.bytes()[..]));
        assert_eq!(half.outcome(), ConfigApplyOutcome::FailedClosed);
        assert_eq!(&half.attachment_epoch[..], Uuid::from_u128(2).as_bytes(), "of what the outcome is of");
    }
}
