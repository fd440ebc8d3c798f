//! The call that turns a command into its answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use roadstead_proto::inbox::Inbox;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::resend::{End, Event, Published, Refusal, Resend, Step};
use crate::{Bus, EnqueueError, SubscribeError, Subscription};

/// How long a first publish waits for a connection before it says that nothing was done.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// How a command ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The queue, or this client, has no room. Nothing was done.
    #[error("too many commands are waiting")]
    Full,
    /// The command was certainly not stored. Nothing was done.
    #[error("the command could not be handed over")]
    Unavailable,
    /// No answer by the deadline: the command may have been carried out, or may yet be.
    #[error("the outcome of the command is unknown")]
    OutcomeUnknown,
}

/// Sends commands and receives their answers, all on one inbox subscription. Clones share it.
#[derive(Debug, Clone)]
pub struct CommandClient {
    bus: Bus,
    pending: Arc<Pending>,
    _receiver: Arc<AbortOnDropHandle<()>>,
}

impl CommandClient {
    /// A client with room for `capacity` commands on their way.
    ///
    /// # Errors
    ///
    /// If the connection was closed. While the broker is away this waits.
    pub async fn new(bus: &Bus, capacity: usize) -> Result<Self, SubscribeError> {
        let pending = Arc::new(Pending { inbox: bus.inbox(), capacity, calls: Mutex::default() });
        let answers = bus.subscribe_effective(bus.inbox().answers()).await?;
        let receiver = tokio::spawn(Arc::clone(&pending).hand_out(answers));
        Ok(Self { bus: bus.clone(), pending, _receiver: Arc::new(AbortOnDropHandle::new(receiver)) })
    }

    /// Sends `command`, a sealed envelope with that id, to `subject` and waits for its sealed answer until `deadline`.
    /// It is sent again, under the same id, after a missing ack, after a reconnect, and after 6 s without an answer, at
    /// most three times; the ledger makes that harmless.
    ///
    /// Dropping the future stops the re-sends, not the command. To count a caller's share until the answer, run it in a
    /// task of its own.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn call(
        &self,
        subject: &str,
        command_id: Uuid,
        command: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let mut call = self.pending.enter(command_id)?;
        let mut reconnects = self.bus.reconnects();
        self.connected(deadline).await?;
        reconnects.mark_unchanged();
        let reply = self.pending.inbox.answer(command_id);
        let publish = || self.publish(subject, command.clone(), &reply);

        let mut resend = Resend::first(Instant::now(), deadline);
        let mut until = resend.until();
        let mut publishing = std::pin::pin!(Some(publish()));
        loop {
            let in_flight = publishing.is_some();
            let event = tokio::select! {
                biased;
                answer = &mut call.answer => return answer.map_err(|_closed| CallError::OutcomeUnknown),
                Ok(()) = reconnects.changed() => Event::Reconnected,
                published = ended(publishing.as_mut()), if in_flight => {
                    publishing.set(None);
                    Event::Published(published)
                }
                () = tokio::time::sleep_until(until) => Event::Tick,
            };
            match resend.on(event, Instant::now()) {
                Step::Publish => {
                    publishing.set(Some(publish()));
                    until = resend.until();
                }
                Step::WaitUntil(when) => until = when,
                Step::End(End::OutcomeUnknown) => return Err(CallError::OutcomeUnknown),
                Step::End(End::Refused(Refusal::Full)) => return Err(CallError::Full),
                Step::End(End::Refused(Refusal::Other)) => return Err(CallError::Unavailable),
            }
        }
    }

    /// How many commands are on their way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.lock().len()
    }

    /// A publish without a connection would lie in the client and be sent later: better to say at once that nothing was
    /// done.
    async fn connected(&self, deadline: Instant) -> Result<(), CallError> {
        let patience = deadline.min(Instant::now() + CONNECT_PATIENCE);
        let connected = tokio::time::timeout_at(patience, self.bus.connected()).await;
        connected.map_err(|_elapsed| CallError::Unavailable)
    }

    async fn publish(&self, subject: &str, command: Bytes, reply: &str) -> Published {
        match self.bus.enqueue(subject, command, Some(reply)).await {
            Ok(()) => Published::Stored,
            Err(EnqueueError::Unknown) => Published::Unknown,
            Err(EnqueueError::Full) => Published::Refused(Refusal::Full),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a command was not taken");
                Published::Refused(Refusal::Other)
            }
        }
    }
}

/// Waits for the publish that is in flight.
async fn ended(publishing: std::pin::Pin<&mut Option<impl Future<Output = Published>>>) -> Published {
    match publishing.as_pin_mut() {
        Some(publishing) => publishing.await,
        None => std::future::pending().await,
    }
}

/// Who waits for which answer.
#[derive(Debug)]
struct Pending {
    inbox: Inbox,
    capacity: usize,
    calls: Mutex<HashMap<Uuid, oneshot::Sender<Bytes>>>,
}

/// A place among them; it is given up when dropped.
#[derive(Debug)]
struct Call {
    command_id: Uuid,
    pending: Arc<Pending>,
    answer: oneshot::Receiver<Bytes>,
}

impl Pending {
    fn enter(self: &Arc<Self>, command_id: Uuid) -> Result<Call, CallError> {
        let (sender, answer) = oneshot::channel();
        let mut calls = self.lock();
        if calls.len() >= self.capacity {
            return Err(CallError::Full);
        }
        match calls.entry(command_id) {
            Entry::Vacant(place) => place.insert(sender),
            // Ids are drawn once for each call; one that is on its way already is not sent by another.
            Entry::Occupied(_) => return Err(CallError::Unavailable),
        };
        Ok(Call { command_id, pending: Arc::clone(self), answer })
    }

    async fn hand_out(self: Arc<Self>, mut answers: Subscription) {
        while let Some(message) = answers.next().await {
            let Ok((_, command_id)) = Inbox::parse_answer(self.inbox.role, &message.subject) else { continue };
            let waiter = self.lock().remove(&command_id);
            if let Some(waiter) = waiter {
                // A caller that gives up in this very moment is no fault; nor is a second answer, found by nobody.
                let _late = waiter.send(message.payload);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, oneshot::Sender<Bytes>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.command_id);
    }
}
