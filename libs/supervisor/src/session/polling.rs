//! Asking for the configuration while a session lasts that does not push.

use std::time::Duration;

use rand::Rng as _;
use tonic::Status;

use super::retry::Retry;
use super::{Done, End, Session};
use crate::backoff::Backoff;
use crate::calls;
use crate::client::Client;
use crate::observed::{Frame, Observation};
use crate::owed::Owed;
use crate::poll::{self, Known, News, Polled, Word};
use crate::verdict::{Ending, answer};

/// How much the pause grows after failures.
const LONGEST: u32 = 10;
/// How far pauses differ, either way.
const JITTER: f64 = 0.2;

/// What is asked and told beside one session.
pub(super) struct Polling {
    /// None: the session pushes.
    interval: Option<Duration>,
    pub(super) ask: Retry,
    pub(super) tell: Retry,
    /// Whether a question is on its way: of two, the older answer could come last.
    asking: bool,
    /// Whether to ask again once that is answered.
    again: bool,
    /// Digest of the configuration that was dealt with.
    done: Option<[u8; 32]>,
    owed: Owed<Word>,
}

impl Polling {
    /// At once, if the session does not push.
    pub(super) fn of(interval: Option<Duration>) -> Self {
        let ask = interval.map_or(Retry::never(), |interval| {
            let longest = interval.saturating_mul(LONGEST);
            let mut ask = Retry::with(Backoff { first: interval, longest, steady: Duration::ZERO });
            ask.hurry();
            ask
        });
        let (tell, owed) = (Retry::never(), Owed::default());
        Self { interval, ask, tell, asking: false, again: false, done: None, owed }
    }

    /// Whether the session pushes.
    pub(super) const fn is_off(&self) -> bool {
        self.interval.is_none()
    }

    /// Something has changed that the next answer will show.
    pub(super) fn hurry(&mut self) {
        if !self.is_off() {
            self.ask.hurry();
        }
    }

    fn tell_what_is_owed(&mut self) {
        if self.owed.is_due() {
            self.tell.hurry();
        }
    }
}

/// Asks, applies and tells before there is a session: what a supervisor that takes no pushes begins with.
///
/// # Errors
///
/// Why it could not; another attempt, with another bridge, may do better.
pub(super) async fn before_connecting(client: &mut Client, api: &calls::Api) -> Result<(), End> {
    let asked = poll::fetch(api.clone(), client.token.clone(), client.known(None)).await;
    let polled = asked.map_err(End::NotConfigured)?;
    let Some(news) = polled.news else { return Ok(()) };
    let ending = client.dealt_with(&news, "", 1).await;
    if let Some(word) = ending.and_then(|ending| client.word(&news, &ending)) {
        poll::report(api.clone(), client.token.clone(), word).await.map_err(End::NotConfigured)?;
    }
    Ok(())
}

impl Session {
    pub(super) fn ask(&mut self, client: &Client) {
        self.polling.ask.begun();
        if std::mem::replace(&mut self.polling.asking, true) {
            self.polling.again = true;
            return;
        }
        let asking = poll::fetch(self.api.clone(), client.token.clone(), client.known(self.polling.done));
        self.calls.spawn(async { Done::Polled(Box::new(asking.await)) });
    }

    pub(super) async fn polled(&mut self, client: &mut Client, polled: Result<Polled, Status>) {
        let Some(interval) = self.polling.interval else { return };
        self.polling.asking = false;
        let Polled { registered, news } = match polled {
            Ok(polled) => polled,
            Err(status) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the configuration was not told");
                self.polling.ask.failed();
                return;
            }
        };
        let random: f64 = rand::rng().random();
        self.polling.ask.again_in(interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * random));
        if std::mem::take(&mut self.polling.again) {
            self.polling.ask.hurry();
        }
        let changed = registered || news.is_some();
        if registered {
            self.polling.owed.repeat();
        }
        if let Some(news) = news {
            self.news(client, news).await;
        }
        // What was not heard has a time of its own.
        if changed {
            self.polling.tell_what_is_owed();
        }
    }

    async fn news(&mut self, client: &mut Client, news: News) {
        self.order += 1;
        let Some(ending) = client.dealt_with(&news, &self.id, self.order).await else { return };
        if !matches!(ending, Ending::Scripted(_)) {
            self.look_for_policy(client, &news.update);
        }
        // What could not be put into effect now may be the next time.
        self.polling.done = Some(news.digest).filter(|_| !matches!(ending, Ending::Failed { .. }));
        self.polling.owed.says(client.word(&news, &ending));
        self.readiness_changed(client);
    }

    pub(super) fn tell_word(&mut self, client: &Client) {
        self.polling.tell.begun();
        let Some((place, word)) = self.polling.owed.take() else { return };
        let telling = poll::report(self.api.clone(), client.token.clone(), word);
        self.calls.spawn(async move { Done::WordTold(place, telling.await) });
    }

    pub(super) fn word_told(&mut self, place: u64, told: Result<(), Status>) {
        self.polling.owed.heard(place, told.is_ok());
        match told {
            Ok(()) => {
                self.polling.tell.done();
                self.polling.tell_what_is_owed();
            }
            Err(status) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "a verdict was not taken");
                self.polling.tell.failed();
            }
        }
    }
}

impl Client {
    fn known(&self, config: Option<[u8; 32]>) -> Known {
        let environment = self.status.borrow().environment.clone();
        let (sandbox, instance_id) = (self.settings.sandbox.clone(), self.settings.instance_id.to_string());
        Known { sandbox, instance_id, config, environment }
    }

    /// Deals with what was asked for. None: so that nothing is to be said of it.
    async fn dealt_with(&mut self, news: &News, session_id: &str, order: u64) -> Option<Ending> {
        self.applied.read_later();
        if self.applied.has(&news.update) {
            return Some(Ending::Duplicate);
        }
        let frame = Frame { polled: true, ..Frame::of(&news.update, session_id, order) };
        let ending = self.take(frame, &news.update).await?;
        let outcome = answer(&news.update, &ending, "").outcome();
        let (session_id, update_id) = (session_id.to_owned(), String::new());
        self.tell(Observation::Answered { session_id, update_id, outcome, at: std::time::Instant::now() });
        Some(ending)
    }

    fn word(&self, news: &News, ending: &Ending) -> Option<Word> {
        Word::of(answer(&news.update, ending, &self.settings.instance_id.to_string()))
    }
}
