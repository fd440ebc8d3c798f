//! When a command is sent again, and what its end may be called (D2). Pure: time comes in, effects go out.
//!
//! Only the first publish can be refused with effect on the outcome. Once a publish has ended without a definite
//! refusal, the command may be stored: a refused re-send then tells nothing, and the answer is waited for until the
//! deadline.

use std::time::Duration;

use tokio::time::Instant;

/// A command is sent again at most this often.
const MOST_RESENDS: u32 = 3;
/// Time without an answer after which it is sent again.
const PATIENCE: Duration = Duration::from_secs(6);

/// How one publish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    Stored,
    /// Certainly not stored.
    Refused(Refusal),
    /// No ack in time.
    Unknown,
}

/// Why the broker did not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Other,
}

/// What happens to a command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The newest publish ended so. Ends of older ones are not told.
    Published(Published),
    /// The connection was made anew: acks and answers may have been lost.
    Reconnected,
    /// Time passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Publish the command, then wait as below.
    Publish,
    /// Wait for the answer and for events, at most until then.
    WaitUntil(Instant),
    /// Tell the caller.
    End(End),
}

/// How a call ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The command was certainly not stored.
    Refused(Refusal),
    /// The deadline passed; the command may have been carried out, or may yet be.
    OutcomeUnknown,
}

/// One command on its way.
#[derive(Debug)]
pub(super) struct Resend {
    deadline: Instant,
    /// When the newest publish began.
    published: Instant,
    resends: u32,
    /// A publish has ended without a definite refusal, or was overtaken while it had not ended.
    may_be_stored: bool,
    /// The newest publish has not ended yet.
    in_flight: bool,
}

impl Resend {
    /// The command is published for the first time now.
    pub(super) fn first(now: Instant, deadline: Instant) -> Self {
        Self { deadline, published: now, resends: 0, may_be_stored: false, in_flight: true }
    }

    /// How long to wait while nothing happens.
    pub(super) fn until(&self) -> Instant {
        if self.in_flight || self.resends == MOST_RESENDS {
            self.deadline
        } else {
            self.deadline.min(self.published + PATIENCE)
        }
    }

    /// Takes note of an event.
    pub(super) fn on(&mut self, event: Event, now: Instant) -> Step {
        match event {
            Event::Published(Published::Refused(refusal)) if !self.may_be_stored => {
                return Step::End(End::Refused(refusal));
            }
            Event::Published(published) => {
                self.in_flight = false;
                self.may_be_stored = true;
                if published == Published::Unknown && self.may_resend(now) {
                    return self.resend(now);
                }
            }
            Event::Reconnected if self.may_resend(now) => return self.resend(now),
            Event::Reconnected => {}
            Event::Tick if !self.in_flight && now >= self.published + PATIENCE && self.may_resend(now) => {
                return self.resend(now);
            }
            Event::Tick => {}
        }
        if now >= self.deadline { Step::End(End::OutcomeUnknown) } else { Step::WaitUntil(self.until()) }
    }

    fn may_resend(&self, now: Instant) -> bool {
        self.resends < MOST_RESENDS && now < self.deadline
    }

    fn resend(&mut self, now: Instant) -> Step {
        self.resends += 1;
        self.published = now;
        // The publish that is overtaken, if any, may still be stored.
        self.may_be_stored = true;
        self.in_flight = true;
        Step::Publish
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn begun() -> (Resend, Instant) {
        let now = Instant::now();
        (Resend::first(now, now + Duration::from_secs(60)), now)
    }

    const FULL: Event = Event::Published(Published::Refused(Refusal::Full));
    const STORED: Event = Event::Published(Published::Stored);
    const UNKNOWN: Event = Event::Published(Published::Unknown);

    #[test]
    fn a_refused_first_publish_ends_the_call() {
        for refusal in [Refusal::Full, Refusal::Other] {
            let (mut resend, now) = begun();
            let step = resend.on(Event::Published(Published::Refused(refusal)), now);
            assert_eq!(step, Step::End(End::Refused(refusal)));
        }
    }

    #[test]
    fn a_refused_resend_tells_nothing() {
        let (mut resend, now) = begun();
        assert_eq!(resend.on(UNKNOWN, now), Step::Publish);
        assert_eq!(resend.on(FULL, now), Step::WaitUntil(now + PATIENCE));
        let deadline = now + Duration::from_secs(60);
        assert_eq!(resend.on(Event::Tick, deadline), Step::End(End::OutcomeUnknown));
    }

    #[test]
    fn a_refusal_after_a_reconnect_tells_nothing_even_if_the_first_publish_never_ended() {
        let (mut resend, now) = begun();
        assert_eq!(resend.on(Event::Reconnected, now), Step::Publish);
        assert!(matches!(resend.on(FULL, now), Step::WaitUntil(_)));
    }

    #[test]
    fn silence_of_six_seconds_sends_again_at_most_three_times() {
        let (mut resend, mut now) = begun();
        assert_eq!(resend.on(STORED, now), Step::WaitUntil(now + PATIENCE));
        assert_eq!(resend.on(Event::Tick, now + PATIENCE / 2), Step::WaitUntil(now + PATIENCE));
        for _ in 0..MOST_RESENDS {
            now += PATIENCE;
            assert_eq!(resend.on(Event::Tick, now), Step::Publish);
            assert!(matches!(resend.on(STORED, now), Step::WaitUntil(_)));
        }
        assert_eq!(resend.on(Event::Tick, now + PATIENCE), Step::WaitUntil(resend.deadline));
        assert_eq!(resend.on(Event::Reconnected, now + PATIENCE), Step::WaitUntil(resend.deadline));
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![Just(FULL), Just(STORED), Just(UNKNOWN), Just(Event::Reconnected), Just(Event::Tick)]
    }

    proptest! {
        #[test]
        fn a_command_that_may_be_stored_is_never_called_refused(
            events in proptest::collection::vec((any_event(), 0_u64..8), 0..60),
        ) {
            let (mut resend, mut now) = begun();
            let (mut publishes, mut doubt) = (1, false);
            for (event, seconds) in events {
                now += Duration::from_secs(seconds);
                doubt |= matches!(event, STORED | UNKNOWN);
                match resend.on(event, now) {
                    Step::Publish => { publishes += 1; doubt = true; }
                    Step::WaitUntil(when) => prop_assert!(when <= resend.deadline && now < resend.deadline),
                    Step::End(End::Refused(_)) => { prop_assert!(!doubt); return Ok(()); }
                    Step::End(End::OutcomeUnknown) => { prop_assert!(now >= resend.deadline); return Ok(()); }
                }
            }
            prop_assert!(publishes <= 1 + MOST_RESENDS);
        }
    }
}
