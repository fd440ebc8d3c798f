//! Model test of the hub and its streams: a database changes, loses objects and is restored; a feed loses, delays, repeats
//! and reorders what it tells; reads take their time and fail; readers stall, break off and come back at another edge.
//! Whatever happens, in each stream versions rise, every state that is shown was one, and the last one is not missed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::FutureExt as _;
use proptest::prelude::*;
use prost::Message as _;
use roadstead_bus::bucket::Revision;
use roadstead_bus::feed::Stored;
use roadstead_proto::api::datamodel::ObjectMeta;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{Sandbox, SandboxPhase, SandboxStatus, SandboxStreamEvent, WatchSandboxRequest};
use roadstead_proto::bucket::SandboxKey;
use roadstead_proto::internal::{SandboxEntriesReply, SandboxEntry};
use tokio::time::Instant;
use uuid::Uuid;

use super::entries::{Batch, Entries, Stopped};
use super::feed::Listener as _;
use super::following::{Following, Step};
use super::hub::{Hub, Watcher};
use super::sandboxes::Sandboxes;
use super::shown::Version;

const EDGES: usize = 2;
const NAMES: usize = 2;
const PHASES: [SandboxPhase; 4] =
    [SandboxPhase::Provisioning, SandboxPhase::Ready, SandboxPhase::Stopping, SandboxPhase::Error];

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A sandbox of that name changes, or is made.
    Commit(usize, SandboxPhase),
    Delete(usize),
    /// The database is backed up, or put back to that backup.
    BackUp,
    Restore,
    /// A mark of that name's sandbox is projected.
    Project(usize),
    /// An entry of so many changes ago is told, as after a wipe, a rollback, or out of order.
    Retell(usize, usize),
    /// A feed message arrives at an edge, or is lost on its way there.
    Deliver(usize),
    Lose(usize),
    /// An edge takes its feed for silent and subscribes anew.
    Resubscribe(usize),
    /// An edge sends its next read; its answer comes, or does not.
    Ask(usize),
    Answer(usize, bool),
    /// A client opens a watch by name.
    Open(usize, usize, Follows),
    /// A client takes an event, if there is one.
    Take(usize),
    /// A client breaks off and opens the same watch at the other edge.
    Reopen(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Follows {
    Status,
    StatusToTheEnd,
    TheEnd,
}

fn any_act() -> impl Strategy<Value = Act> {
    let (name, edge) = (0..NAMES, 0..EDGES);
    let follows = prop_oneof![Just(Follows::Status), Just(Follows::StatusToTheEnd), Just(Follows::TheEnd)];
    prop_oneof![
        8 => (name.clone(), proptest::sample::select(&PHASES[..])).prop_map(|(name, phase)| Act::Commit(name, phase)),
        3 => name.clone().prop_map(Act::Delete),
        1 => Just(Act::BackUp),
        1 => Just(Act::Restore),
        6 => name.clone().prop_map(Act::Project),
        4 => (name.clone(), 0..4_usize).prop_map(|(name, age)| Act::Retell(name, age)),
        12 => edge.clone().prop_map(Act::Deliver),
        1 => edge.clone().prop_map(Act::Lose),
        1 => edge.clone().prop_map(Act::Resubscribe),
        6 => edge.clone().prop_map(Act::Ask),
        6 => (edge.clone(), prop::bool::weighted(0.8)).prop_map(|(edge, comes)| Act::Answer(edge, comes)),
        4 => (edge, name, follows).prop_map(|(edge, name, follows)| Act::Open(edge, name, follows)),
        8 => (0..8_usize).prop_map(Act::Take),
        2 => (0..8_usize).prop_map(Act::Reopen),
    ]
}

/// The database: the rows that there are, and every state that any sandbox ever had.
#[derive(Default)]
struct Database {
    epoch: u64,
    ids: u128,
    rows: BTreeMap<Uuid, (usize, SandboxEntry)>,
    backup: BTreeMap<Uuid, (usize, SandboxEntry)>,
    history: BTreeMap<Uuid, Vec<SandboxEntry>>,
    /// The last sandbox of each name.
    last: [Option<Uuid>; NAMES],
}

impl Database {
    fn id(&self, name: usize) -> Option<Uuid> {
        self.rows.iter().find(|(_, (of, _))| *of == name).map(|(id, _)| *id)
    }

    fn entry(&self, id: Uuid) -> SandboxEntry {
        let epoch = self.epoch;
        let Some((_, entry)) = self.rows.get(&id) else {
            return SandboxEntry { epoch, gone: true, ..Default::default() };
        };
        let mut entry = SandboxEntry { epoch, ..entry.clone() };
        // So that what is shown tells its epoch.
        if let Some(metadata) = entry.sandbox.as_mut().and_then(|sandbox| sandbox.metadata.as_mut()) {
            metadata.name = epoch.to_string();
        }
        entry
    }

    fn note(&mut self, id: Uuid) {
        let entry = self.entry(id);
        self.history.entry(id).or_default().push(entry);
    }

    fn commit(&mut self, name: usize, phase: SandboxPhase) {
        let id = self.id(name).unwrap_or_else(|| {
            self.ids += 1;
            Uuid::from_u128(self.ids)
        });
        let version = self.rows.get(&id).map_or(0, |(_, entry)| entry.version) + 1;
        let metadata = ObjectMeta { id: id.to_string(), resource_version: version, ..Default::default() };
        let status = SandboxStatus { phase: phase.into(), ..Default::default() };
        let sandbox = Some(Sandbox { metadata: Some(metadata), status: Some(status), ..Default::default() });
        self.rows.insert(id, (name, SandboxEntry { version, sandbox, ..Default::default() }));
        self.last[name] = Some(id);
        self.note(id);
    }

    fn restore(&mut self) {
        self.epoch += 1;
        self.rows = self.backup.clone();
        for id in self.history.keys().copied().collect::<Vec<_>>() {
            self.note(id);
        }
    }

    /// Whether it was gone in that life of the database, or in a later one.
    fn was_gone(&self, id: Uuid, since: u64) -> bool {
        self.had(id, |entry| entry.gone && entry.epoch >= since)
    }

    /// Whether it ever had this state.
    fn had(&self, id: Uuid, is: impl Fn(&SandboxEntry) -> bool) -> bool {
        self.history[&id].iter().any(is)
    }
}

/// An edge, and what is on its way to it.
struct Edge {
    hub: Hub,
    entries: Entries,
    sandboxes: Sandboxes,
    feed: VecDeque<Stored>,
    /// Something was lost, and nothing came since.
    gap: bool,
    asked: Option<(Batch, SandboxEntriesReply)>,
}

impl Edge {
    fn new() -> Self {
        let (hub, entries) = (Hub::default(), Entries::default());
        let sandboxes = Sandboxes { hub: hub.clone(), entries: entries.clone() };
        Self { hub, entries, sandboxes, feed: VecDeque::new(), gap: false, asked: None }
    }

    fn deliver(&mut self) {
        let Some(stored) = self.feed.pop_front() else { return };
        if std::mem::take(&mut self.gap) {
            self.sandboxes.missed(Instant::now());
        }
        self.sandboxes.stored(stored);
    }

    fn ask(&mut self, database: &Database) {
        if self.asked.is_none() {
            let batch = self.entries.take();
            let entries = batch.iter().map(|(id, _)| database.entry(*id)).collect();
            self.asked = (!batch.is_empty()).then_some((batch, SandboxEntriesReply { entries }));
        }
    }

    fn answer(&mut self, comes: bool) {
        match self.asked.take() {
            Some((batch, reply)) if comes => self.entries.settle(batch, reply, &self.hub),
            Some((batch, _)) => self.entries.failed(batch),
            None => {}
        }
    }
}

/// A read of the first state that is under way.
type Opening = Pin<Box<dyn Future<Output = Result<(), Stopped>>>>;

/// One stream of a client.
struct Client {
    edge: usize,
    id: Uuid,
    follows: Follows,
    watcher: Watcher,
    /// Until the first state was read.
    opening: Option<Opening>,
    following: Option<Following>,
    /// It has seen all that there is, and waits to be woken.
    waits: bool,
    ended: bool,
    /// The life of the database in which it was opened.
    epoch: u64,
    /// The state at the time of opening, or what the client had seen before: nothing older may be shown.
    least: Option<Version>,
    /// What was shown last, and whether it was terminal.
    shown: Option<(Version, bool)>,
}

impl Client {
    fn open(edge: &Edge, number: usize, id: Uuid, follows: Follows, database: &Database) -> Self {
        let (entries, now) = (edge.entries.clone(), database.entry(id));
        let least = (!now.gone).then_some(Version { epoch: now.epoch, version: now.version });
        let opening = async move { entries.read(id).await };
        let mut client = Self {
            edge: number,
            id,
            follows,
            watcher: edge.hub.enter(id),
            opening: Some(Box::pin(opening)),
            following: None,
            waits: false,
            ended: false,
            epoch: now.epoch,
            least,
            shown: None,
        };
        // The question is put at once.
        client.has_opened(database);
        client
    }

    /// Whether its first state was read.
    fn has_opened(&mut self, database: &Database) -> bool {
        let Some(opening) = &mut self.opening else { return true };
        if opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
            return false;
        }
        self.opening = None;
        let request = WatchSandboxRequest {
            follow_status: self.follows != Follows::TheEnd,
            stop_on_terminal: self.follows != Follows::Status,
            ..Default::default()
        };
        let newest = self.watcher.newest().expect("it was read");
        self.following = Following::begin(&request, &newest);
        if self.following.is_none() {
            assert!(database.was_gone(self.id, self.epoch), "it was refused and is not gone");
            self.ended = true;
        }
        true
    }

    /// Takes an event; whether there was one.
    fn take(&mut self, database: &Database) -> bool {
        if !self.has_opened(database) || self.ended || (self.waits && self.watcher.changed().now_or_never().is_none()) {
            return false;
        }
        let following = self.following.as_mut().expect("it is open");
        let step = loop {
            match self.watcher.newest().map(|newest| following.next(&newest)) {
                Some(Step::Wait) | None if self.watcher.changed().now_or_never().is_some() => {}
                step => break step,
            }
        };
        self.waits = matches!(step, Some(Step::Wait) | None);
        match step {
            Some(Step::Send(event)) => self.show(event, database),
            Some(Step::End) => {
                self.ended = true;
                let stops = self.follows != Follows::Status && self.shown.is_some_and(|(_, terminal)| terminal);
                assert!(stops || database.was_gone(self.id, self.epoch), "it ended without a reason");
            }
            Some(Step::Wait) | None => {}
        }
        !self.waits
    }

    fn show(&mut self, event: Bytes, database: &Database) {
        let Some(Payload::Sandbox(sandbox)) = SandboxStreamEvent::decode(event).unwrap().payload else { panic!() };
        let metadata = sandbox.metadata.as_ref().unwrap();
        assert_eq!(metadata.id, self.id.to_string(), "another sandbox was shown");
        let version = Version { epoch: metadata.name.parse().unwrap(), version: metadata.resource_version };
        let after = self.shown.map(|(version, _)| version);
        assert!(after.is_none_or(|after| version > after), "{version:?} is shown after {after:?}");
        assert!(self.least.is_none_or(|least| version >= least), "{version:?} is older than {:?}", self.least);
        assert!(
            database.had(self.id, |entry| entry.sandbox.as_ref() == Some(&sandbox)),
            "it never was so: {sandbox:?}"
        );
        let terminal = matches!(sandbox.status.unwrap().phase(), SandboxPhase::Ready | SandboxPhase::Error);
        self.shown = Some((version, terminal));
    }
}

struct World {
    database: Database,
    /// Sandboxes that changed and are not projected yet.
    marks: BTreeSet<Uuid>,
    revision: u64,
    edges: [Edge; EDGES],
    clients: Vec<Client>,
}

impl World {
    fn new() -> Self {
        let edges = std::array::from_fn(|_| Edge::new());
        Self { database: Database::default(), marks: BTreeSet::new(), revision: 0, edges, clients: Vec::new() }
    }

    /// The bucket stores an entry and tells every edge.
    fn tell(&mut self, id: Uuid, entry: Option<&SandboxEntry>) {
        self.revision += 1;
        let key = SandboxKey::Sandbox { workspace_id: Uuid::nil(), sandbox_id: id }.to_string();
        let value = entry.map(|entry| entry.encode_to_vec().into());
        for edge in &mut self.edges {
            edge.feed.push_back(Stored { key: key.clone(), value: value.clone(), revision: Revision(self.revision) });
        }
    }

    fn project(&mut self, id: Uuid) {
        if self.marks.remove(&id) {
            let entry = self.database.entry(id);
            self.tell(id, Some(&entry));
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Commit(name, phase) => {
                self.database.commit(name, phase);
                self.marks.extend(self.database.last[name]);
            }
            Act::Delete(name) => {
                if let Some(id) = self.database.id(name) {
                    self.database.rows.remove(&id);
                    self.database.note(id);
                    self.marks.insert(id);
                }
            }
            Act::BackUp => self.database.backup = self.database.rows.clone(),
            Act::Restore => {
                self.database.restore();
                self.marks.extend(self.database.history.keys());
            }
            Act::Project(name) => {
                if let Some(id) = self.database.last[name] {
                    self.project(id);
                }
            }
            Act::Retell(name, age) => {
                let Some(id) = self.database.last[name] else { return };
                let history = &self.database.history[&id];
                // Beyond the first one: the key was purged.
                let entry = history.len().checked_sub(age + 1).map(|at| history[at].clone());
                self.tell(id, entry.as_ref());
            }
            Act::Deliver(edge) => self.edges[edge].deliver(),
            Act::Lose(edge) => self.edges[edge].gap |= self.edges[edge].feed.pop_front().is_some(),
            Act::Resubscribe(edge) => {
                self.edges[edge].feed.clear();
                self.edges[edge].gap = false;
                self.edges[edge].sandboxes.missed(Instant::now());
            }
            Act::Ask(edge) => self.edges[edge].ask(&self.database),
            Act::Answer(edge, comes) => self.edges[edge].answer(comes),
            Act::Open(edge, name, follows) => {
                if let Some(id) = self.database.id(name) {
                    self.clients.push(Client::open(&self.edges[edge], edge, id, follows, &self.database));
                }
            }
            Act::Take(client) => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.take(&self.database);
                }
            }
            Act::Reopen(number) => {
                let Some(client) = self.clients.get_mut(number).filter(|client| !client.ended) else { return };
                let edge = (client.edge + 1) % EDGES;
                let mut again = Client::open(&self.edges[edge], edge, client.id, client.follows, &self.database);
                // Nothing older than what it has seen.
                again.least = again.least.max(client.shown.map(|(version, _)| version));
                *client = again;
            }
        }
    }

    /// Everything comes to rest: marks are projected, feeds tell what they have, reads are answered, readers take.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.marks) {
            self.marks.insert(id);
            self.project(id);
        }
        for edge in &mut self.edges {
            while !edge.feed.is_empty() {
                edge.deliver();
            }
            // The next beat shows what was lost last.
            if std::mem::take(&mut edge.gap) {
                edge.sandboxes.missed(Instant::now());
            }
            edge.answer(false);
            edge.ask(&self.database);
            while edge.asked.is_some() {
                edge.answer(true);
                edge.ask(&self.database);
            }
        }
        for client in &mut self.clients {
            while client.take(&self.database) && !client.ended {}
        }
    }

    fn assert_nothing_was_missed(&self) {
        for client in &self.clients {
            let now = self.database.entry(client.id);
            if client.ended {
                continue;
            }
            assert!(client.opening.is_none(), "it never opened");
            assert!(!now.gone, "its sandbox is gone");
            let newest = Version { epoch: now.epoch, version: now.version };
            let phase = now.sandbox.unwrap().status.unwrap().phase();
            let terminal = matches!(phase, SandboxPhase::Ready | SandboxPhase::Error);
            assert!(client.follows == Follows::Status || !terminal, "it was to end here");
            if client.follows != Follows::TheEnd {
                assert_eq!(client.shown, Some((newest, terminal)), "its last state was missed");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024 * roadstead_testkit::soak::factor(), ..Default::default() })]

    #[test]
    fn whatever_is_lost_late_repeated_or_slow_versions_rise_and_the_last_state_is_shown(
        acts in proptest::collection::vec(any_act(), 1..100),
    ) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.settle();
        world.assert_nothing_was_missed();
        world.clients.clear();
        prop_assert!(world.edges.iter().all(|edge| edge.hub.watched().is_empty()));
    }
}
