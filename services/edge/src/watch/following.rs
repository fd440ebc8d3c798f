//! What one stream sends next. Pure.

use bytes::Bytes;
use roadstead_proto::api::v1::WatchSandboxRequest;

use super::shown::{Shown, State, Version};

/// What a client follows, and how far it is.
#[derive(Debug)]
pub(crate) struct Following {
    status: bool,
    stop_on_terminal: bool,
    /// Logs or events are followed: they go on whatever the state.
    lines: bool,
    /// Version of the last state that was sent.
    sent: Option<Version>,
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
    pub(crate) fn new(request: &WatchSandboxRequest) -> Self {
        Self {
            status: request.follow_status,
            stop_on_terminal: request.stop_on_terminal,
            lines: request.follow_logs || request.follow_events,
            sent: None,
            ended: false,
        }
    }

    /// The next step, given the newest state.
    pub(crate) fn next(&mut self, newest: &Shown) -> Step {
        if self.ended {
            return Step::End;
        }
        let State::Here { event, terminal } = &newest.state else {
            self.ended = true;
            return Step::End;
        };
        let stops = self.stop_on_terminal && *terminal;
        let newer = self.sent.is_none_or(|sent| newest.version > sent);
        // The first event is a snapshot whatever is followed, and so is the one a stream stops at.
        if newer && (self.sent.is_none() || self.status || stops) {
            self.sent = Some(newest.version);
            self.ended = stops || !(self.status || self.stop_on_terminal || self.lines);
            return Step::Send(event.clone());
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roadstead_proto::api::v1::{Sandbox, SandboxPhase, SandboxStatus};
    use roadstead_proto::internal::SandboxEntry;

    use super::*;

    fn at(version: u64, phase: SandboxPhase) -> Shown {
        let status = Some(SandboxStatus { phase: phase.into(), ..Default::default() });
        let sandbox = Some(Sandbox { status, ..Default::default() });
        Shown::of(SandboxEntry { epoch: 1, version, sandbox, ..Default::default() })
    }

    fn gone() -> Shown {
        Shown::of(SandboxEntry { epoch: 1, version: 9, gone: true, ..Default::default() })
    }

    fn follow(status: bool, stop_on_terminal: bool, lines: bool) -> Following {
        let request =
            WatchSandboxRequest { follow_status: status, stop_on_terminal, follow_logs: lines, ..Default::default() };
        Following::new(&request)
    }

    fn sends(step: Step) -> bool {
        matches!(step, Step::Send(_))
    }

    #[test]
    fn the_first_event_is_a_snapshot_even_if_nothing_is_followed() {
        let mut nothing = follow(false, false, false);
        assert!(sends(nothing.next(&at(1, SandboxPhase::Provisioning))));
        assert_eq!(nothing.next(&at(2, SandboxPhase::Ready)), Step::End);
    }

    #[test]
    fn a_version_is_sent_once_and_never_an_older_one() {
        let mut following = follow(true, false, false);
        assert!(sends(following.next(&at(2, SandboxPhase::Provisioning))));
        assert_eq!(following.next(&at(2, SandboxPhase::Provisioning)), Step::Wait);
        assert_eq!(following.next(&at(1, SandboxPhase::Ready)), Step::Wait);
        assert!(sends(following.next(&at(5, SandboxPhase::Ready))));
    }

    #[test]
    fn every_terminal_phase_is_sent_and_then_ends_the_stream_at_once_or_later() {
        use SandboxPhase::{Completed, Error, Provisioning, Ready, Stopped};
        for status in [true, false] {
            for phase in [Ready, Error, Completed, Stopped] {
                let mut later = follow(status, true, false);
                assert!(sends(later.next(&at(1, Provisioning))));
                assert!(sends(later.next(&at(2, phase))), "{phase:?}");
                assert_eq!(later.next(&at(2, phase)), Step::End);

                let mut at_once = follow(status, true, false);
                assert!(sends(at_once.next(&at(1, phase))));
                assert_eq!(at_once.next(&at(1, phase)), Step::End);
            }
        }
    }

    #[test]
    fn no_other_phase_ends_a_stream_but_the_end_of_the_sandbox_does() {
        use SandboxPhase::{Deleting, Provisioning, Starting, Stopping, Unknown, Unspecified};
        let mut following = follow(true, true, false);
        for (version, phase) in
            [Unspecified, Provisioning, Unknown, Stopping, Starting, Deleting].into_iter().enumerate()
        {
            assert!(sends(following.next(&at(version as u64 + 1, phase))), "{phase:?}");
        }
        assert_eq!(following.next(&gone()), Step::End);
    }

    #[test]
    fn whoever_follows_lines_alone_sees_one_state_and_the_end() {
        let mut lines = follow(false, false, true);
        assert!(sends(lines.next(&at(1, SandboxPhase::Ready))));
        assert_eq!(lines.next(&at(2, SandboxPhase::Error)), Step::Wait, "its status is not followed");
        assert_eq!(lines.next(&gone()), Step::End);
    }

    proptest! {
        #[test]
        fn versions_only_rise_and_the_last_is_never_missed(
            seen in proptest::collection::vec(0_u64..20, 1..40),
            stop in any::<bool>(),
        ) {
            let mut following = follow(true, stop, false);
            let mut sent: Vec<u64> = Vec::new();
            for &version in &seen {
                if sends(following.next(&at(version, SandboxPhase::Provisioning))) {
                    prop_assert!(sent.last().is_none_or(|&last| version > last));
                    sent.push(version);
                }
            }
            prop_assert_eq!(sent.last(), seen.iter().max());
        }
    }
}
