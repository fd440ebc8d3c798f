//! The task that follows the feed of activity, all of it and all the time.

use std::convert::Infallible;
use std::time::Duration;

use roadstead_bus::activity::{Feed, News as Fed, ReadError};
use roadstead_bus::topology::{self, Part};
use roadstead_proto::activity::Activity as Subject;
use roadstead_proto::stream::Stream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Activity;
use super::line::Line;
use super::lines::News;
use super::seen::{Seen, Shows};

/// How often it is looked whether the feed has brought what is stored: the last message of all may be lost without
/// another one that shows it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows until told to stop.
///
/// # Errors
///
/// Never.
pub(crate) async fn follow(activity: Activity, stop: CancellationToken) -> Result<(), Infallible> {
    let following = async {
        topology::wait(&activity.bus, &[Part::Stream(Stream::Activity)]).await;
        while let Ok(feed) = Feed::follow(&activity.bus).await {
            Following { seen: Seen::default(), activity: activity.clone() }.run(feed).await;
        }
        // The connection was closed: the process ends.
    };
    stop.run_until_cancelled(following).await;
    Ok(())
}

struct Following {
    seen: Seen,
    activity: Activity,
}

impl Following {
    /// Until the connection is closed.
    async fn run(mut self, mut feed: Feed) {
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                news = feed.next() => match news {
                    None => return,
                    Some(Fed::Gap) => {
                        self.activity.metrics.gaps.inc();
                        tracing::info!("the feed of activity may have a gap; what is followed is read on");
                        // Before anything of another life is told.
                        self.look().await;
                        self.missed().await;
                        look_at = Instant::now() + LOOK_EVERY;
                    }
                    Some(Fed::Stored { line, before }) => self.stored(line, before).await,
                },
                () = tokio::time::sleep_until(look_at) => {
                    if self.look().await != Shows::Nothing {
                        self.missed().await;
                    }
                    look_at = Instant::now() + LOOK_EVERY;
                }
            }
        }
    }

    /// Looks at the stream, and whether it still has the newest line, again and again while it does not answer.
    async fn look(&mut self) -> Shows {
        let mut pause = FIRST_PAUSE;
        let (reader, newest) = (&self.activity.reader, self.seen.newest());
        let looking = async || {
            let connects = reader.connects();
            let state = reader.look().await?;
            let found = match newest {
                Some((sequence, _)) => reader.stored_at(sequence).await?,
                None => None,
            };
            Ok::<_, ReadError>((connects, state, found))
        };
        let (connects, state, found) = loop {
            match looking().await {
                Ok(looked) => break looked,
                Err(error) => tracing::debug!(%error, "the stream of activity cannot be looked at; trying on"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        self.activity.metrics.compared.now();
        let shows = self.seen.look(state, found);
        if shows == Shows::Restarted {
            tracing::warn!("stored lines were lost or rolled back");
            self.activity.metrics.restarts.inc();
            self.activity.hub.restarted();
        }
        self.activity.reader.compared(connects);
        shows
    }

    async fn missed(&mut self) {
        // One that is not to be had may have been trimmed.
        let tip = self.activity.reader.stored_at(self.seen.last()).await.unwrap_or_default();
        let after = self.seen.missed(tip);
        self.activity.hub.gap(after);
    }

    async fn stored(&mut self, line: roadstead_bus::activity::Line, before: u64) {
        self.activity.metrics.lines.inc();
        self.activity.metrics.heard.now();
        let (sequence, stored, Subject { sandbox_id, .. }) = (line.sequence, line.stored, line.of);
        // What nobody follows is not even decoded.
        if self.activity.hub.is_followed(sandbox_id) {
            match self.activity.reader.incarnation().await.map(|incarnation| Line::of(line, incarnation)) {
                Ok(Some(line)) => self.activity.hub.tell(sandbox_id, News::Stored { line: line.into(), before }),
                Ok(None) => {}
                // It has no cursor yet: whoever wants it reads it.
                Err(_) => self.missed().await,
            }
        }
        self.seen.stored(sequence, stored);
    }
}
