//! The task that follows the feed of activity, all of it and all the time.

use std::convert::Infallible;
use std::time::Duration;

use prost_types::Timestamp;
use roadstead_bus::activity::{Feed, News as Fed, ReadError, State};
use roadstead_bus::topology::{self, Part};
use roadstead_proto::activity::Activity as Subject;
use roadstead_proto::stream::Stream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Activity;
use super::line::Line;
use super::lines::News;

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

/// What the feed has brought, against what the broker says is stored. Pure.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Sequence up to which everything was told to the hub.
    through: u64,
    /// The newest line that came: its sequence and when it was stored.
    newest: Option<(u64, Timestamp)>,
    /// How the stream stood when it was looked at last.
    state: Option<State>,
}

/// What a look at the stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Nothing,
    /// What was stored before the last look was not brought since.
    Missed,
    /// The stream was made anew, or went back in time.
    Restarted,
}

impl Seen {
    /// `found` is when the message was stored that now has the sequence of the newest line, if that was looked for and
    /// is there: writers may have passed the place to which the stream went back.
    fn look(&mut self, state: State, found: Option<Timestamp>) -> Shows {
        let before = self.state.replace(state);
        let Some(before) = before else { return Shows::Missed };
        let is_other = self.newest.zip(found).is_some_and(|((_, stored), found)| stored != found);
        if is_other || before.incarnation != state.incarnation || state.last < before.last.max(self.through) {
            self.through = state.last;
            self.newest = None;
            Shows::Restarted
        } else if self.through < before.last {
            Shows::Missed
        } else {
            Shows::Nothing
        }
    }

    /// Up to where nothing was missed. What is stored by now is read by all who hear of it, so it counts as told.
    fn missed(&mut self) -> u64 {
        let through = self.through;
        self.through = through.max(self.state.map_or(0, |state| state.last));
        through
    }
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
                        self.look(self.seen.newest).await;
                        self.missed();
                        look_at = Instant::now() + LOOK_EVERY;
                    }
                    Some(Fed::Stored { line, before }) => self.stored(line, before).await,
                },
                () = tokio::time::sleep_until(look_at) => {
                    if self.look(None).await == Shows::Missed {
                        self.missed();
                    }
                    look_at = Instant::now() + LOOK_EVERY;
                }
            }
        }
    }

    /// Looks at the stream, and whether it still has this line, again and again while it does not answer.
    async fn look(&mut self, line: Option<(u64, Timestamp)>) -> Shows {
        let mut pause = FIRST_PAUSE;
        let reader = &self.activity.reader;
        let looking = async || {
            let state = reader.look().await?;
            let found = match line {
                Some((sequence, _)) => reader.stored_at(sequence).await?,
                None => None,
            };
            Ok::<_, ReadError>((state, found))
        };
        let (state, found) = loop {
            match looking().await {
                Ok(looked) => break looked,
                Err(error) => tracing::debug!(%error, "the stream of activity cannot be looked at; trying on"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        let shows = self.seen.look(state, found);
        if shows == Shows::Restarted {
            tracing::warn!("stored lines were lost or rolled back");
            self.activity.metrics.restarts.inc();
            self.activity.hub.restarted();
        }
        shows
    }

    fn missed(&mut self) {
        let after = self.seen.missed();
        self.activity.hub.gap(after);
    }

    async fn stored(&mut self, line: roadstead_bus::activity::Line, before: u64) {
        self.activity.metrics.lines.inc();
        let (sequence, stored, Subject { sandbox_id, .. }) = (line.sequence, line.stored, line.of);
        // What nobody follows is not even decoded.
        if self.activity.hub.is_followed(sandbox_id)
            && let Ok(incarnation) = self.activity.reader.incarnation().await
            && let Some(line) = Line::of(line, incarnation)
        {
            self.activity.hub.tell(sandbox_id, News::Stored { line: line.into(), before });
        }
        self.seen.through = self.seen.through.max(sequence);
        self.seen.newest = Some((sequence, stored));
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::cursor::Incarnation;

    use super::*;

    fn state(life: &str, last: u64) -> State {
        State { incarnation: Incarnation::created(life), first: 1, last }
    }

    #[test]
    fn what_was_stored_before_a_look_has_to_be_there_at_the_next() {
        let mut seen = Seen::default();
        assert_eq!(seen.look(state("a", 5), None), Shows::Missed, "nothing is known at first");
        assert_eq!(seen.missed(), 0);
        assert_eq!(seen.look(state("a", 7), None), Shows::Nothing, "6 and 7 may be on their way");
        assert_eq!(seen.look(state("a", 7), None), Shows::Missed);
        seen.through = 7;
        assert_eq!(seen.look(state("a", 7), None), Shows::Nothing);
    }

    #[test]
    fn another_life_and_a_way_back_are_restarts() {
        let mut seen = Seen::default();
        seen.look(state("a", 5), None);
        seen.missed();
        assert_eq!(seen.look(state("b", 9), None), Shows::Restarted);
        assert_eq!(seen.look(state("b", 8), None), Shows::Restarted);
        seen.through = 12;
        assert_eq!(seen.look(state("b", 10), None), Shows::Restarted, "more was told than is stored");
    }

    #[test]
    fn a_way_back_that_writers_have_passed_is_a_restart() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let mut seen = Seen { through: 5, newest: Some((5, at(50))), ..Seen::default() };
        seen.look(state("a", 5), None);
        assert_eq!(seen.look(state("a", 9), Some(at(50))), Shows::Nothing);
        assert_eq!(seen.look(state("a", 9), None), Shows::Missed, "it was trimmed, or not looked for");
        assert_eq!(seen.look(state("a", 9), Some(at(60))), Shows::Restarted);
        assert_eq!(seen.look(state("a", 9), Some(at(60))), Shows::Nothing, "it is told once");
    }
}
