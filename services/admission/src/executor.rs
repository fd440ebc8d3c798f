//! The shell around an attempt: a delivery comes, is opened, flown, answered and decided.

pub(crate) mod together;
mod two_steps;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::pull::Delivery;
use roadstead_service_kit::joined::Joined;
use roadstead_service_kit::{clock, status, telemetry};
use roadstead_store::error::{Busy, LedgerRow};
use roadstead_store::mutation::{Conclusion, Outcome};
use roadstead_store::row::OutboxRow;
use roadstead_store::{Database, FlightError, InFlight};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::again::{self, Again, CROWDED};
use crate::answer::{CodeOf, Minter, word};
use crate::attempt::{self, Attempt, Core, Next, Opened};
use crate::envelope::{Envelope, Opener, Queue, Unopened};
use crate::events::change::Happened;
use crate::events::{Events, change};
use crate::metrics::{Metrics, Reason, Settled};
use crate::refusal::Refusal;
use crate::relay::Marks;
use crate::timer::{self, Timer};

/// Pause of a delivery whose ledger row is held by another transaction (D3).
const HELD: Duration = Duration::from_millis(250);
/// Pause of a delivery that nothing can be done about now.
const AWAY: Duration = Duration::from_secs(1);
/// Tries within one delivery.
const TRIES: u32 = 4;
/// A try that took longer than this waited for a row: others in the queue come first.
const LONG_TRY: Duration = Duration::from_secs(1);
/// A duplicate is told that the outcome is uncertain after this many deliveries. Each costs the pause, and the lock's
/// time-out of 200 ms if the other command is in a transaction: 3 s, or at most 5.
const DELIVERIES_OF_A_DUPLICATE: u64 = 12;
/// Deliveries, a second apart, of a command that none of the replicas that had it knows.
const DELIVERIES_OF_A_STRANGER: u64 = 10;
/// Deliveries set aside that are kept; beyond that they are only counted, for a door gone mad must not fill the database.
const SET_ASIDE_KEPT: i64 = 10_000;
/// Claims that a caller with a full quota has cleared away at once.
const PRUNED: u32 = 1000;

/// Executes commands. Cheap to clone.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "made of parts that have nothing to show")]
pub(crate) struct Executor(pub(crate) Arc<Parts>);

/// What commands are executed with.
#[allow(missing_debug_implementations, reason = "made of parts that have nothing to show")]
pub(crate) struct Parts {
    pub(crate) core: Core,
    pub(crate) opener: Opener,
    pub(crate) minter: Minter,
    pub(crate) database: Database,
    pub(crate) bus: Bus,
    pub(crate) marks: Marks,
    pub(crate) events: Events,
    pub(crate) timer: Timer,
    pub(crate) metrics: Arc<Metrics>,
    /// How long an effect outside Postgres may take.
    pub(crate) effect_time: Duration,
    /// Effects at a time. Fewer than commands, and half of the places of those that come again: what lies outside may
    /// hang, and must not stop all else.
    pub(crate) effect_slots: Semaphore,
    pub(crate) again: Again,
    /// Results of sessions that wait to be settled together.
    pub(crate) results: Joined<Opened, together::Answer>,
    /// Reports that are executed by themselves at a time.
    pub(crate) report_slots: Semaphore,
}

/// How a delivery ends.
enum End {
    /// The outcome is committed: tell it, and then what is left to publish of it.
    Told(Outcome, Unpublished),
    PutBack(&'static str, Duration),
    /// Nobody waits for it any more.
    Left,
}

/// What a commit leaves to publish. Who waits for the answer comes before those whom this sets to work, on the same
/// processors.
#[derive(Default)]
struct Unpublished {
    marks: Vec<OutboxRow>,
    events: Vec<Happened>,
    /// The nearest deadline that was written.
    deadline: Option<SystemTime>,
}

impl Executor {
    /// Takes one delivery of `queue` to its end.
    pub(crate) async fn take(&self, queue: Queue, delivery: Delivery) {
        let begun = Instant::now();
        let parts = &self.0;
        let label = Reason { reason: queue_word(queue) };
        parts.metrics.waiting.get_or_create(&label).set(i64::try_from(delivery.pending()).unwrap_or(i64::MAX));
        let opened = parts.opener.open(queue, delivery.subject(), delivery.reply(), delivery.payload(), clock::now());
        let envelope = match opened {
            Ok(envelope) => envelope,
            Err(Unopened::UnknownKey) => return self.put_back(delivery, "unknown_key", AWAY).await,
            Err(Unopened::UnknownName) if delivery.attempt() < DELIVERIES_OF_A_STRANGER => {
                return self.put_back(delivery, "unknown_name", AWAY).await;
            }
            Err(Unopened::UnknownName) => return self.set_aside(delivery, "it is a command of no replica").await,
            Err(Unopened::Poison(why)) => return self.set_aside(delivery, why).await,
        };
        let (id, name) = (envelope.command.id, envelope.command.name.text());
        let span = tracing::info_span!("command", %id, method = name);
        telemetry::continue_trace(&span, &envelope.command.traceparent);
        self.run(queue, envelope, delivery, begun).instrument(span).await;
    }

    async fn run(&self, queue: Queue, envelope: Envelope, delivery: Delivery, begun: Instant) {
        let Envelope { command, sealed, reply } = envelope;
        let (id, method, deadline) = (command.id, command.name.text(), command.deadline);
        let deliveries = delivery.attempt();
        let work = async {
            let command = match self.joined(queue, command, deliveries).await {
                Ok(end) => return end,
                Err(command) => command,
            };
            // Before a slot: what finds no place is told so at once, and not behind others that take long.
            let Some(_place) = self.0.again.place(queue, deliveries) else {
                return self.crowded(&self.0.core.attempt(command)).await;
            };
            let _slot = match queue {
                // The pull loop counts them.
                Queue::Commands => None,
                // The semaphore is never closed.
                Queue::Reports => self.0.report_slots.acquire().await.ok(),
            };
            self.settle(&self.0.core.attempt(command), deliveries).await
        };
        match delivery.holding(work).await {
            End::PutBack(reason, pause) => {
                let pause = again::cut(pause, deadline, clock::now());
                self.put_back(delivery, reason, pause).await;
            }
            End::Left => delivery.ack().await,
            End::Told(outcome, unpublished) => match self.0.minter.answer(id, &outcome, clock::now()) {
                Some(answer) => {
                    self.answer(id, &reply, &sealed, &answer.encode_to_vec()).await;
                    self.publish(unpublished);
                    delivery.ack().await;
                    self.count(method, &outcome, begun, deliveries);
                }
                None => self.put_back(delivery, "unresolved", HELD).await,
            },
        }
    }

    /// Settles a command with others, if it may be; else it comes back.
    async fn joined(&self, queue: Queue, command: Opened, deliveries: u64) -> Result<End, Opened> {
        if !together::may_be_joined(queue, &command, deliveries) {
            return Err(command);
        }
        match self.0.results.ask(command).await {
            Some(Ok(outcome)) => Ok(End::Told(outcome, Unpublished::default())),
            Some(Err(command)) => Err(*command),
            None => Ok(End::PutBack("stopping", HELD)),
        }
    }

    fn publish(&self, unpublished: Unpublished) {
        self.0.marks.committed(unpublished.marks);
        self.0.events.committed(unpublished.events);
        self.0.timer.committed(unpublished.deadline);
    }

    /// Tries until the command is settled or has to wait.
    async fn settle(&self, attempt: &Attempt<'_>, deliveries: u64) -> End {
        let waited = deliveries >= DELIVERIES_OF_A_DUPLICATE;
        let mut pruned = false;
        for tried in 1..=TRIES {
            let begun = Instant::now();
            let error = match self.fly(attempt, waited).await {
                Ok(end) => return end,
                Err(error) => error,
            };
            match error {
                FlightError::Busy(busy) => return self.held(attempt, busy, waited).await,
                FlightError::Conflict(unique) => return self.refuse(attempt, &attempt.taken(unique)).await,
                FlightError::QuotaExceeded if pruned => return self.refuse(attempt, &Attempt::over_quota()).await,
                FlightError::QuotaExceeded => {
                    pruned = true;
                    if let Err(error) = self.0.database.delete_old_claims_of(&attempt.command.caller, PRUNED).await {
                        tracing::warn!(%error, "cannot clear away the caller's old claims");
                    }
                }
                // The same command again decides anew, or finds out how the lost commit ended.
                FlightError::Retry(_) | FlightError::Guard(_) | FlightError::Lost(_) => {
                    tracing::debug!(%error, tried, "once more");
                    if begun.elapsed() > LONG_TRY {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(10) * tried).await;
                }
                FlightError::Unavailable(_) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "put back");
                    return End::PutBack("database_away", AWAY);
                }
                FlightError::Bug(_) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "refused for a fault of ours");
                    return self.refuse(attempt, &Refusal::Internal).await;
                }
            }
        }
        self.contended(attempt, deliveries).await
    }

    async fn fly(&self, attempt: &Attempt<'_>, waited: bool) -> Result<End, FlightError> {
        let in_flight = self.0.database.first_flight(&attempt.command, &attempt.locks).await?;
        match attempt.decide(in_flight.loaded(), waited) {
            Next::Conclude(conclusion) => conclude(in_flight, conclusion).await,
            Next::Begin(effect) => self.two_steps(attempt, in_flight, effect).await,
            Next::Tell(outcome) => {
                in_flight.abandon().await;
                Ok(End::Told(outcome, Unpublished::default()))
            }
            Next::Wait => {
                in_flight.abandon().await;
                Ok(End::PutBack("unresolved", HELD))
            }
            Next::Leave => {
                in_flight.abandon().await;
                Ok(End::Left)
            }
        }
    }

    /// The ledger's row is held. Of the same command: by whoever works on it, or is gone and about to lose it. Of the
    /// request id: by another command, which a duplicate waits for.
    async fn held(&self, attempt: &Attempt<'_>, busy: Busy, waited: bool) -> End {
        match busy.on {
            LedgerRow::Command => End::PutBack("same_command", HELD),
            LedgerRow::Claim => match attempt.while_claimed(busy.role, busy.now, waited) {
                Some(refusal) => self.refuse(attempt, &refusal).await,
                None => End::PutBack("duplicate", HELD),
            },
        }
    }

    /// There is no place. Only the end of a command whose time is over is cheap enough to be had without one.
    async fn crowded(&self, attempt: &Attempt<'_>) -> End {
        match attempt.command.deadline.duration_since(clock::now()) {
            Ok(_) => End::PutBack("crowded", CROWDED),
            Err(_) => self.later(attempt, "crowded", |_| CROWDED).await,
        }
    }

    /// Rows stayed locked. Nothing was done, so the command may try until its deadline.
    async fn contended(&self, attempt: &Attempt<'_>, deliveries: u64) -> End {
        self.later(attempt, "contended", |left| again::pause(deliveries, left)).await
    }

    /// Puts back a command of which nothing was done, or tells that its time is over.
    async fn later(
        &self,
        attempt: &Attempt<'_>,
        reason: &'static str,
        pause: impl FnOnce(Duration) -> Duration,
    ) -> End {
        match self.0.database.now().await.map(|now| attempt.command.deadline.duration_since(now)) {
            Ok(Ok(left)) => End::PutBack(reason, pause(left)),
            Ok(Err(_)) => self.refuse(attempt, &Refusal::DeadlinePassed).await,
            Err(_) => End::PutBack("database_away", AWAY),
        }
    }

    /// Commits a refusal alone. If the command has an outcome by now, that is told.
    async fn refuse(&self, attempt: &Attempt<'_>, refusal: &Refusal) -> End {
        match self.0.database.record_refusal(&attempt.command, &attempt::status(refusal)).await {
            Ok(outcome) => End::Told(outcome, Unpublished::default()),
            Err(error) => {
                tracing::debug!(%error, refusal = refusal.word(), "a refusal could not be recorded");
                End::PutBack("refusal_not_recorded", HELD)
            }
        }
    }

    async fn answer(&self, id: uuid::Uuid, reply: &str, sealed: &roadstead_proto::internal::Sealed, answer: &[u8]) {
        match self.0.opener.seal.seal_answer(id, sealed, answer) {
            Ok(sealed) => {
                let payload: Bytes = sealed.encode_to_vec().into();
                if let Err(error) = self.0.bus.publish(reply, payload).await {
                    tracing::warn!(%error, "an answer could not be sent; its door asks again");
                }
            }
            Err(error) => tracing::error!(%error, "an answer could not be sealed"),
        }
    }

    async fn put_back(&self, delivery: Delivery, reason: &'static str, pause: Duration) {
        self.0.metrics.put_back.get_or_create(&Reason { reason }).inc();
        tracing::debug!(reason, attempt = delivery.attempt(), "put back");
        delivery.put_back(pause).await;
    }

    /// Keeps what nobody can handle for an operator to look at, still sealed, and takes it out of the queue.
    async fn set_aside(&self, delivery: Delivery, reason: &'static str) {
        let kept = if self.0.metrics.set_aside_kept.get() < SET_ASIDE_KEPT {
            self.0.database.set_aside(delivery.subject(), reason, delivery.payload()).await
        } else {
            Ok(())
        };
        match kept {
            Ok(()) => {
                self.0.metrics.set_aside.get_or_create(&Reason { reason }).inc();
                tracing::warn!(subject = delivery.subject(), sequence = delivery.sequence(), reason, "set aside");
                delivery.set_aside(reason).await;
            }
            Err(error) => {
                tracing::warn!(%error, reason, "a delivery could not be set aside; put back");
                self.put_back(delivery, "not_set_aside", AWAY).await;
            }
        }
    }

    fn count(&self, method: &'static str, outcome: &Outcome, begun: Instant, deliveries: u64) {
        let metrics = &self.0.metrics;
        let (code, took) = (CodeOf(outcome).to_string(), begun.elapsed());
        match refusal_of(outcome) {
            Some(status::Reason::RequestIdPayloadMismatch) => _ = metrics.mismatches.inc(),
            Some(status::Reason::RequestOutcomeUncertain) => _ = metrics.uncertain.inc(),
            _ => {}
        }
        let outcome = word(outcome);
        tracing::info!(outcome, code, ms = took.as_secs_f64() * 1000.0, deliveries, "settled");
        if outcome == "replayed" {
            metrics.replays.inc();
        }
        metrics.seconds.observe(took.as_secs_f64());
        metrics.settled.get_or_create(&Settled { method, outcome, code }).inc();
    }
}

/// Flies the second flight.
async fn conclude(in_flight: InFlight, conclusion: Conclusion) -> Result<End, FlightError> {
    let loaded = in_flight.loaded();
    let events = change::of(&conclusion, &loaded.sandboxes, loaded.now);
    let deadline = timer::of(&conclusion, loaded.now);
    let committed = in_flight.conclude(conclusion).await?;
    Ok(End::Told(committed.outcome, Unpublished { marks: committed.outbox, events, deadline }))
}

fn refusal_of(outcome: &Outcome) -> Option<status::Reason> {
    match outcome {
        Outcome::Refused(told) => status::reason_of(&status::from_bytes(told)),
        _ => None,
    }
}

pub(crate) const fn queue_word(queue: Queue) -> &'static str {
    match queue {
        Queue::Commands => "commands",
        Queue::Reports => "reports",
    }
}
