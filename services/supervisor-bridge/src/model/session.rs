//! One session of the model: what is on its way to the bridge and from it, around the real slots and reports.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use roadstead_proto::api::v1::{ConfigUpdate, ConfigUpdateResult, ProviderEnvironmentSnapshot};
use roadstead_proto::internal::SnapshotEntry;
use uuid::Uuid;

use crate::entry;
use crate::report::{Report, Reports, Step, Told};
use crate::slots::{Frame, Slots, update_id};

/// As often as `session.rs` reads again if nothing happens.
const REREAD: Duration = Duration::from_secs(120);
/// What the transport takes before the other side reads.
const WINDOW: usize = 2;

/// What a bridge holds of a session, and the session's wires.
pub(super) struct Session {
    pub(super) id: Uuid,
    slots: Slots,
    reports: Reports,
    /// Entries that the feed has for it.
    pub(super) feed: VecDeque<SnapshotEntry>,
    /// No first entry was had yet.
    waits_for_first: bool,
    /// An answer to a bootstrap, or to reading again, that has not arrived yet.
    first: Option<SnapshotEntry>,
    reread: Option<Option<SnapshotEntry>>,
    pub(super) reread_at: Instant,
    pub(super) to_supervisor: VecDeque<ConfigUpdate>,
    pub(super) from_supervisor: VecDeque<ConfigUpdateResult>,
    /// A report on its way to admission.
    report: Option<Report>,
    /// How many updates were sent.
    pub(super) sent: usize,
}

impl Session {
    /// A session that was registered and has subscribed.
    pub(super) fn begin(number: u128, now: Instant) -> Self {
        let mut reports = Reports::default();
        reports.registration_settled();
        Self {
            id: Uuid::from_u128(number),
            slots: Slots::default(),
            reports,
            feed: VecDeque::new(),
            waits_for_first: true,
            first: None,
            reread: None,
            reread_at: now,
            to_supervisor: VecDeque::new(),
            from_supervisor: VecDeque::new(),
            report: None,
            sent: 0,
        }
    }

    fn offer(&mut self, stored: SnapshotEntry, now: Instant) {
        self.slots.offer(entry::take(stored).unwrap(), now);
    }

    pub(super) fn wants_first(&self) -> bool {
        self.waits_for_first && self.first.is_none()
    }

    pub(super) fn bootstrap(&mut self, entry: SnapshotEntry) {
        self.first = Some(entry);
    }

    pub(super) fn bootstrap_arrives(&mut self, now: Instant) {
        if let Some(entry) = self.first.take() {
            self.waits_for_first = false;
            self.offer(entry, now);
        }
    }

    /// Reads again if that is due. Before the first entry is there a bootstrap is under way, which is never older.
    pub(super) fn reads(&mut self, standing: Option<SnapshotEntry>, now: Instant) {
        if self.reread_at <= now && self.reread.is_none() {
            self.reread = Some(standing.filter(|_| !self.waits_for_first));
        }
    }

    pub(super) fn read_arrives(&mut self, now: Instant) {
        if let Some(read) = self.reread.take() {
            self.reread_at = now + REREAD;
            if let Some(entry) = read {
                self.offer(entry, now);
            }
        }
    }

    pub(super) fn hears_feed(&mut self, now: Instant) {
        if let Some(stored) = self.feed.pop_front() {
            self.offer(stored, now);
        }
    }

    /// The transport takes an update, if it has room and there is one.
    pub(super) fn takes(&mut self, now: Instant) -> Option<&ConfigUpdate> {
        if self.to_supervisor.len() >= WINDOW {
            return None;
        }
        let frame = self.slots.take_frame(now)?;
        self.sent += 1;
        self.to_supervisor.push_back(self.update(frame));
        self.to_supervisor.back()
    }

    fn update(&self, frame: Frame) -> ConfigUpdate {
        let revision = |environment: bytes::Bytes| u64::from(environment[0]);
        ConfigUpdate {
            update_id: update_id::write(self.id, frame.ordinal),
            sandbox_config: frame.config.map(|config| *config),
            provider_environment: frame
                .environment
                .map(revision)
                .map(|revision| ProviderEnvironmentSnapshot { provider_env_revision: revision, ..Default::default() }),
        }
    }

    pub(super) fn hears_answer(&mut self, now: Instant) {
        let Some(answer) = self.from_supervisor.pop_front() else { return };
        let Some(ordinal) = update_id::read(self.id, &answer.update_id) else { return };
        let reaction = self.slots.hear(ordinal, &answer, now);
        if reaction.report {
            self.reports.result(self.slots.verdict().report(self.id));
        }
        if reaction.reread {
            self.reread_at = now;
        }
    }

    /// Sends what it owes admission, if that is due.
    pub(super) fn reports(&mut self, now: Instant) {
        if let Step::Send(report) = self.reports.step(now) {
            self.report = Some(report);
        }
    }

    pub(super) fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Hears what became of its report.
    pub(super) fn told(&mut self, told: Told, now: Instant) {
        if self.report.take().is_some() {
            self.reports.told(told, now, 0.5);
        }
    }

    /// When something is due, if nothing happens before.
    pub(super) fn due(&self) -> Instant {
        self.slots.due().map_or(self.reread_at, |due| due.min(self.reread_at))
    }

    /// Whether nothing is on its way to or from the supervisor.
    pub(super) fn is_quiet(&self) -> bool {
        self.to_supervisor.is_empty() && self.from_supervisor.is_empty()
    }

    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.slots.due().is_none()
    }
}
