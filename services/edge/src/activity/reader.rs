//! Reads of the broker's stream of activity.

use std::sync::Arc;

use prost_types::Timestamp;
use roadstead_bus::Bus;
use roadstead_bus::activity::{self, Limit, ReadError, State, Subjects};
use roadstead_door::status::unavailable;
use roadstead_proto::activity::{Kind, LINES};
use roadstead_proto::cursor::{Cursor, Incarnation};
use roadstead_service_kit::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::Code;
use uuid::Uuid;

use super::line::Line;
use super::lines::Page;
use super::resume;

/// Pages of all streams that are read at a time.
const READS: usize = 16;
/// Those that go through all there is of a sandbox at a time: apart, so that streams do not wait for them.
const SCANS: usize = 8;
/// What one stream reads at a time, and holds until its client has taken it.
const PAGE: Limit = Limit { lines: 100, bytes: 64 * 1024 };
const SCAN: Limit = Limit { lines: 500, bytes: 1024 * 1024 };

/// Reads lines. Clones share the connection and what is known.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    bus: Bus,
    stream: activity::Reader,
    /// How the stream stood when it was looked at last.
    state: watch::Sender<Option<State>>,
    /// How often the broker had been connected to when the feed was compared last with what is stored.
    compared: watch::Sender<u64>,
    reads: Arc<Semaphore>,
    scans: Arc<Semaphore>,
}

impl Reader {
    pub(crate) fn new(bus: &Bus) -> Self {
        Self {
            bus: bus.clone(),
            stream: activity::Reader::new(bus),
            state: watch::Sender::new(None),
            compared: watch::Sender::new(0),
            reads: Arc::new(Semaphore::new(READS)),
            scans: Arc::new(Semaphore::new(SCANS)),
        }
    }

    /// How the stream stands now.
    pub(crate) async fn look(&self) -> Result<State, ReadError> {
        let state = self.stream.state().await?;
        self.state.send_replace(Some(state));
        Ok(state)
    }

    /// The stream's present life, as far as known.
    pub(crate) async fn incarnation(&self) -> Result<Incarnation, ReadError> {
        let known = *self.state.borrow();
        match known {
            Some(state) => Ok(state.incarnation),
            None => self.look().await.map(|state| state.incarnation),
        }
    }

    /// How often the broker has been connected to.
    pub(crate) fn connects(&self) -> u64 {
        self.bus.connects()
    }

    /// The feed was compared with what is stored, after so many connects, and everybody was told what that shows.
    pub(crate) fn compared(&self, connects: u64) {
        self.compared.send_replace(connects);
    }

    /// The next page from `from` on, for a stream. Where the connection was lost, only after the feed was compared: the
    /// broker may have come back with another stream.
    pub(crate) async fn page(&self, of: Subjects, from: u64) -> Result<Page, ReadError> {
        let is_known = |compared: &u64| *compared == self.connects();
        self.compared.subscribe().wait_for(is_known).await.map_err(|_| ReadError::Unavailable)?;
        let _turn = self.reads.acquire().await.map_err(|_| ReadError::Unavailable)?;
        let (page, remaining) = self.read(of, from, PAGE).await?;
        let lost = self.has_lost(of, from, remaining).await?;
        if !is_known(&self.compared.borrow()) {
            return Err(ReadError::Unavailable);
        }
        Ok(Page { lost, ..page })
    }

    /// A turn to go through all there is of a sandbox, and to hold what was found.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, ReadError> {
        Arc::clone(&self.scans).acquire_owned().await.map_err(|_| ReadError::Unavailable)
    }

    /// Goes through all there is, and takes it as it finds it. A sandbox that writes faster than this reads would never
    /// end it: twice what there can be of both kinds is enough.
    pub(crate) async fn scan(
        &self,
        _turn: &OwnedSemaphorePermit,
        of: Subjects,
        mut see: impl FnMut(Line),
    ) -> Result<(), ReadError> {
        let (mut from, mut seen) = (1, 0);
        while seen < 2 * Kind::ALL.len() * LINES as usize {
            let (page, _) = self.read(of, from, SCAN).await?;
            (from, seen) = (page.through + 1, seen + page.lines.len());
            page.lines.into_iter().for_each(&mut see);
            if page.end {
                break;
            }
        }
        Ok(())
    }

    /// A page, and how many messages remained from its first on.
    async fn read(&self, of: Subjects, from: u64, limit: Limit) -> Result<(Page, u64), ReadError> {
        let incarnation = self.incarnation().await?;
        let activity::Page { lines: mut stored, remaining } = self.stream.page(of, from, limit).await?;
        let mut through = stored.last().map_or(from.saturating_sub(1), |line| line.sequence);
        let mut end = false;
        if remaining <= stored.len() as u64 {
            // A replica may lag behind. The leader does not.
            match self.stream.first(of, through + 1).await? {
                Some(more) => {
                    through = more.sequence;
                    stored.push(more);
                }
                None => end = true,
            }
        }
        let lines = stored.into_iter().filter_map(|line| Line::of(line, incarnation)).collect();
        Ok((Page { lines, through, lost: false, end }, remaining))
    }

    /// Whether something at `from` or later, of which so many messages remained, may be gone.
    async fn has_lost(&self, of: Subjects, from: u64, remaining: u64) -> Result<bool, ReadError> {
        // With age, or because of all sandboxes together: then the stream's oldest messages went. Looked at after the
        // page was read: what went before that is seen.
        let went = self.look().await?.first > from;
        Ok(went || (remaining >= LINES.into() && self.is_trimmed(of, from).await?))
    }

    /// Whether newer messages may have pushed out some at `from` or later: then their subject is full.
    async fn is_trimmed(&self, of: Subjects, from: u64) -> Result<bool, ReadError> {
        for (kind, count) in self.stream.counts(of).await? {
            if count >= LINES.into() && self.oldest(of.sandbox_id, kind).await?.is_none_or(|oldest| oldest > from) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sequence of the oldest message of a kind.
    pub(crate) async fn oldest(&self, sandbox_id: Uuid, kind: Kind) -> Result<Option<u64>, ReadError> {
        Ok(self.stream.oldest(sandbox_id, kind).await?.map(|line| line.sequence))
    }

    /// When the message at this sequence was stored; none if it is not there.
    pub(crate) async fn stored_at(&self, sequence: u64) -> Result<Option<Timestamp>, ReadError> {
        Ok(self.stream.at(sequence).await?.map(|line| line.stored))
    }

    /// The place a cursor names, if everything after it that is `followed` is still there: its sequence and when it was
    /// stored.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if the text is no cursor of that sandbox; `OUT_OF_RANGE` if it is of another life of the
    /// stream, was trimmed, or is ahead; `UNAVAILABLE`.
    pub(crate) async fn resume(
        &self,
        sandbox_id: Uuid,
        followed: &[Kind],
        text: &str,
    ) -> Result<(u64, Timestamp), tonic::Status> {
        let cursor = Cursor::decode(sandbox_id, text)
            .map_err(|_| Status::invalid("resume_after_cursor", "must be a cursor that was given for this sandbox"))?;
        let state = self.look().await.map_err(refused)?;
        let found = self.stream.at(cursor.sequence).await.map_err(refused)?;
        let place = found.as_ref().map(|found| (found.of.sandbox_id, found.stored));
        let stored = resume::after(&cursor, sandbox_id, &state, place).map_err(out_of_range)?;
        // Of its own kind everything newer is there as well.
        let own = found.map(|found| found.of.kind);
        for kind in followed.iter().copied().filter(|kind| Some(*kind) != own) {
            let of = Subjects { sandbox_id, kind: Some(kind) };
            if self.is_trimmed(of, cursor.sequence + 1).await.map_err(refused)? {
                return Err(out_of_range("lines after it were trimmed"));
            }
        }
        Ok((cursor.sequence, stored))
    }
}

fn out_of_range(why: &str) -> tonic::Status {
    Status::new(Code::OutOfRange, format!("resume_after_cursor: {why}; watch again without it")).into()
}

/// How a read that failed is told.
pub(crate) fn refused(error: ReadError) -> tonic::Status {
    tracing::warn!(%error, "activity cannot be read");
    unavailable("logs and events cannot be read now")
}
