//! The slot of one half: what the supervisor should have, what it was sent, what it has.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Digest;

/// How many frames of a half are remembered; an answer to an older one is no longer recognised.
pub const REMEMBERED: usize = 8;
/// Silence after which the same content is sent again.
pub const RESEND_AFTER: Duration = Duration::from_secs(60);
/// Age from which newer content may overtake an unanswered frame.
pub const OVERTAKE_AFTER: Duration = Duration::from_millis(500);

const FIRST_RETRY: Duration = Duration::from_secs(30);
const LONGEST_RETRY: Duration = Duration::from_secs(30 * 60);
const FIRST_STALE_RETRY: Duration = Duration::from_secs(1);
const LONGEST_STALE_RETRY: Duration = Duration::from_secs(60);

/// What an answer means for a half that the frame carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The content is in effect.
    Installed,
    /// Not installed.
    Refused { retryable: bool },
    /// The supervisor believes that it has something newer.
    Stale,
    /// The supervisor cannot do this half at all.
    Unsupported,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is the newest word on this half, on this content.
    News { digest: Digest, epoch: Uuid },
    /// A later frame has been answered already.
    Late,
    /// The frame is not remembered, or was answered before.
    Unknown,
}

/// The slot of one half with content of type `C`.
#[derive(Debug)]
pub(super) struct Half<C> {
    wanted: Option<Wanted<C>>,
    sent: VecDeque<Sent>,
    /// Highest ordinal that was answered.
    answered: u64,
    /// What the newest answer said is installed. None after a refusal: older content may still be in effect then, but
    /// only a fresh answer can say so.
    has: Option<Digest>,
    refusal: Option<Refusal>,
    stopped: bool,
}

#[derive(Debug)]
struct Wanted<C> {
    digest: Digest,
    /// Attachment epoch.
    epoch: Uuid,
    since: Instant,
    /// Whether an answer may say that it was installed.
    installable: bool,
    /// Let go once the supervisor has it, so that an idle session is small.
    content: Option<C>,
}

#[derive(Debug)]
struct Sent {
    ordinal: u64,
    digest: Digest,
    epoch: Uuid,
    at: Instant,
    installable: bool,
    answered: bool,
}

/// The wanted content was not installed.
#[derive(Debug)]
struct Refusal {
    digest: Digest,
    times: u32,
    /// None: not again in this session.
    retry_at: Option<Instant>,
    /// The frame carried the other half too, so either may be the cause.
    joint: bool,
}

impl<C> Default for Half<C> {
    fn default() -> Self {
        Self { wanted: None, sent: VecDeque::new(), answered: 0, has: None, refusal: None, stopped: false }
    }
}

impl<C: Clone> Half<C> {
    /// Makes this the content that the supervisor should have. Tells whether it differs from what was wanted before.
    pub(super) fn want(&mut self, digest: Digest, epoch: Uuid, content: C, installable: bool, now: Instant) -> bool {
        if self.stopped || self.wanted.as_ref().is_some_and(|wanted| wanted.digest == digest) {
            return false;
        }
        self.wanted = Some(Wanted { digest, epoch, since: now, installable, content: Some(content) });
        self.refusal = None;
        self.forget_what_is_installed();
        true
    }

    /// Forgives a refusal of a frame that carried both halves: the other half has changed, and may have been the cause.
    pub(super) fn other_half_changed(&mut self, now: Instant) {
        if self.refusal.as_ref().is_some_and(|refusal| refusal.joint) {
            self.refusal = None;
            if let Some(wanted) = &mut self.wanted {
                wanted.since = now;
            }
        }
    }

    /// When the wanted content is to be sent; None while there is nothing to send.
    #[must_use]
    pub(super) fn due(&self) -> Option<Instant> {
        let wanted = self.wanted.as_ref().filter(|_| !self.stopped)?;
        if self.is_installed(wanted.digest) {
            return None;
        }
        if let Some(last) = self.unanswered().next_back() {
            return Some(if last.digest == wanted.digest {
                last.at + RESEND_AFTER
            } else {
                wanted.since.max(last.at + OVERTAKE_AFTER)
            });
        }
        match &self.refusal {
            Some(refusal) if refusal.digest == wanted.digest => refusal.retry_at,
            _ => Some(wanted.since),
        }
    }

    /// Takes the wanted content if it is due, as part of the frame with this ordinal. The flag says whether the newest
    /// frame of this half had the same content.
    pub(super) fn take_due(&mut self, ordinal: u64, now: Instant) -> Option<(C, bool)> {
        self.due().filter(|due| *due <= now)?;
        let wanted = self.wanted.as_ref()?;
        let content = wanted.content.clone()?;
        let again = self.sent.back().is_some_and(|sent| sent.digest == wanted.digest);
        let (digest, epoch, installable) = (wanted.digest, wanted.epoch, wanted.installable);
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent { ordinal, digest, epoch, at: now, installable, answered: false });
        Some((content, again))
    }

    /// Whether the frame with this ordinal is remembered and may be answered with "installed".
    #[must_use]
    pub(super) fn installable(&self, ordinal: u64) -> Option<bool> {
        self.sent.iter().find(|sent| sent.ordinal == ordinal).map(|sent| sent.installable)
    }

    /// Whether other content is wanted by now than the frame with this ordinal carried.
    pub(super) fn has_moved_on(&self, ordinal: u64) -> bool {
        let wanted = self.wanted.as_ref().map(|wanted| wanted.digest);
        self.sent.iter().any(|sent| sent.ordinal == ordinal && Some(sent.digest) != wanted)
    }

    /// Takes in the answer to the frame with this ordinal.
    pub(super) fn hear(&mut self, ordinal: u64, reply: Reply, joint: bool, now: Instant) -> Heard {
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.ordinal == ordinal && !sent.answered) else {
            return Heard::Unknown;
        };
        sent.answered = true;
        let (digest, epoch) = (sent.digest, sent.epoch);
        if ordinal < self.answered {
            return Heard::Late;
        }
        self.answered = ordinal;
        match reply {
            Reply::Installed => {
                self.has = Some(digest);
                self.refusal = None;
                self.forget_what_is_installed();
            }
            Reply::Refused { retryable } => {
                self.refuse(digest, retryable.then_some((FIRST_RETRY, LONGEST_RETRY)), joint, now);
            }
            Reply::Stale => {
                self.refuse(digest, Some((FIRST_STALE_RETRY, LONGEST_STALE_RETRY)), joint, now);
                if let Some(refusal) = self.refusal.as_mut().filter(|refusal| refusal.times == 1) {
                    refusal.retry_at = Some(now);
                }
            }
            Reply::Unsupported => {
                self.stopped = true;
                self.wanted = None;
            }
        }
        Heard::News { digest, epoch }
    }

    /// When the oldest frame that still waits for an answer was sent.
    #[must_use]
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered().next().map(|sent| sent.at)
    }

    fn unanswered(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        self.sent.iter().filter(|sent| sent.ordinal > self.answered)
    }

    /// Whether the supervisor surely has this: the newest answer said so and nothing else is under way.
    fn is_installed(&self, digest: Digest) -> bool {
        self.has == Some(digest) && self.unanswered().all(|sent| sent.digest == digest)
    }

    /// Lets the content go once nothing can make it due again.
    fn forget_what_is_installed(&mut self) {
        let settled = self.unanswered().next().is_none();
        let has = self.has;
        if let Some(wanted) = self.wanted.as_mut().filter(|wanted| settled && has == Some(wanted.digest)) {
            wanted.content = None;
        }
    }

    /// Remembers that this content was refused; it comes again after gaps that double from the first to the longest.
    fn refuse(&mut self, digest: Digest, gaps: Option<(Duration, Duration)>, joint: bool, now: Instant) {
        self.has = None;
        let before = self.refusal.take().filter(|refusal| refusal.digest == digest).map_or(0, |refusal| refusal.times);
        let retry_at = gaps.map(|(first, longest)| now + (first * 2_u32.saturating_pow(before.min(16))).min(longest));
        self.refusal = Some(Refusal { digest, times: before + 1, retry_at, joint });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn content_is_kept_while_it_may_have_to_be_sent_and_let_go_once_it_is_installed() {
        let now = Instant::now();
        let content = Arc::new(());
        let mut half = Half::default();
        half.want(Digest::new([1; 32]), Uuid::nil(), Arc::clone(&content), true, now);
        half.take_due(1, now).unwrap();
        half.hear(1, Reply::Refused { retryable: true }, false, now);
        assert_eq!(Arc::strong_count(&content), 2);
        let later = half.due().unwrap();
        half.take_due(2, later).unwrap();
        half.hear(2, Reply::Installed, false, later);
        assert_eq!(Arc::strong_count(&content), 1);
    }
}
