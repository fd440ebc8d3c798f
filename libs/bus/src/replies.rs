//! Replies to requests, on wildcard inboxes of the process.
//!
//! The client's own request call keeps an entry for ever when no reply comes. Here the entry goes with the waiter.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::Message;
use futures_util::{Stream, StreamExt};
use roadstead_proto::inbox::Inbox;
use tokio::sync::oneshot;

/// Who waits, by the subject of the expected reply. A barrier's subject is never that of a reply, so what a role may
/// send to its own inboxes cannot pass for an answer.
#[derive(Debug)]
pub(crate) struct Replies {
    inbox: Inbox,
    last: AtomicU64,
    waiting: Mutex<HashMap<String, oneshot::Sender<Message>>>,
}

/// One expected reply.
#[derive(Debug)]
pub(crate) struct Expected {
    subject: String,
    replies: Arc<Replies>,
    receiver: oneshot::Receiver<Message>,
}

impl Replies {
    pub(crate) fn new(inbox: Inbox) -> Self {
        Self { inbox, last: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// The subjects to subscribe to.
    pub(crate) fn subjects(&self) -> [String; 2] {
        [self.inbox.replies(), self.inbox.barriers()]
    }

    /// Makes room for the reply to a request.
    pub(crate) fn expect_reply(self: &Arc<Self>) -> Expected {
        self.expect(self.inbox.reply(self.number()))
    }

    /// Makes room for a message of our own.
    pub(crate) fn expect_barrier(self: &Arc<Self>) -> Expected {
        self.expect(self.inbox.barrier(self.number()))
    }

    /// A number that this process has not used yet.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    fn expect(self: &Arc<Self>, subject: String) -> Expected {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(subject.clone(), sender);
        Expected { subject, replies: Arc::clone(self), receiver }
    }

    /// Hands arriving replies to those who wait, until the connection ends.
    pub(crate) async fn hand_out(self: Arc<Self>, mut inbound: impl Stream<Item = Message> + Unpin) {
        while let Some(message) = inbound.next().await {
            let waiter = self.lock().remove(message.subject.as_str());
            if let Some(waiter) = waiter {
                // A waiter that gives up in this very moment is no fault.
                let _late = waiter.send(message);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Message>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expected {
    /// The subject to reply to.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// Waits for the reply; none if the connection was closed.
    pub(crate) async fn arrives(&mut self) -> Option<Message> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.replies.lock().remove(&self.subject);
    }
}
