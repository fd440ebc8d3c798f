//! The lines and events of one `WatchSandbox` stream.

use std::time::Duration;

use bytes::Bytes;
use roadstead_bus::activity::{ReadError, Subjects};
use roadstead_proto::api::v1::WatchSandboxRequest;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use uuid::Uuid;

use super::filter::Filter;
use super::hub::{Receiver, Told};
use super::lines::{Lines, News, Next, Page, Wanted};
use super::reader::refused;
use super::tail::Tail;
use super::{Activity, Metrics, Reader};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows a sandbox's lines. Its place in the hub is left when it is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    of: Subjects,
    reader: Reader,
    metrics: Metrics,
    news: Receiver,
    lines: Lines,
    /// The page that is being read, by a task of its own: states that come faster than it is read do not begin it
    /// anew, and a client that takes nothing keeps nobody's turn.
    reading: Option<AbortOnDropHandle<Result<Page, ReadError>>>,
    pause: Duration,
}

impl Activity {
    /// What of a sandbox's lines and events a request wants to see; none if it wants none.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` for a filter or cursor that cannot be read; `OUT_OF_RANGE` for a cursor from which nobody can
    /// resume any more; `UNAVAILABLE`.
    pub(crate) async fn follow(
        &self,
        sandbox_id: Uuid,
        request: &WatchSandboxRequest,
    ) -> Result<Option<Follower>, Status> {
        let filter = Filter::new(
            ("log_sources", request.log_sources.clone()),
            ("log_min_level", &request.log_min_level),
            request.since_time,
        )?;
        let wanted = Wanted { logs: request.follow_logs, events: request.follow_events, filter };
        // Before anything is read: what is stored from here on is told.
        let news = self.hub.enter(sandbox_id);
        let resumed = match request.resume_after_cursor.as_str() {
            "" => None,
            text => Some(self.reader.resume(sandbox_id, &wanted.kinds(), text).await?),
        };
        let of = match wanted.kinds()[..] {
            [] => return Ok(None),
            [kind] => Subjects { sandbox_id, kind: Some(kind) },
            _ => Subjects { sandbox_id, kind: None },
        };
        let past = self.reader.look().await.map_err(refused)?.last;
        let lines = match resumed {
            Some((sequence, stored)) => Lines::resume(wanted, sequence, stored, past),
            None => {
                let mut tail = Tail::new(&wanted.filter, request);
                if !tail.is_empty() {
                    let turn = self.reader.turn().await.map_err(refused)?;
                    self.reader.scan(&turn, of, |line| tail.see(&line)).await.map_err(refused)?;
                }
                let begin = tail.begin(past + 1);
                Lines::tail(wanted, begin, past)
            }
        };
        let (reader, metrics) = (self.reader.clone(), self.metrics.clone());
        Ok(Some(Follower { of, reader, metrics, news, lines, reading: None, pause: FIRST_PAUSE }))
    }
}

impl Follower {
    /// The next event. Never ends; may be cancelled without losing any.
    pub(crate) async fn next(&mut self) -> Bytes {
        loop {
            match self.lines.next() {
                Next::Send(event) => return event,
                Next::Wait => match self.news.next().await {
                    Told::News(news) => self.lines.hear(&news),
                    Told::Lagged => {
                        self.metrics.lags.inc();
                        self.lines.lag();
                    }
                },
                // The page that is begun now has all the news that wait, but for the word of a restart.
                Next::Read(_) if self.reading.is_none() && self.news.pass_over() => self.lines.hear(&News::Restarted),
                Next::Read(from) => match self.read(from).await {
                    // It may be of the new life, from a place of the old one on.
                    Ok(_) if self.news.is_restarted() => {}
                    Ok(page) => {
                        self.metrics.pages.inc();
                        self.pause = FIRST_PAUSE;
                        self.lines.read(page);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "lines cannot be read; trying on");
                        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                    }
                },
            }
        }
    }

    /// The page from there on; after a failure, a while later.
    async fn read(&mut self, from: u64) -> Result<Page, ReadError> {
        let reading = self.reading.get_or_insert_with(|| {
            let (reader, of, pause) = (self.reader.clone(), self.of, self.pause);
            AbortOnDropHandle::new(tokio::spawn(async move {
                let read = reader.page(of, from).await;
                if read.is_err() {
                    tokio::time::sleep(pause).await;
                }
                read
            }))
        });
        let read = reading.await;
        self.reading = None;
        read.unwrap_or(Err(ReadError::Unavailable))
    }
}
