//! What one stream shows of its sandbox's lines and events. Pure.
//!
//! Everything is shown by rising sequence. A stream is *live* as long as each line that is new follows on the one before;
//! otherwise it reads on from where it is, at its own pace, and what the broker no longer has by then is told as lost.
//! So a cursor is sent only if everything before it was shown or told as lost.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_proto::activity::Kind;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{SandboxStreamEvent, SandboxStreamWarning};
use roadstead_proto::internal::activity_line::Content;

use super::filter::Filter;
use super::line::{Line, nanos};
use super::tail::Begin;

/// What is new, in order.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A line was stored, and the one before it of its kind has this sequence, or 0.
    Stored { line: Arc<Line>, before: u64 },
    /// Something may have been missed after this sequence, and nothing up to it.
    Gap { after: u64 },
    /// The broker lost what was stored, or went back in time: sequences begin anew.
    Restarted,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) lines: Vec<Line>,
    /// Everything up to this sequence is in it, but for what was lost.
    pub(crate) through: u64,
    /// Whether something before the first of it may have been lost.
    pub(crate) lost: bool,
    /// Whether there was no more.
    pub(crate) end: bool,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Send(Bytes),
    /// Read on from this sequence.
    Read(u64),
    /// Nothing until there is news.
    Wait,
}

/// What a client wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) logs: bool,
    pub(crate) events: bool,
    pub(crate) filter: Filter,
}

impl Wanted {
    /// The kinds that are followed.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.follows(*kind)).collect()
    }

    const fn follows(&self, kind: Kind) -> bool {
        match kind {
            Kind::Log => self.logs,
            Kind::Event => self.events,
        }
    }
}

/// The lines of one stream.
#[derive(Debug)]
pub(crate) struct Lines {
    wanted: Wanted,
    begin: Begin,
    /// Up to here it is the past, of which only what is recent is shown.
    past: u64,
    /// Everything before this sequence was shown, was not wanted, or was told as lost.
    from: u64,
    /// When the newest line before `from` was stored.
    last: Option<Timestamp>,
    /// After a restart: what was stored up to then has been seen already.
    seen: Option<Timestamp>,
    ready: VecDeque<Bytes>,
    live: bool,
    /// Whether a loss is one: it is none while only the past could be shown, and nothing of it was.
    begun: bool,
}

impl Lines {
    /// Shows what was stored from `begin` on; up to `past` it is the past.
    pub(crate) fn tail(wanted: Wanted, begin: Begin, past: u64) -> Self {
        let from = begin.first();
        let (ready, live, begun) = (VecDeque::new(), false, from > past);
        Self { wanted, begin, past, from, last: None, seen: None, ready, live, begun }
    }

    /// Shows what was stored after the line at `sequence`, at that time; up to `past` it is the past.
    pub(crate) fn resume(wanted: Wanted, sequence: u64, stored: Timestamp, past: u64) -> Self {
        let tail = Self::tail(wanted, Begin::ALL, past);
        Self { from: sequence + 1, last: Some(stored), begun: true, ..tail }
    }

    /// What to do now.
    pub(crate) fn next(&mut self) -> Next {
        match self.ready.pop_front() {
            Some(event) => Next::Send(event),
            None if self.live => Next::Wait,
            None => Next::Read(self.from),
        }
    }

    /// Takes in what was read.
    pub(crate) fn read(&mut self, page: Page) {
        if page.lost && self.begun {
            let next = page.lines.first().map(|line| line.stored);
            self.ready.push_back(warning(&lost(self.last, next)));
        }
        self.begun = true;
        for line in &page.lines {
            self.show(line);
        }
        self.from = self.from.max(page.through + 1);
        self.live = page.end;
    }

    /// Takes in what is new. Only a live stream is told.
    pub(crate) fn hear(&mut self, news: &News) {
        match news {
            News::Stored { line, .. } if line.sequence < self.from => {}
            // Older than what was shown: of a life that a page has overtaken, or the broker's clock went back. If it is
            // there, reading finds it.
            News::Stored { line, .. } if self.last.is_some_and(|last| nanos(&line.stored) < nanos(&last)) => {
                self.live = false;
            }
            // The one before was not told: reading finds both.
            News::Stored { line, before } if *before >= self.from && self.wanted.follows(line.kind) => {
                self.live = false;
            }
            News::Stored { line, .. } => self.show(line),
            News::Gap { after } => {
                self.from = self.from.max(after + 1);
                self.live = false;
            }
            News::Restarted => {
                self.ready.push_back(warning(
                    "the broker lost stored lines; those before this are no longer to be had, and their cursors are \
                     void",
                ));
                self.from = 1;
                self.past = 0;
                self.begin = Begin::ALL;
                self.seen = self.last;
                self.begun = false;
                self.live = false;
            }
        }
    }

    /// News were dropped, because this stream took them too slowly.
    pub(crate) const fn lag(&mut self) {
        self.live = false;
    }

    fn show(&mut self, line: &Line) {
        if line.sequence < self.from {
            return;
        }
        self.from = line.sequence + 1;
        if self.wants(line) {
            self.ready.push_back(line.event.clone());
        }
        self.last = Some(line.stored);
    }

    fn wants(&self, line: &Line) -> bool {
        let passes = match &line.content {
            Content::Log(log) => self.wanted.filter.wants(log),
            Content::Event(_) => true,
        };
        let is_new = self.seen.as_ref().is_none_or(|seen| nanos(&line.stored) > nanos(seen));
        let recent = line.sequence > self.past || self.wanted.filter.is_recent(line.happened());
        self.wanted.follows(line.kind) && passes && is_new && recent && line.sequence >= self.begin.of(line.kind)
    }
}

fn lost(after: Option<Timestamp>, before: Option<Timestamp>) -> String {
    let after = after.map(|time| format!(" after {time}")).unwrap_or_default();
    let before = before.map(|time| format!(" and before {time}")).unwrap_or_default();
    format!("this reader fell behind: log lines and events stored{after}{before} may be lost")
}

fn warning(message: &str) -> Bytes {
    let payload = Some(Payload::Warning(SandboxStreamWarning { message: message.to_owned() }));
    SandboxStreamEvent { payload, cursor: String::new() }.encode_to_vec().into()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use roadstead_proto::api::v1::{PlatformEvent, SandboxLogLine};

    use super::*;

    pub(crate) fn filter(least: &str) -> Filter {
        Filter::new(("sources", Vec::new()), ("level", least), None).unwrap()
    }

    pub(crate) fn time(sequence: u64) -> Timestamp {
        Timestamp { seconds: sequence.cast_signed(), nanos: 0 }
    }

    /// A line whose message and event are its sequence.
    pub(crate) fn log(sequence: u64, level: &str) -> Line {
        let event_time = Some(time(sequence));
        let (level, message) = (level.to_owned(), sequence.to_string());
        let content = Content::Log(SandboxLogLine { level, message, event_time, ..Default::default() });
        Line { kind: Kind::Log, content, sequence, stored: time(sequence), event: sequence.to_string().into() }
    }

    pub(crate) fn event(sequence: u64) -> Line {
        let content = Content::Event(PlatformEvent { event_time: Some(time(sequence)), ..Default::default() });
        Line { kind: Kind::Event, content, ..log(sequence, "") }
    }

    pub(crate) fn all() -> Wanted {
        Wanted { logs: true, events: true, filter: filter("") }
    }

    fn page(sequences: impl IntoIterator<Item = u64>, through: u64, end: bool) -> Page {
        let lines = sequences.into_iter().map(|sequence| log(sequence, "INFO")).collect();
        Page { lines, through, lost: false, end }
    }

    fn stored(sequence: u64, before: u64) -> News {
        News::Stored { line: Arc::new(log(sequence, "INFO")), before }
    }

    /// Everything that is to be sent now; `!` for a warning.
    fn sent(lines: &mut Lines) -> Vec<String> {
        let mut sent = Vec::new();
        while let Next::Send(event) = lines.next() {
            let text = std::str::from_utf8(&event).ok().filter(|text| text.parse::<u64>().is_ok());
            sent.push(text.unwrap_or("!").to_owned());
        }
        sent
    }

    #[test]
    fn a_tail_is_followed_by_what_is_new_without_a_repeat() {
        let mut lines = Lines::tail(all(), Begin { log: 3, event: 9 }, 5);
        assert_eq!(lines.next(), Next::Read(3));
        lines.read(page([3, 5], 5, false));
        assert_eq!(sent(&mut lines), ["3", "5"]);
        assert_eq!(lines.next(), Next::Read(6));
        lines.read(page([], 5, true));
        assert_eq!(lines.next(), Next::Wait);
        for (sequence, before) in [(5, 3), (8, 5), (8, 5), (11, 8)] {
            lines.hear(&stored(sequence, before));
        }
        assert_eq!(sent(&mut lines), ["8", "11"]);
    }

    #[test]
    fn each_kind_begins_at_its_own_place() {
        let mut lines = Lines::tail(all(), Begin { log: 4, event: 2 }, 9);
        let read = Page { lines: vec![event(1), event(2), log(3, "INFO"), log(4, "INFO")], ..page([], 4, true) };
        lines.read(read);
        assert_eq!(sent(&mut lines), ["2", "4"]);
    }

    #[test]
    fn a_line_whose_predecessor_was_not_told_is_read_with_it() {
        let mut lines = Lines::resume(all(), 4, time(4), 4);
        lines.read(page([], 4, true));
        lines.hear(&stored(9, 7));
        assert_eq!(lines.next(), Next::Read(5));
        lines.read(page([7, 9], 9, true));
        assert_eq!(sent(&mut lines), ["7", "9"]);
    }

    #[test]
    fn a_gap_and_a_lag_are_read_over_and_a_loss_is_said_before_what_follows() {
        let mut lines = Lines::resume(all(), 4, time(4), 4);
        lines.read(page([], 4, true));
        lines.hear(&News::Gap { after: 20 });
        assert_eq!(lines.next(), Next::Read(21));
        lines.read(page([30], 30, true));
        assert_eq!(sent(&mut lines), ["30"]);
        lines.lag();
        assert_eq!(lines.next(), Next::Read(31));
        lines.read(Page { lost: true, ..page([50], 50, true) });
        assert_eq!(sent(&mut lines), ["!", "50"]);
    }

    #[test]
    fn a_tail_that_is_trimmed_before_it_is_shown_has_lost_nothing() {
        let mut lines = Lines::tail(all(), Begin { log: 3, event: 3 }, 5);
        lines.read(Page { lost: true, ..page([5], 5, true) });
        assert_eq!(sent(&mut lines), ["5"]);
    }

    #[test]
    fn news_of_a_life_that_a_page_has_overtaken_are_not_shown_and_the_page_is_shown_once() {
        let mut lines = Lines::tail(all(), Begin { log: 1, event: 1 }, 0);
        lines.read(Page { lines: vec![Line { sequence: 1, ..log(8, "INFO") }], ..page([], 1, true) });
        lines.hear(&stored(2, 0));
        assert_eq!(lines.next(), Next::Send("8".into()));
        assert_eq!(lines.next(), Next::Read(2));
        lines.read(page([], 1, true));
        lines.hear(&News::Restarted);
        assert_eq!(sent(&mut lines), ["!"]);
        lines.read(Page { lines: vec![Line { sequence: 1, ..log(8, "INFO") }], ..page([], 1, true) });
        assert_eq!(lines.next(), Next::Wait);
    }

    #[test]
    fn what_is_new_and_trimmed_before_anything_is_shown_is_said_to_be_lost() {
        let mut lines = Lines::tail(all(), Begin { log: 6, event: 6 }, 5);
        lines.read(Page { lost: true, ..page([8], 8, true) });
        assert_eq!(sent(&mut lines), ["!", "8"]);
    }

    #[test]
    fn after_a_restart_what_was_seen_is_not_shown_again() {
        let mut lines = Lines::resume(all(), 4, time(4), 4);
        lines.read(page([6], 6, true));
        lines.hear(&News::Restarted);
        assert_eq!(sent(&mut lines), ["6", "!"]);
        assert_eq!(lines.next(), Next::Read(1));
        // Stored in the new life, but before and after what was seen last.
        let rolled_back = Line { sequence: 1, ..log(5, "INFO") };
        let new = Line { sequence: 2, ..log(8, "INFO") };
        lines.read(Page { lines: vec![rolled_back, new], ..page([], 2, true) });
        assert_eq!(sent(&mut lines), ["8"]);
    }

    #[test]
    fn since_holds_for_the_past_alone() {
        let wanted = Wanted { filter: Filter::new(("s", vec![]), ("l", ""), Some(time(4))).unwrap(), ..all() };
        let mut lines = Lines::tail(wanted, Begin::ALL, 5);
        lines.read(page([2, 3, 4], 5, true));
        assert_eq!(sent(&mut lines), ["4"]);
        let late = Line { sequence: 7, stored: time(7), ..log(1, "INFO") };
        lines.hear(&News::Stored { line: Arc::new(late), before: 4 });
        assert_eq!(sent(&mut lines), ["1"], "it is new, whatever it says of its time");
    }

    #[test]
    fn what_is_not_followed_is_passed_over() {
        let events = Wanted { logs: false, ..all() };
        let mut lines = Lines::tail(events, Begin::ALL, 5);
        lines.read(Page { lines: vec![log(1, "INFO"), event(2)], ..page([], 2, true) });
        lines.hear(&stored(3, 1));
        assert_eq!(sent(&mut lines), ["2"]);
        assert_eq!(lines.next(), Next::Wait);
        // Also if the one before was not told, as it was not read: nothing is read for it.
        lines.hear(&stored(9, 7));
        assert_eq!(lines.next(), Next::Wait);
        lines.lag();
        assert_eq!(lines.next(), Next::Read(10));
    }

    proptest! {
        /// Whatever is lost of the feed and however slow the reader: what is shown rises, nothing is shown twice, and
        /// everything that is stored is shown.
        #[test]
        fn nothing_is_missed_and_nothing_is_shown_twice(
            steps in proptest::collection::vec((1_u64..4, 0_u8..6), 1..60), most in 1_usize..5,
        ) {
            let mut lines = Lines::tail(all(), Begin { log: 1, event: 1 }, 0);
            let (mut kept, mut shown): (Vec<u64>, Vec<String>) = (Vec::new(), Vec::new());
            let mut step = |lines: &mut Lines, kept: &[u64]| match lines.next() {
                Next::Send(event) => shown.push(String::from_utf8(event.to_vec()).unwrap()),
                Next::Wait => {}
                Next::Read(from) => {
                    let rest = kept.iter().copied().filter(|&sequence| sequence >= from).collect::<Vec<_>>();
                    let some = rest.iter().copied().take(most).collect::<Vec<_>>();
                    let through = some.last().copied().unwrap_or(from - 1);
                    lines.read(page(some, through, rest.len() <= most));
                }
            };
            let mut sequence = 0;
            // Up to where the feed has brought everything, and whether it has lost something since.
            let (mut through, mut broken) = (0, false);
            for (width, how) in steps {
                let before = kept.last().copied().unwrap_or(0);
                sequence += width;
                kept.push(sequence);
                if how == 0 {
                    broken = true;
                } else {
                    let news = broken.then_some(News::Gap { after: through }).into_iter().chain([stored(sequence, before)]);
                    (through, broken) = (sequence, false);
                    for news in news {
                        // One that reads drops news, as the hub does for one that is too slow; so does one that lags.
                        if lines.live && how > 1 { lines.hear(&news) } else { lines.lag() }
                    }
                }
                step(&mut lines, &kept);
            }
            // The look at the stream finds what the feed lost at the end.
            if lines.live { lines.lag() }
            while !(lines.live && lines.ready.is_empty()) {
                step(&mut lines, &kept);
            }
            let expected = kept.iter().map(ToString::to_string).collect::<Vec<_>>();
            prop_assert_eq!(shown, expected);
        }
    }
}
