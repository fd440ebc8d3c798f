//! Following what concerns a session, to its end.

use std::time::{Duration, Instant};

use roadstead_bus::feed::{KeyFollower, News};
use roadstead_service_kit::clock;

use super::{Boxed, Session};
use crate::end::End;

/// A session is accepted without its first update if that takes longer.
const ACCEPT: Duration = Duration::from_secs(1);
/// How long a supervisor may leave unread what it was sent.
const STALLED: Duration = Duration::from_secs(120);

impl Session {
    /// Follows everything that concerns the session, to its end.
    pub(super) async fn follow(&mut self) -> End {
        loop {
            let now = Instant::now();
            if let Some(end) = self.tick(now) {
                return end;
            }
            let wake = self.wake_at(now);
            let end = tokio::select! {
                message = self.inbound.message() => self.heard(message),
                news = next(&mut self.snapshots) => self.snapshot_news(news),
                first = ready(&mut self.first) => self.first_entry(first),
                read = ready(&mut self.reread) => {
                    self.was_read(read);
                    None
                }
                () = self.outbox.happened() => None,
                () = self.reporter.superseded() => Some(End::Superseded),
                () = tokio::time::sleep_until(wake.into()) => {
                    self.outbox.wake();
                    None
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Does what is due.
    fn tick(&mut self, now: Instant) -> Option<End> {
        if let Some(end) = self.outbox.broken() {
            return Some(end);
        }
        let orders = self.place.orders();
        if let Some(close) = orders.close.as_ref().filter(|close| close.at <= now) {
            return Some(close.end);
        }
        if clock::now() >= orders.token_limit() {
            return Some(End::TokenExpired);
        }
        if self.silent_at <= now {
            return Some(End::Silent);
        }
        if self.outbox.waiting_since().is_some_and(|since| since + STALLED <= now) {
            return Some(End::Stalled);
        }
        if self.heartbeat_at <= now {
            self.heartbeat_at = now + self.bridge.times.heartbeat;
            self.outbox.beat();
        }
        if self.place.lapse(&self.reporter, now) {
            self.bridge.metrics.readiness_lapsed.inc();
        }
        if self.place.missed_something() {
            self.read_soon(now);
        }
        if self.reread_at <= now && self.reread.is_none() {
            self.read_again(now);
        }
        let may_accept = self.first.is_none() || self.outbox.has_entry() || self.began + ACCEPT <= now;
        if may_accept && let Some(established) = self.established.take() {
            if established.send(Ok(self.outbox.messages())).is_err() {
                return Some(End::Lost);
            }
            self.outbox.accept();
            self.bridge.metrics.accepted.inc();
            self.bridge.metrics.held.inc();
        }
        None
    }

    /// When something is due, if nothing happens before.
    fn wake_at(&self, now: Instant) -> Instant {
        let orders = self.place.orders();
        let token = orders.token_limit().duration_since(clock::now()).unwrap_or_default();
        let accept = self.established.is_some().then_some(self.began + ACCEPT);
        let times = [
            Some(now + token),
            Some(self.silent_at),
            Some(self.heartbeat_at),
            self.reread.is_none().then_some(self.reread_at),
            accept,
            orders.close.map(|close| close.at),
            self.place.lapse_due(),
            self.outbox.due(now),
            self.outbox.waiting_since().map(|since| since + STALLED),
        ];
        times.into_iter().flatten().min().unwrap_or(now)
    }
}

/// The next news, or never.
async fn next(follower: &mut Option<KeyFollower>) -> Option<News> {
    match follower {
        Some(follower) => follower.next().await,
        None => std::future::pending().await,
    }
}

/// What the future comes to, once; then never.
async fn ready<T>(future: &mut Option<Boxed<T>>) -> T {
    match future {
        Some(running) => {
            let value = running.await;
            *future = None;
            value
        }
        None => std::future::pending().await,
    }
}
