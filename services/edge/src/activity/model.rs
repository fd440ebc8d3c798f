//! Model test of the lines of streams: a broker stores, trims, loses and rolls back; a feed loses what it tells; readers
//! stall, are overtaken, break off and resume at another edge. Whatever happens, lines rise, none is shown twice, and
//! where one is missing a warning says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::FutureExt as _;
use proptest::prelude::*;
use roadstead_bus::activity::State;
use roadstead_proto::activity::Kind;
use roadstead_proto::cursor::{Cursor, Incarnation};
use uuid::Uuid;

use super::hub::{Hub, Receiver, Told};
use super::line::{Line, nanos};
use super::lines::tests::{all, event, log, time};
use super::lines::{Lines, News, Next, Page, Wanted};
use super::resume;
use super::seen::{Seen, Shows};
use super::tail::Begin;

const EDGES: usize = 2;
const MINE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);
/// News that a hub keeps for a slow reader.
const KEPT: usize = 4;
/// Lines on a page.
const PAGE: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A line of the sandbox, or of another one, is stored.
    Store(Kind, bool),
    /// The oldest so many messages go, never the newest of all, which may still be on its way.
    Trim(usize),
    Save,
    RollBack,
    Wipe,
    /// A feed message arrives at an edge, or is lost on its way there.
    Deliver(usize),
    Lose(usize),
    /// An edge looks at how the stream stands.
    Look(usize),
    /// A client follows logs, or logs and events, from now on.
    Open(usize, bool),
    /// A client's stream does its next step.
    Step(usize),
    /// A client breaks off and resumes at the other edge.
    Resume(usize),
}

fn any_act() -> impl Strategy<Value = Act> {
    let edge = 0..EDGES;
    let kind = prop_oneof![3 => Just(Kind::Log), 1 => Just(Kind::Event)];
    prop_oneof![
        10 => (kind, prop::bool::weighted(0.8)).prop_map(|(kind, mine)| Act::Store(kind, mine)),
        1 => (1..5_usize).prop_map(Act::Trim),
        1 => Just(Act::Save),
        1 => Just(Act::RollBack),
        1 => Just(Act::Wipe),
        10 => edge.clone().prop_map(Act::Deliver),
        3 => edge.clone().prop_map(Act::Lose),
        2 => edge.clone().prop_map(Act::Look),
        3 => (edge, any::<bool>()).prop_map(|(edge, events)| Act::Open(edge, events)),
        20 => (0..3_usize).prop_map(Act::Step),
        2 => (0..3_usize).prop_map(Act::Resume),
    ]
}

/// What is stored. Its line has the number of its storing as its time and as its event: no two of all lives share one.
#[derive(Clone, Debug)]
struct Stored {
    mine: bool,
    line: Line,
}

/// One life of the broker's stream.
#[derive(Clone, Debug, Default)]
struct Life {
    number: u64,
    kept: Vec<Stored>,
    last: u64,
    /// Sequence up to which messages went.
    trimmed: u64,
    /// The numbers of all that it ever had.
    stored: BTreeSet<u64>,
}

impl Life {
    fn state(&self) -> State {
        let incarnation = Incarnation::created(&self.number.to_string());
        State {
            incarnation,
            first: self.kept.first().map_or(self.last + 1, |first| first.line.sequence),
            last: self.last,
        }
    }

    fn at(&self, sequence: u64) -> Option<&Stored> {
        self.kept.iter().find(|stored| stored.line.sequence == sequence)
    }

    fn page(&self, wanted: &Wanted, from: u64, most: usize) -> Page {
        let is_wanted = |stored: &&Stored| {
            stored.mine && stored.line.sequence >= from && wanted.kinds().contains(&stored.line.kind)
        };
        let mut lines = self.kept.iter().filter(is_wanted).map(|stored| stored.line.clone()).collect::<Vec<_>>();
        let end = lines.len() <= most;
        lines.truncate(most);
        let through = lines.last().map_or(from.saturating_sub(1), |line| line.sequence);
        Page { lines, through, lost: self.trimmed >= from, end }
    }
}

struct Edge {
    hub: Hub,
    seen: Seen,
    feed: VecDeque<(Stored, u64)>,
    /// A message was lost; another one that comes shows it.
    lost: bool,
    /// The connection was lost, which is known,
    gap: bool,
    /// and the stream has not been looked at since.
    doubt: bool,
}

impl Edge {
    fn look(&mut self, life: &Life) -> Shows {
        let newest = self.seen.newest();
        let found = newest.and_then(|(sequence, _)| life.at(sequence)).map(|stored| stored.line.stored);
        self.doubt = false;
        let shows = self.seen.look(life.state(), found);
        if shows == Shows::Restarted {
            self.hub.restarted();
        }
        shows
    }

    fn missed(&mut self, life: &Life) {
        let tip = life.at(self.seen.last()).map(|stored| stored.line.stored);
        let after = self.seen.missed(tip);
        self.hub.gap(after);
    }

    fn compare(&mut self, life: &Life) {
        if self.look(life) != Shows::Nothing {
            self.missed(life);
        }
    }

    /// Hears everything that is on its way, and finds what no message shows.
    fn settle(&mut self, life: &Life) {
        while self.gap || !self.feed.is_empty() {
            self.deliver(life);
        }
        // What was there at one look has to have come by the next.
        self.compare(life);
        self.compare(life);
    }

    fn deliver(&mut self, life: &Life) {
        let shown = self.lost && !self.feed.is_empty();
        if std::mem::take(&mut self.gap) || shown {
            self.lost = false;
            self.look(life);
            self.missed(life);
        }
        let Some((Stored { mine, line }, before)) = self.feed.pop_front() else { return };
        let (sequence, stored) = (line.sequence, line.stored);
        self.hub.tell(if mine { MINE } else { OTHER }, News::Stored { line: line.into(), before });
        self.seen.stored(sequence, stored);
    }
}

/// What a client was shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Line(u64),
    /// The reader fell behind.
    Lost,
    /// The broker lost what it had stored, which was told when so much had been stored.
    Restarted {
        clock: u64,
    },
}

struct Client {
    edge: usize,
    wanted: Wanted,
    news: Receiver,
    lines: Lines,
    reading: Option<Page>,
    /// Lines after this one are to be shown,
    since: u64,
    /// but for those that the broker had lost when it resumed after one that it had not.
    lost: BTreeSet<u64>,
    shown: Vec<Item>,
}

impl Client {
    fn open(edges: &[Edge; EDGES], edge: usize, wanted: Wanted, life: &Life, clock: u64) -> Self {
        let news = edges[edge].hub.enter(MINE);
        let end = life.last + 1;
        let lines = Lines::tail(wanted.clone(), Begin { log: end, event: end }, life.last);
        Self { edge, wanted, news, lines, reading: None, since: clock, lost: BTreeSet::new(), shown: Vec::new() }
    }

    /// Does one step; whether there was one to do.
    fn step(&mut self, edges: &[Edge; EDGES], life: &Life, clock: u64) -> bool {
        if let Some(page) = self.reading.take() {
            if !self.news.is_restarted() {
                self.lines.read(page);
            }
            return true;
        }
        match self.lines.next() {
            Next::Send(event) => {
                let text = String::from_utf8_lossy(&event);
                let warning = if text.contains("the broker lost") { Item::Restarted { clock } } else { Item::Lost };
                self.shown.push(text.parse().map_or(warning, Item::Line));
            }
            Next::Read(_) if self.news.pass_over() => self.lines.hear(&News::Restarted),
            // A page waits until the stream was looked at.
            Next::Read(_) if edges[self.edge].doubt => return false,
            Next::Read(from) => self.reading = Some(life.page(&self.wanted, from, PAGE)),
            Next::Wait => match self.news.next().now_or_never() {
                Some(Told::News(news)) => self.lines.hear(&news),
                Some(Told::Lagged) => self.lines.lag(),
                None => return false,
            },
        }
        true
    }

    /// Holds what it was shown against every line that was ever stored, and those that are there.
    fn assert_sound(&self, stored: &[(u64, Kind)], life: &Life) {
        let wanted = self.wanted.kinds();
        let expected = stored.iter().filter(|(_, kind)| wanted.contains(kind)).map(|(number, _)| *number);
        let expected = expected.filter(|number| !self.lost.contains(number));
        let expected = expected.collect::<BTreeSet<_>>();
        // `told` is up to where a word covers all that is missing.
        let (mut last, mut told, mut lost, mut silent) = (0, self.since, false, None);
        let missing = |told: u64, before: u64| expected.range(told + 1..before.max(told + 1)).next().copied();
        for item in &self.shown {
            match *item {
                Item::Lost => lost = true,
                Item::Restarted { clock } => (told, lost) = (clock, true),
                Item::Line(number) => {
                    assert!(number > last, "{number} is shown after {last}: {:?}", self.shown);
                    silent = silent.or(missing(told, number).filter(|_| !lost));
                    (last, told, lost) = (number, told.max(number), false);
                }
            }
        }
        silent = silent.or(missing(told, u64::MAX).filter(|_| !lost));
        assert_eq!(silent, None, "it is missing without a word: {:?}", self.shown);
        let end = life.page(&self.wanted, 0, usize::MAX).lines.last().map_or(0, number);
        assert!(end <= last.max(self.since), "{end} is there and not shown: {:?}", self.shown);
    }
}

/// The number of its storing.
fn number(line: &Line) -> u64 {
    line.stored.seconds.cast_unsigned()
}

struct World {
    life: Life,
    lives: u64,
    saved: Life,
    clock: u64,
    /// The sandbox's lines of all lives.
    stored: Vec<(u64, Kind)>,
    /// Where each line was, by its number.
    cursors: BTreeMap<u64, Cursor>,
    edges: [Edge; EDGES],
    clients: Vec<Client>,
}

impl World {
    fn new() -> Self {
        let life = Life::default();
        let edge = |_| {
            let mut edge = Edge {
                hub: Hub::keeping(KEPT),
                seen: Seen::default(),
                feed: VecDeque::new(),
                lost: false,
                gap: false,
                doubt: false,
            };
            edge.look(&life);
            edge.missed(&life);
            edge
        };
        let edges = std::array::from_fn(edge);
        let (stored, cursors, clients) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { saved: life.clone(), life, lives: 0, clock: 0, stored, cursors, edges, clients }
    }

    fn store(&mut self, kind: Kind, mine: bool) {
        self.clock += 1;
        self.life.last += 1;
        let before = self.life.kept.iter().rev().find(|stored| stored.mine == mine && stored.line.kind == kind);
        let before = before.map_or(0, |stored| stored.line.sequence);
        let line = match kind {
            Kind::Log => log(self.clock, "INFO"),
            Kind::Event => event(self.clock),
        };
        let stored = Stored { mine, line: Line { sequence: self.life.last, stored: time(self.clock), ..line } };
        for edge in &mut self.edges {
            edge.feed.push_back((stored.clone(), before));
        }
        let stored_nanos = nanos(&stored.line.stored);
        let incarnation = self.life.state().incarnation;
        self.cursors.insert(self.clock, Cursor { incarnation, sequence: self.life.last, stored_nanos });
        self.life.stored.insert(self.clock);
        self.life.kept.push(stored);
        if mine {
            self.stored.push((self.clock, kind));
        }
    }

    /// The broker comes back with another stream. Before that edges have heard, or looked at, what there was: nobody can
    /// tell of what was lost before anybody knew of it.
    fn begin(&mut self, life: Life) {
        for edge in &mut self.edges {
            edge.settle(&self.life);
            (edge.gap, edge.doubt) = (true, true);
        }
        self.life = life;
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Store(kind, mine) => self.store(kind, mine),
            // Not what edges would know a way back by, before they have looked.
            Act::Trim(_) if self.edges.iter().any(|edge| edge.gap) => {}
            Act::Trim(count) => {
                let went = self.life.kept.drain(..count.min(self.life.kept.len().saturating_sub(1))).last();
                self.life.trimmed = went.map_or(self.life.trimmed, |went| went.line.sequence);
            }
            Act::Save => self.saved = self.life.clone(),
            Act::RollBack => self.begin(self.saved.clone()),
            Act::Wipe => {
                self.lives += 1;
                self.begin(Life { number: self.lives, ..Life::default() });
                self.saved = self.life.clone();
            }
            Act::Deliver(edge) => self.edges[edge].deliver(&self.life),
            Act::Lose(edge) => self.edges[edge].lost |= self.edges[edge].feed.pop_front().is_some(),
            Act::Look(edge) => self.edges[edge].compare(&self.life),
            Act::Open(edge, events) => {
                let wanted = Wanted { events, ..all() };
                self.clients.push(Client::open(&self.edges, edge, wanted, &self.life, self.clock));
            }
            Act::Step(client) => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.step(&self.edges, &self.life, self.clock);
                }
            }
            Act::Resume(client) => self.resume(client),
        }
    }

    fn resume(&mut self, client: usize) {
        let (edges, life) = (&self.edges, &self.life);
        let Some(client) = self.clients.get_mut(client) else { return };
        let edge = (client.edge + 1) % EDGES;
        let anew = || Client::open(edges, edge, client.wanted.clone(), life, self.clock);
        let last = client.shown.iter().rev().find_map(|item| match item {
            Item::Line(number) => Some(*number),
            Item::Lost | Item::Restarted { .. } => None,
        });
        let Some(cursor) = last.map(|last| self.cursors[&last]) else {
            *client = anew();
            return;
        };
        let news = edges[edge].hub.enter(MINE);
        let found = life.at(cursor.sequence).map(|found| (if found.mine { MINE } else { OTHER }, found.line.stored));
        match resume::after(&cursor, MINE, &life.state(), found) {
            Ok(stored) => {
                client.lines = Lines::resume(client.wanted.clone(), cursor.sequence, stored, life.last);
                (client.news, client.reading, client.edge) = (news, None, edge);
                let stored = self.stored.iter().map(|(number, _)| *number);
                client.lost.extend(stored.filter(|number| !life.stored.contains(number)));
                // It shows exactly the rest: what was said before to be missing is none of its business.
                let shown = client.shown.iter().rposition(|item| *item != Item::Lost);
                client.shown.truncate(shown.map_or(0, |at| at + 1));
            }
            Err(_) => *client = anew(),
        }
    }

    /// Everything comes to rest: feeds tell what they have, edges look, and readers take.
    fn settle(&mut self) {
        for edge in &mut self.edges {
            edge.settle(&self.life);
        }
        for client in &mut self.clients {
            while client.step(&self.edges, &self.life, self.clock) {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256 * roadstead_testkit::soak::factor(), ..Default::default() })]

    #[test]
    fn whatever_is_lost_no_line_is_shown_twice_and_none_is_missing_without_a_word(
        acts in proptest::collection::vec(any_act(), 1..100),
    ) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.settle();
        for client in &world.clients {
            client.assert_sound(&world.stored, &world.life);
        }
    }
}
