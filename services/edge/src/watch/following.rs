//! What one stream sends next. Pure.

use bytes::Bytes;
use roadstead_proto::api::v1::WatchSandboxRequest;

use super::shown::{Shown, State, Version};

/// What a client follows, and how far it is.
#[derive(Debug)]
pub(crate) struct Following {
    status: bool,
    stop_on_terminal: bool,
    /// The first event, until it is sent.
    first: Option<Bytes>,
    /// Version of the last state that was sent, or is about to be.
    sent: Version,
    ended: bool,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Bytes),
    /// Nothing until there is a newer state.
    Wait,
    /// Nothing more comes.
    End,
}

impl Following {
    /// Begins with a snapshot, whatever is followed and whatever happens before it is sent; none if the sandbox is
    /// gone.
    pub(crate) fn begin(request: &WatchSandboxRequest, newest: &Shown) -> Option<Self> {
        let State::Here { event, terminal } = &newest.state else { return None };
        let &WatchSandboxRequest { follow_status: status, stop_on_terminal, follow_logs, follow_events, .. } = request;
        // Lines go on whatever the state.
        let follows = status || stop_on_terminal || follow_logs || follow_events;
        let ended = !follows || (stop_on_terminal && *terminal);
        Some(Self { status, stop_on_terminal, first: Some(event.clone()), sent: newest.version, ended })
    }

    /// The next step, given the newest state.
    pub(crate) fn next(&mut self, newest: &Shown) -> Step {
        if let Some(first) = self.first.take() {
            return Step::Send(first);
        }
        if self.ended {
            return Step::End;
        }
        let State::Here { event, terminal } = &newest.state else {
            self.ended = true;
            return Step::End;
        };
        let stops = self.stop_on_terminal && *terminal;
        if newest.version > self.sent && (self.status || stops) {
            self.sent = newest.version;
            self.ended = stops;
            return Step::Send(event.clone());
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roadstead_proto::api::datamodel::ObjectMeta;
    use roadstead_proto::api::v1::{Sandbox, SandboxPhase, SandboxStatus};
    use roadstead_proto::internal::SandboxEntry;

    use super::*;

    fn at(version: u64, phase: SandboxPhase) -> Shown {
        let metadata = Some(ObjectMeta { resource_version: version, ..Default::default() });
        let status = Some(SandboxStatus { phase: phase.into(), ..Default::default() });
        let sandbox = Some(Sandbox { metadata, status, ..Default::default() });
        Shown::of(SandboxEntry { epoch: 1, version, sandbox, ..Default::default() })
    }

    fn gone() -> Shown {
        Shown::of(SandboxEntry { epoch: 1, version: 9, gone: true, ..Default::default() })
    }

    fn follow(status: bool, stop_on_terminal: bool, lines: bool, first: &Shown) -> Following {
        let request =
            WatchSandboxRequest { follow_status: status, stop_on_terminal, follow_logs: lines, ..Default::default() };
        Following::begin(&request, first).unwrap()
    }

    fn sends(step: Step) -> bool {
        matches!(step, Step::Send(_))
    }

    #[test]
    fn the_first_event_is_a_snapshot_even_if_nothing_is_followed() {
        let mut nothing = follow(false, false, false, &at(1, SandboxPhase::Provisioning));
        assert!(sends(nothing.next(&at(2, SandboxPhase::Ready))));
        assert_eq!(nothing.next(&at(2, SandboxPhase::Ready)), Step::End);
    }

    #[test]
    fn a_sandbox_that_goes_before_its_first_event_is_sent_is_shown_once_and_one_that_is_gone_never() {
        for (status, stop, lines) in [(true, false, false), (false, true, false), (false, false, true)] {
            let mut following = follow(status, stop, lines, &at(1, SandboxPhase::Provisioning));
            assert!(sends(following.next(&gone())));
            assert_eq!(following.next(&gone()), Step::End);
        }
        let follows = WatchSandboxRequest { follow_status: true, ..Default::default() };
        assert!(Following::begin(&follows, &gone()).is_none());
    }

    #[test]
    fn a_version_is_sent_once_and_never_an_older_one() {
        let mut following = follow(true, false, false, &at(2, SandboxPhase::Provisioning));
        assert!(sends(following.next(&at(2, SandboxPhase::Provisioning))));
        assert_eq!(following.next(&at(2, SandboxPhase::Provisioning)), Step::Wait);
        assert_eq!(following.next(&at(1, SandboxPhase::Ready)), Step::Wait);
        assert!(sends(following.next(&at(5, SandboxPhase::Ready))));
    }

    #[test]
    fn every_terminal_phase_is_sent_and_then_ends_the_stream_at_once_or_later() {
        use SandboxPhase::{Completed, Error, Provisioning, Ready, Stopped};
        for (status, lines) in [(true, false), (false, false), (false, true), (true, true)] {
            for phase in [Ready, Error, Completed, Stopped] {
                let mut later = follow(status, true, lines, &at(1, Provisioning));
                assert!(sends(later.next(&at(1, Provisioning))));
                assert!(sends(later.next(&at(2, phase))), "{phase:?}");
                assert_eq!(later.next(&at(3, phase)), Step::End);

                let mut at_once = follow(status, true, lines, &at(1, phase));
                assert!(sends(at_once.next(&at(2, phase))));
                assert_eq!(at_once.next(&at(2, phase)), Step::End);
            }
        }
    }

    #[test]
    fn no_other_phase_ends_a_stream_but_the_end_of_the_sandbox_does() {
        use SandboxPhase::{Deleting, Provisioning, Starting, Stopping, Unknown, Unspecified};
        let mut following = follow(true, true, false, &at(1, Unspecified));
        for (version, phase) in
            [Unspecified, Provisioning, Unknown, Stopping, Starting, Deleting].into_iter().enumerate()
        {
            assert!(sends(following.next(&at(version as u64 + 1, phase))), "{phase:?}");
        }
        assert_eq!(following.next(&gone()), Step::End);
    }

    #[test]
    fn whoever_follows_lines_alone_sees_one_state_and_the_end() {
        let mut lines = follow(false, false, true, &at(1, SandboxPhase::Ready));
        assert!(sends(lines.next(&at(1, SandboxPhase::Ready))));
        assert_eq!(lines.next(&at(2, SandboxPhase::Error)), Step::Wait, "its status is not followed");
        assert_eq!(lines.next(&gone()), Step::End);
    }

    proptest! {
        #[test]
        fn versions_only_rise_and_the_last_is_never_missed(
            first in 0_u64..20,
            seen in proptest::collection::vec(0_u64..20, 1..40),
            stop in any::<bool>(),
        ) {
            let mut following = follow(true, stop, false, &at(first, SandboxPhase::Provisioning));
            let mut sent: Vec<u64> = Vec::new();
            for &version in &seen {
                let newest = at(version, SandboxPhase::Provisioning);
                while let Step::Send(event) = following.next(&newest) {
                    let version = if sent.is_empty() { first } else { version };
                    prop_assert_eq!(event, event_of(&at(version, SandboxPhase::Provisioning)));
                    prop_assert!(sent.last().is_none_or(|&last| version > last));
                    sent.push(version);
                }
            }
            prop_assert_eq!(sent.last(), seen.iter().chain([&first]).max());
        }
    }

    fn event_of(shown: &Shown) -> Bytes {
        match &shown.state {
            State::Here { event, .. } => event.clone(),
            State::Gone => Bytes::new(),
        }
    }
}
