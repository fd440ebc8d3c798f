//! Where the last so many wanted lines and events begin. Pure.

use roadstead_proto::activity::{EVENTS, Kind, LINES};
use roadstead_proto::api::v1::WatchSandboxRequest;
use roadstead_proto::internal::activity_line::Content;

use super::filter::Filter;
use super::line::Line;
use super::newest::Newest;

/// Lines before the live ones when a client does not say how many.
const DEFAULT: u32 = 200;

/// The newest wanted lines and events of what it is shown.
#[derive(Debug)]
pub(crate) struct Tail<'a> {
    filter: &'a Filter,
    logs: Newest<()>,
    events: Newest<()>,
}

/// From where each kind is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) log: u64,
    pub(crate) event: u64,
}

impl<'a> Tail<'a> {
    /// The tail that a request asks for.
    pub(crate) fn new(filter: &'a Filter, request: &WatchSandboxRequest) -> Self {
        let asked = if request.log_tail_lines == 0 { DEFAULT } else { request.log_tail_lines.min(LINES) };
        let logs = if request.follow_logs { asked } else { 0 };
        let events = if request.follow_events { request.event_tail.min(EVENTS) } else { 0 };
        Self { filter, logs: Newest::new(logs as usize, usize::MAX), events: Newest::new(events as usize, usize::MAX) }
    }

    /// Whether there is nothing to look for.
    pub(crate) const fn is_empty(&self) -> bool {
        self.logs.most() == 0 && self.events.most() == 0
    }

    /// Takes note of a line, in the order of sequences.
    pub(crate) fn see(&mut self, line: &Line) {
        if !self.filter.is_recent(line.happened()) {
            return;
        }
        match &line.content {
            Content::Log(log) if self.filter.wants(log) => self.logs.see(line.sequence, 0, ()),
            Content::Log(_) => {}
            Content::Event(_) => self.events.see(line.sequence, 0, ()),
        }
    }

    /// Where they begin; at `end` where there are none.
    pub(crate) fn begin(&self, end: u64) -> Begin {
        let first = |newest: &Newest<()>| newest.first().unwrap_or(end);
        Begin { log: first(&self.logs), event: first(&self.events) }
    }
}

impl Begin {
    /// Everything.
    pub(crate) const ALL: Self = Self { log: 0, event: 0 };

    /// Where the earlier kind begins.
    pub(crate) fn first(self) -> u64 {
        self.log.min(self.event)
    }

    pub(crate) const fn of(self, kind: Kind) -> u64 {
        match kind {
            Kind::Log => self.log,
            Kind::Event => self.event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::lines::tests::{event, filter, log};

    fn begin(request: &WatchSandboxRequest, least: &str) -> Begin {
        let filter = filter(least);
        let mut tail = Tail::new(&filter, request);
        // Events at 5 and 10; lines elsewhere, every third one an ERROR.
        for sequence in 1..=12 {
            tail.see(&match sequence {
                5 | 10 => event(sequence),
                _ if sequence % 3 == 0 => log(sequence, "ERROR"),
                _ => log(sequence, "INFO"),
            });
        }
        tail.begin(13)
    }

    #[test]
    fn each_kind_begins_where_its_newest_so_many_begin() {
        let follows = WatchSandboxRequest { follow_logs: true, follow_events: true, ..Default::default() };
        let tails = |log_tail_lines, event_tail| WatchSandboxRequest { log_tail_lines, event_tail, ..follows.clone() };
        assert_eq!(begin(&tails(3, 1), ""), Begin { log: 9, event: 10 });
        assert_eq!(begin(&tails(3, 9), ""), Begin { log: 9, event: 5 });
        assert_eq!(begin(&tails(2, 0), "ERROR"), Begin { log: 9, event: 13 });
        assert_eq!(begin(&tails(0, 0), ""), Begin { log: 1, event: 13 }, "200 by default");
        assert_eq!(begin(&WatchSandboxRequest { follow_logs: false, ..tails(3, 1) }, "").log, 13);
    }
}
