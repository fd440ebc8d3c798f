//! Model test from a change to the entry that shows it. A database changes, forgets sandboxes and is restored; a relay and
//! an expansion die midway; marks are replaced, delivered again and lost; builders of two lanes, of bootstraps and of the
//! sweep stop between any two of their steps, die, and hear nothing of writes that arrive much later; the broker is wiped
//! and rolled back. Whatever happens: nothing that was handed out had been changed before it was asked for, accepted
//! entries only move forward unless something was lost, and in the end what followers hold is the entry that stands, and
//! says what the database says.

mod act;
mod broker;
mod builder;
mod database;
mod sweep;

use std::collections::BTreeMap;

use proptest::prelude::*;

use self::act::{Act, any_act};
use self::broker::{Broker, Message, Subject};
use self::builder::{Build, Did, Write, shown};
use self::database::{Content, Database, Row};
use self::sweep::Pass;
use crate::sweep::due::Due;
use crate::sweep::life::Life;

/// Names that sandboxes have.
const NAMES: usize = 2;
/// The first two take marks of lane `one`, the next two of lane `fleet`; two answer bootstraps, and the last one sweeps.
const BUILDERS: usize = 7;
const MARKED: usize = 4;
const ASKED: usize = 6;
const SWEEPER: usize = 6;

/// An expansion that is under way.
struct Expansion {
    message: Message,
    after: u128,
}

/// The newest of what was accepted: epoch, sequence, and what it says (None: purged).
type Newest = (u64, u64, Option<Content>);

/// Epoch and sequence of an entry, and how many changes the sandbox had seen when its inputs were read.
type Accepted = ((u64, u64), usize);

struct World {
    database: Database,
    broker: Broker,
    expansion: Option<Expansion>,
    builders: [Option<Build>; BUILDERS],
    writes: Vec<Write>,
    /// How often broker or database lost something.
    life: u64,
    bucket: Life,
    /// Losses that were seen.
    losses: u64,
    /// One was not swept after.
    lost: bool,
    due: Due,
    pass: Option<Pass>,
    /// What followers hold: what has the highest order of all that was ever accepted.
    held: BTreeMap<u128, Newest>,
    /// The newest that was accepted since the last loss.
    accepted: BTreeMap<u128, Accepted>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            database: Database::default(),
            broker: Broker::default(),
            expansion: None,
            builders: [const { None }; BUILDERS],
            writes: Vec::new(),
            life: 0,
            bucket: Life::default(),
            losses: 0,
            lost: false,
            due: Due::default(),
            pass: None,
            held: BTreeMap::new(),
            accepted: BTreeMap::new(),
        };
        world.look();
        world
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Commit(name, content) => self.database.commit(name, content),
            Act::CommitGlobal(value) => self.database.commit_global(value),
            Act::Delete(name) => self.database.delete(name),
            Act::BackUp => self.database.back_up(),
            Act::Restore => {
                self.database.restore();
                self.loses();
            }
            Act::Relay { dies } => self.relay(dies),
            Act::Expand => self.expand(),
            Act::ExpansionDies => self.expansion = None,
            Act::Build(builder) => {
                self.build(builder);
            }
            Act::Ask(name) => self.ask(name),
            Act::Dies(builder) => self.builders[builder] = None,
            Act::GiveUp(builder) => self.builders[builder].iter_mut().for_each(Build::give_up),
            Act::Arrive(write) => self.arrive(write),
            Act::Vanish(write) => {
                if write < self.writes.len() {
                    self.writes.remove(write);
                }
            }
            Act::Redeliver => self.broker.redeliver(),
            Act::Save => self.broker.save(),
            Act::Wipe => {
                self.look();
                self.broker.wipe();
                self.loses();
            }
            Act::RollBack => {
                self.look();
                self.broker.roll_back();
                self.loses();
            }
            Act::Sweep => self.sweep(),
        }
    }

    /// The bucket's life is looked at every second, and as soon as the connection is back: what is lost had been seen, and
    /// that it is lost is seen before as much is written again.
    fn loses(&mut self) {
        self.life += 1;
        self.accepted.clear();
        self.look();
    }

    fn relay(&mut self, dies: bool) {
        let rows = self.database.outbox();
        for row in &rows {
            self.broker.publish(match row {
                Row::Sandbox(id) => Subject::One(*id),
                Row::Global => Subject::Global,
            });
        }
        if !dies {
            self.database.published(&rows);
        }
    }

    fn expand(&mut self) {
        let Some(expansion) = &mut self.expansion else {
            let message = self.broker.deliver(|subject| subject == Subject::Global);
            self.expansion = message.map(|message| Expansion { message, after: 0 });
            return;
        };
        match self.database.sandboxes(expansion.after).first() {
            Some(id) => {
                self.broker.publish(Subject::Fleet(*id));
                expansion.after = *id;
            }
            None => {
                self.broker.ack(expansion.message);
                self.expansion = None;
            }
        }
    }

    fn ask(&mut self, name: usize) {
        let free = self.builders[MARKED..ASKED].iter_mut().find(|builder| builder.is_none());
        if let (Some(id), Some(free)) = (self.database.id(name), free) {
            *free = Some(Build::begin(id, None, 0, self.life, &self.database));
        }
    }

    /// Lets a builder do a step, or begin something; whether there was anything to do.
    fn build(&mut self, number: usize) -> bool {
        if self.builders[number].is_none() {
            self.builders[number] = self.next_for(number);
            return self.builders[number].is_some();
        }
        let Some(build) = &mut self.builders[number] else { return false };
        let did = build.step(&mut self.database, &self.broker, self.life);
        if let Did::Sends(write) = did {
            self.writes.push(*write);
        } else {
            self.ended(number, did);
        }
        true
    }

    fn next_for(&mut self, number: usize) -> Option<Build> {
        if number == SWEEPER {
            let pass = self.pass.as_mut()?;
            let Some(id) = pass.keys.pop_front() else {
                self.pass_ended();
                return None;
            };
            return Some(Build::begin(id, None, pass.at_least, self.life, &self.database));
        }
        let message = match number {
            0 | 1 => self.broker.deliver(|subject| matches!(subject, Subject::One(_))),
            2 | 3 => self.broker.deliver(|subject| matches!(subject, Subject::Fleet(_))),
            _ => None,
        }?;
        let (Subject::One(id) | Subject::Fleet(id)) = message.subject else { return None };
        Some(Build::begin(id, Some(message), 0, self.life, &self.database))
    }

    fn ended(&mut self, number: usize, did: Did) {
        let stands = match did {
            Did::More | Did::Sends(_) => return,
            Did::Stands(content) => Some(content),
            Did::Failed => None,
        };
        let Some(build) = self.builders[number].take() else { return };
        if let Some(content) = stands {
            let (id, age) = (build.id, build.age);
            assert!(self.database.was(id, content, age), "{content:?} was handed out, which {id} was before {age}");
        }
        match (build.mark, stands) {
            (Some(mark), Some(_)) => self.broker.ack(mark),
            (Some(mark), None) => self.broker.put_back(mark),
            (None, _) => {}
        }
        if number == SWEEPER
            && let Some(pass) = &mut self.pass
        {
            pass.unbuilt |= stands.is_none();
        }
    }

    /// A write arrives at the broker, and its answer at who waits for it.
    fn arrive(&mut self, number: usize) {
        if number >= self.writes.len() {
            return;
        }
        let write = self.writes.remove(number);
        let stored = self.broker.update(write.id, write.value.clone(), write.expected);
        if stored {
            self.accept(&write);
        }
        for number in 0..BUILDERS {
            if let Some(build) = &mut self.builders[number] {
                let did = build.told(&write, stored);
                self.ended(number, did);
            }
        }
    }

    fn accept(&mut self, write: &Write) {
        let Some(entry) = &write.value else { return };
        let order = (entry.epoch, entry.sequence);
        let content = Some(shown(entry));
        let held = self.held.entry(write.id).or_insert((0, 0, None));
        if order > (held.0, held.1) {
            *held = (order.0, order.1, content);
        }
        // Who read before a loss may write what was before it. The sweep after the loss writes over that.
        if write.life == self.life {
            let now = (order, write.age);
            let before = self.accepted.insert(write.id, now);
            let rises = before.is_none_or(|before| before.0 < now.0 && before.1 <= now.1);
            assert!(rises, "{now:?} was accepted after {before:?}");
        }
    }

    /// Everything comes to rest.
    fn settle(&mut self) {
        self.expansion = None;
        self.broker.redeliver();
        if self.life == 0 {
            // No mark was lost: the sweep is not needed.
            (self.pass, self.builders[SWEEPER]) = (None, None);
            self.work_off();
            self.assert_entries_are_right();
        }
        for _ in 0..4 {
            self.work_off();
            self.sweep();
        }
        self.work_off();
    }

    fn work_off(&mut self) {
        loop {
            self.relay(false);
            while !self.writes.is_empty() {
                self.arrive(0);
            }
            self.expand();
            let mut works = self.expansion.is_some();
            for number in 0..BUILDERS {
                self.builders[number].iter_mut().for_each(Build::give_up);
                works |= self.build(number);
            }
            if !works && self.writes.is_empty() {
                return;
            }
        }
    }

    fn assert_all_is_right(&mut self) {
        assert!(self.broker.is_idle() && self.database.outbox().is_empty(), "marks are left");
        self.assert_entries_are_right();
        for id in self.database.ids() {
            let (standing, content) = (self.broker.read(id).1, self.database.content(id));
            assert_eq!(standing.as_ref().map(shown), content, "what stands of {id}");
            if let Some(entry) = standing {
                let newest = (entry.epoch, entry.sequence, content);
                assert_eq!(self.held.get(&id), Some(&newest), "what followers hold of {id}");
            }
            self.broker.publish(Subject::One(id));
        }
        let before = self.broker.incarnation();
        self.work_off();
        assert_eq!(self.broker.incarnation(), before, "what says the same was written again");
    }

    fn assert_entries_are_right(&self) {
        for id in self.database.sandboxes(0) {
            assert_eq!(self.broker.read(id).1.as_ref().map(shown), self.database.content(id), "what stands of {id}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192 * roadstead_testkit::soak::factor(), ..Default::default() })]

    #[test]
    fn whatever_dies_is_lost_or_late_entries_move_forward_and_end_at_what_the_database_says(
        acts in proptest::collection::vec(any_act(), 1..300),
        loses in any::<bool>(),
    ) {
        let mut world = World::new();
        for act in acts.into_iter().filter(|act| loses || !act.is_a_loss()) {
            world.act(act);
        }
        world.settle();
        world.assert_all_is_right();
    }
}

/// A builder reads an entry before the bucket is lost; the sweep writes it anew under the same revision, and after that
/// the builder's write arrives, and fits. Then the database goes back to what that write says.
#[test]
fn a_write_of_before_a_loss_that_fits_by_chance_is_written_over() {
    let (first, second, third) = ((0, 0), (1, 0), (2, 0));
    let mut world = World::new();
    world.act(Act::Commit(0, first));
    world.work_off();
    world.act(Act::Commit(0, second));
    world.act(Act::Relay { dies: false });
    while world.writes.is_empty() {
        world.act(Act::Build(0));
    }
    let late = world.writes.clone();
    world.act(Act::Vanish(0));
    world.act(Act::Commit(0, third));
    world.act(Act::Wipe);
    world.act(Act::Sweep);
    while world.pass.is_some() {
        world.act(Act::Build(SWEEPER));
        world.act(Act::Arrive(0));
    }
    world.writes = late;
    world.act(Act::Arrive(0));
    assert_eq!(world.broker.read(1).1.as_ref().map(shown), Some(second), "it fits");
    world.act(Act::Commit(0, second));
    world.settle();
    world.assert_all_is_right();
}

/// Followers hold what a rollback takes away, and the database goes back to what it brings back.
#[test]
fn a_change_back_to_what_a_rollback_brings_back_reaches_followers() {
    let (first, second) = ((0, 0), (1, 0));
    let mut world = World::new();
    world.act(Act::Commit(0, first));
    world.work_off();
    world.act(Act::Save);
    world.act(Act::Commit(0, second));
    world.work_off();
    world.act(Act::RollBack);
    world.act(Act::Commit(0, first));
    world.settle();
    world.assert_all_is_right();
}
