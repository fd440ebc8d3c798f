//! Opening what came from a queue: which command it is, whose it may be, and whether it is one at all.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::inbox::Inbox;
use roadstead_proto::internal::{self, Command, SandboxIdentity, Sealed};
use roadstead_proto::role::Role;
use roadstead_proto::sealing::{AdmissionSeal, OpenError};
use roadstead_proto::stream::Consumer;
use roadstead_proto::subject::{Report, parse_command, parse_report};
use roadstead_service_kit::bootstrap_token::BootstrapVerifier;
use roadstead_service_kit::sandbox_token::{NO_GENERATION, TokenError, TokenVerifier};
use uuid::Uuid;

use crate::attempt::Opened;
use crate::caller::Caller;
use crate::limit::Limit;
use crate::operation::Name;
use crate::refusal::Refusal;

/// A work queue. It decides which kind of principal and of method an envelope may carry (D9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// From the edge: methods of users.
    Commands,
    /// From the bridge: a sandbox's methods, and what is said of its session.
    Reports,
}

impl Queue {
    /// The consumer that brings it.
    #[must_use]
    pub const fn consumer(self) -> Consumer {
        match self {
            Self::Commands => Consumer::Commands,
            Self::Reports => Consumer::Reports,
        }
    }

    /// The door that fills it, to whose inboxes alone answers go.
    const fn door(self) -> Role {
        match self {
            Self::Commands => Role::Edge,
            Self::Reports => Role::SupervisorBridge,
        }
    }
}

/// Why an envelope is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// Another replica may have the key.
    #[error("it is sealed under a key that this replica does not have")]
    UnknownKey,
    /// A door of a later version may send what another replica knows.
    #[error("its subject names no command of the queue")]
    UnknownName,
    /// It will never be one. Nobody can be told.
    #[error("{0}")]
    Poison(&'static str),
}

/// An envelope that was opened.
pub struct Envelope {
    pub command: Opened,
    /// As it came: an answer is sealed for its sender.
    pub sealed: Sealed,
    pub reply: String,
}

/// What envelopes are opened with.
#[derive(Debug)]
pub struct Opener {
    pub seal: AdmissionSeal,
    pub tokens: TokenVerifier,
    /// None: no platform vouches for anybody.
    pub bootstrap: Option<BootstrapVerifier>,
    /// How often one sandbox may have a token.
    pub refreshes: Limit,
}

impl Opener {
    /// Opens a delivery of `queue`.
    ///
    /// # Errors
    /// See [`Unopened`].
    pub fn open(
        &self,
        queue: Queue,
        subject: &str,
        reply: Option<&str>,
        payload: &Bytes,
        now: SystemTime,
    ) -> Result<Envelope, Unopened> {
        let name = name(queue, subject).ok_or(Unopened::UnknownName)?;
        let reply = reply.ok_or(Unopened::Poison("it has no inbox for its answer"))?;
        let inbox = Inbox::parse_answer(queue.door(), reply);
        let (_, id) = inbox.map_err(|_| Unopened::Poison("its inbox is not one of the queue's door"))?;
        let sealed = Sealed::decode(payload.clone()).map_err(|_| Unopened::Poison("it is no sealed envelope"))?;
        let opened = self.seal.open_command(id, &sealed).map_err(|error| match error {
            OpenError::UnknownKey => Unopened::UnknownKey,
            OpenError::Malformed | OpenError::Broken => Unopened::Poison("its seal does not open"),
        })?;
        let command = Command::decode(opened).map_err(|_| Unopened::Poison("it holds no command"))?;
        Ok(Envelope { command: self.read(queue, name, id, command, now)?, sealed, reply: reply.to_owned() })
    }

    fn read(&self, queue: Queue, name: Name, id: Uuid, command: Command, now: SystemTime) -> Result<Opened, Unopened> {
        let Command { command_id, method, principal, request, deadline, traceparent } = command;
        if command_id != id.to_string() || method != name.text() {
            return Err(Unopened::Poison("it says to be another command than it came as"));
        }
        let deadline = deadline.and_then(|deadline| SystemTime::try_from(deadline).ok());
        let deadline = deadline.ok_or(Unopened::Poison("it has no deadline"))?;
        let identity = sandbox_identity(principal.as_ref());
        let credential = match (name, &identity) {
            (Name::Report(Report::IssueSandboxToken), Some(identity)) => self.vouched(identity, now).map(Some),
            (Name::Report(report), Some(identity)) => self.credential(report, identity, now).map(|()| None),
            _ => Ok(None),
        };
        let caller = Caller::read(principal).map_err(|_| Unopened::Poison("it names no principal"))?;
        let (caller, refused) = match credential {
            Ok(vouched) => (vouched.unwrap_or(caller), None),
            Err(refused) => (caller, Some(refused)),
        };
        match (queue, &caller) {
            (Queue::Commands, Caller::User(_))
            | (Queue::Reports, Caller::Sandbox { .. } | Caller::Bootstrap { .. }) => {}
            _ => return Err(Unopened::Poison("its principal is not of the queue's kind")),
        }
        Ok(Opened { id, name, caller, request, deadline, traceparent, refused })
    }

    /// Verifies the sandbox's own credential again, so that a door's word is not enough. Reports on a session that
    /// stands are fenced by its id instead.
    fn credential(&self, report: Report, said: &SandboxIdentity, now: SystemTime) -> Result<(), Refusal> {
        let verified = match report {
            Report::SessionResult | Report::SessionReadiness | Report::EndSession => return Ok(()),
            // Nobody gets one for a token of ours.
            Report::IssueSandboxToken => Err(TokenError::Foreign),
            Report::RefreshSandboxToken => self.tokens.verify_for_refresh(&said.token, now),
            Report::ReportPolicyStatus
            | Report::ReportSandboxConfiguration
            | Report::ReportMainProcessExit
            | Report::FinalizeMainProcessExit
            | Report::ReportEndpointStatus
            | Report::UpdateConfig
            | Report::RegisterSession => self.tokens.verify(&said.token, now),
        };
        let verified = verified.map_err(|error| Refusal::Unauthenticated(unauthenticated(error)))?;
        if verified.sandbox_id.to_string() != said.sandbox_id || verified.generation != said.generation {
            return Err(Refusal::Unauthenticated("the token is another sandbox's"));
        }
        if report == Report::RefreshSandboxToken { self.may_have_another(verified.sandbox_id, now) } else { Ok(()) }
    }

    /// Verifies again that a platform vouches for the workload.
    fn vouched(&self, said: &SandboxIdentity, now: SystemTime) -> Result<Caller, Refusal> {
        let verifier = self.bootstrap.as_ref().ok_or(Refusal::Unavailable)?;
        let verified = verifier.verify(&said.token, now);
        let verified = verified.map_err(|error| Refusal::Unauthenticated(unauthenticated(error)))?;
        if verified.sandbox_id.to_string() != said.sandbox_id || said.generation != NO_GENERATION {
            return Err(Refusal::Unauthenticated("the token is another sandbox's"));
        }
        self.may_have_another(verified.sandbox_id, now)?;
        Ok(Caller::Bootstrap { id: verified.sandbox_id, issued_at: verified.issued_at })
    }

    fn may_have_another(&self, sandbox_id: Uuid, now: SystemTime) -> Result<(), Refusal> {
        if self.refreshes.allows(sandbox_id, now) {
            return Ok(());
        }
        Err(Refusal::Exhausted("too many tokens for this sandbox; wait a minute".to_owned()))
    }
}

fn name(queue: Queue, subject: &str) -> Option<Name> {
    match queue {
        Queue::Commands => parse_command(subject).ok().map(Name::Method),
        Queue::Reports => parse_report(subject).ok().map(Name::Report),
    }
}

fn sandbox_identity(principal: Option<&internal::Principal>) -> Option<SandboxIdentity> {
    match principal?.kind.as_ref()? {
        internal::principal::Kind::Sandbox(identity) => Some(identity.clone()),
        internal::principal::Kind::User(_) => None,
    }
}

const fn unauthenticated(error: TokenError) -> &'static str {
    match error {
        TokenError::Expired => "the token has expired",
        _ => "the token is not valid",
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Envelope").field("command_id", &self.command.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
