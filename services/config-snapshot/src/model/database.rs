//! The database of the model: sandboxes with a content, and every content that each of them ever had.

use std::collections::{BTreeMap, BTreeSet};

/// What a sandbox's two halves say. Few, so that contents come back.
pub(super) type Content = (u8, u8);

/// Where a mark in the outbox leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Row {
    Sandbox(u128),
    /// All sandboxes.
    Global,
}

/// What a restore brings back.
#[derive(Clone, Debug, Default)]
struct State {
    rows: BTreeMap<u128, Content>,
    global: u8,
    sequence: u64,
    outbox: BTreeSet<Row>,
}

#[derive(Debug, Default)]
pub(super) struct Database {
    state: State,
    backup: State,
    pub(super) epoch: u64,
    ids: u128,
    /// The last sandbox of each name.
    last: BTreeMap<usize, u128>,
    /// What each sandbox was after each change of it; None: gone.
    history: BTreeMap<u128, Vec<Option<Content>>>,
}

impl Database {
    /// Changes the sandbox of that name, or makes one.
    pub(super) fn commit(&mut self, name: usize, content: Content) {
        let id = self.id(name).filter(|id| self.state.rows.contains_key(id)).unwrap_or_else(|| {
            self.ids += 1;
            self.last.insert(name, self.ids);
            self.ids
        });
        self.state.rows.insert(id, content);
        self.state.outbox.insert(Row::Sandbox(id));
        self.note(id);
    }

    /// Changes what is a part of every sandbox's content.
    pub(super) fn commit_global(&mut self, value: u8) {
        self.state.global = value;
        self.state.outbox.insert(Row::Global);
        self.note_all();
    }

    pub(super) fn delete(&mut self, name: usize) {
        if let Some(id) = self.id(name).filter(|id| self.state.rows.remove(id).is_some()) {
            self.state.outbox.insert(Row::Sandbox(id));
            self.note(id);
        }
    }

    pub(super) fn back_up(&mut self) {
        self.backup = self.state.clone();
    }

    /// Puts the backup back, and recovers: the epoch rises.
    pub(super) fn restore(&mut self) {
        self.state = self.backup.clone();
        self.epoch += 1;
        self.note_all();
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.state.sequence += 1;
        self.state.sequence
    }

    /// The id that the name last had.
    pub(super) fn id(&self, name: usize) -> Option<u128> {
        self.last.get(&name).copied()
    }

    pub(super) fn content(&self, id: u128) -> Option<Content> {
        self.state.rows.get(&id).map(|(config, environment)| (*config, environment.wrapping_add(self.state.global)))
    }

    pub(super) fn outbox(&self) -> BTreeSet<Row> {
        self.state.outbox.clone()
    }

    /// The relay has published these rows.
    pub(super) fn published(&mut self, rows: &BTreeSet<Row>) {
        self.state.outbox.retain(|row| !rows.contains(row));
    }

    /// Every sandbox that there is, by id, behind `after`.
    pub(super) fn sandboxes(&self, after: u128) -> Vec<u128> {
        self.state.rows.keys().copied().filter(|id| *id > after).collect()
    }

    /// Every id that a sandbox ever had.
    pub(super) fn ids(&self) -> impl Iterator<Item = u128> + use<> {
        1..=self.ids
    }

    /// How many changes the sandbox has seen.
    pub(super) fn age(&self, id: u128) -> usize {
        self.history.get(&id).map_or(0, Vec::len)
    }

    /// Whether the sandbox was so after at least `age` changes.
    pub(super) fn was(&self, id: u128, content: Option<Content>, age: usize) -> bool {
        let history = self.history.get(&id).map_or(&[][..], Vec::as_slice);
        history.get(age.saturating_sub(1)..).unwrap_or_default().contains(&content)
    }

    fn note(&mut self, id: u128) {
        let content = self.content(id);
        self.history.entry(id).or_default().push(content);
    }

    fn note_all(&mut self) {
        for id in self.ids() {
            self.note(id);
        }
    }
}
