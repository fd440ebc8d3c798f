//! One attempt at a command: everything about it that is decided, before the first flight and between the two.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_proto::internal::Receipt;
use roadstead_store::error::Unique;
use roadstead_store::mutation::{
    ByName, Claim, Command, Conclusion, Ledger, Loaded, Lock, Locks, Outcome, Providers, Sandboxes,
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::authorize::authorize;
use crate::caller::Caller;
use crate::context::{Context, Ids, Rules, Vault};
use crate::effect::{Effect, Ended};
use crate::ledger::replay::{self, RECEIPT_BYTES};
use crate::ledger::{self, Asked, Binding, Fingerprint, Fingerprints, MethodRow, Protection, Scope, Verdict};
use crate::operation::{Decision, Name, Operation, Reply, Unreadable};
use crate::refusal::{Object, Refusal, Shown};
use crate::served::Served;
use crate::validate::request_id;

/// No honest door asks for more time than this.
const FURTHEST_DEADLINE: Duration = Duration::from_secs(150);

/// A command as it was opened and its caller recognised.
#[derive(Clone, Debug)]
pub struct Opened {
    pub id: Uuid,
    pub name: Name,
    pub caller: Caller,
    /// The request as the door received it.
    pub request: Bytes,
    pub deadline: SystemTime,
    pub traceparent: String,
    /// What is wrong with the caller's credential. It is told like any refusal.
    pub refused: Option<Refusal>,
}

/// What attempts are decided with.
#[allow(missing_debug_implementations, reason = "made of parts that have nothing to show")]
pub struct Core {
    pub served: Served,
    pub rules: Rules,
    pub fingerprints: Fingerprints,
    pub vault: Box<dyn Vault>,
    pub ids: Box<dyn Ids>,
}

/// A command, read and planned.
#[allow(missing_debug_implementations, reason = "requests have no place in a log")]
pub struct Attempt<'a> {
    core: &'a Core,
    name: Name,
    caller: Caller,
    naming: [u8; 32],
    /// As the ledger will know it.
    pub command: Command,
    /// What the first flight locks.
    pub locks: Locks,
    body: Result<Body, Refusal>,
}

/// What could be read of the request.
struct Body {
    operation: Box<dyn Operation>,
    row: Option<MethodRow>,
    fingerprint: Option<Fingerprint>,
    /// Whether the request is sound by itself.
    sound: Result<(), Refusal>,
}

/// How an attempt goes on.
#[derive(Clone, Debug)]
pub enum Next {
    /// Commit this and tell its outcome.
    Conclude(Conclusion),
    /// Commit that the command is started, then have this effect.
    Begin(Arc<dyn Effect>),
    /// The command is settled: tell this.
    Tell(Outcome),
    /// Somebody else is at it: look again later.
    Wait,
    /// Its outcome is not known and its time is over. Whoever waited has been told so by its door.
    Leave,
}

impl Core {
    /// Reads and plans a command. What is wrong with it is told only after its caller's rights were looked at.
    #[must_use]
    pub fn attempt(&self, opened: Opened) -> Attempt<'_> {
        let Opened { id, name, caller, request, deadline, traceparent, refused } = opened;
        let hash = caller.hash();
        let command = Command { id, method: name.text(), caller: hash, deadline, traceparent, claim: None };
        let mut attempt = Attempt {
            core: self,
            name,
            caller,
            naming: naming(&hash, id),
            command,
            locks: Locks::default(),
            body: Err(Refusal::Internal),
        };
        attempt.body = match refused {
            Some(refusal) => Err(refusal),
            None => attempt.read(&request),
        };
        attempt
    }
}

impl Attempt<'_> {
    fn read(&mut self, request: &[u8]) -> Result<Body, Refusal> {
        let operation = (self.core.served.read)(self.name, request).map_err(|unreadable| match unreadable {
            Unreadable::Unserved => Refusal::Unserved(self.name.text()),
            Unreadable::Malformed => Refusal::invalid("request", "cannot be decoded"),
        })?;
        let (row, mut fingerprint) = (self.core.served.row(self.name), None);
        let scope = scope_of(self.name, row, operation.as_ref())?;
        self.locks = rights(scope, &self.caller);
        let scope_name = scope.name().to_owned();

        let mut sound = Ok(());
        if let Some(row) = row
            && let Some(request_id) = request_id::canonical(operation.request_id())?
        {
            let taken = Fingerprint::of(row.method, request);
            let taken = taken.map_err(|_| Refusal::invalid("request", "cannot be decoded"))?;
            match self.core.fingerprints.keep(row.protection, taken) {
                Some(kept) => {
                    let protected = row.protection == Protection::Keyed;
                    let (key_id, fingerprint) = (kept.key_id, kept.hash);
                    let claim = Claim { request_id, scope: scope_name, protected, key_id, fingerprint };
                    self.command.claim = Some(claim);
                }
                None => sound = Err(Refusal::ReplayUnavailable("this server has no key to keep its record under")),
            }
            fingerprint = Some(taken);
            self.naming = naming(&self.command.caller, request_id);
        }
        if sound.is_ok() {
            match operation.plan(self.locks.clone(), &self.context()) {
                Ok(locks) => self.locks = locks,
                Err(refusal) => sound = Err(refusal),
            }
        }
        Ok(Body { operation, row, fingerprint, sound })
    }

    /// Decides, with what the first flight found. `waited` says that an earlier command with the same request id was
    /// waited for long enough.
    #[must_use]
    pub fn decide(&self, loaded: &Loaded, waited: bool) -> Next {
        match &loaded.ledger {
            // The same call, answered once and for all: what was told stays told, whatever its caller may do by now.
            Ledger::Settled(Outcome::Started) => self.unresolved(loaded.now),
            Ledger::Settled(outcome) => Next::Tell(outcome.clone()),
            Ledger::Fresh | Ledger::Claimed(_) => {
                self.decide_open(loaded, waited).unwrap_or_else(|refusal| conclude(&refusal))
            }
        }
    }

    fn decide_open(&self, loaded: &Loaded, waited: bool) -> Result<Next, Refusal> {
        let body = self.body.as_ref().map_err(Clone::clone)?;
        self.authorize(loaded.role)?;
        if self.command.deadline > loaded.now + FURTHEST_DEADLINE {
            let limit = FURTHEST_DEADLINE.as_secs();
            return Err(Refusal::invalid("deadline", format!("more than {limit} seconds ahead")));
        }
        match ledger::decide(&loaded.ledger, self.asked(body, loaded)) {
            Verdict::Execute => self.execute(body, loaded),
            Verdict::Settled(outcome) => Ok(Next::Tell(outcome)),
            Verdict::Replay(receipt) => self.replay(body, &receipt, loaded).map(Next::Conclude),
            Verdict::Refuse(refusal) => Err(refusal),
            Verdict::Unresolved if waited || loaded.now > self.command.deadline => Err(Refusal::OutcomeUncertain),
            Verdict::Unresolved | Verdict::Expired => Ok(Next::Wait),
        }
    }

    fn asked(&self, body: &Body, loaded: &Loaded) -> Option<Asked<'_>> {
        let (row, fingerprint) = body.row.zip(body.fingerprint)?;
        let binding = match scope_of(self.name, Some(row), body.operation.as_ref()) {
            Ok(Scope::Workspace(_)) => Binding::Workspace(loaded.workspace.as_ref().map(|workspace| workspace.id)),
            _ => Binding::Free,
        };
        let protected = row.protection == Protection::Keyed;
        Some(Asked { fingerprint, keys: &self.core.fingerprints, protected, binding, now: loaded.now })
    }

    fn execute(&self, body: &Body, loaded: &Loaded) -> Result<Next, Refusal> {
        if loaded.now > self.command.deadline {
            return Err(Refusal::DeadlinePassed);
        }
        if let Ok(Scope::Workspace(name)) = scope_of(self.name, body.row, body.operation.as_ref()) {
            let workspace = loaded.workspace.as_ref();
            let workspace = workspace.ok_or_else(|| Refusal::not_found(Object::Workspace, name))?;
            if body.operation.creates() && workspace.terminating_since.is_some() {
                let shown = Shown(name);
                return Err(Refusal::precondition(format!("workspace {shown} is being deleted; use another one")));
            }
        }
        body.sound.clone()?;
        let decision = body.operation.decide(loaded, &self.context())?;
        match decision.reply {
            Reply::After(effect) => Ok(Next::Begin(effect)),
            _ => conclusion(decision).map(Next::Conclude).ok_or(Refusal::Internal),
        }
    }

    /// What to commit about an effect that has ended, with what `Database::resume` found. None: its command stays
    /// started.
    #[must_use]
    pub fn finish(&self, ended: &Ended, loaded: &Loaded) -> Option<Conclusion> {
        match ended {
            Ended::Happened(brought) => {
                let body = self.body.as_ref().ok()?;
                conclusion(body.operation.complete(brought, loaded, &self.context())?)
            }
            Ended::DidNotHappen(refusal) => Some(Conclusion::Refusal(status(refusal))),
            Ended::Unknown(_) => None,
        }
    }

    fn replay(&self, body: &Body, receipt: &Receipt, loaded: &Loaded) -> Result<Conclusion, Refusal> {
        let shown = body.operation.replay(receipt, loaded, &self.context());
        let body = shown.ok_or(Refusal::ReplayUnavailable("the object is gone, replaced or changed"))?;
        Ok(Conclusion::Replay(Outcome::Response { body, replayed: true }))
    }

    /// What to do while the row of the request id is held by another command: whether this caller may ask at all is
    /// known, and once it has `waited` long enough, that the outcome is uncertain. None: wait.
    #[must_use]
    pub fn while_claimed(&self, role: Option<WorkspaceRole>, now: SystemTime, waited: bool) -> Option<Refusal> {
        match self.authorize(role) {
            Err(refusal) => Some(refusal),
            Ok(()) if waited || now > self.command.deadline => Some(Refusal::OutcomeUncertain),
            Ok(()) => None,
        }
    }

    /// The refusal for a name that turned out to be taken while it was written.
    #[must_use]
    pub fn taken(&self, unique: Unique) -> Refusal {
        let workspace = self.locks.workspace.as_ref().map(|workspace| workspace.name.as_str());
        let (object, name) = match unique {
            Unique::WorkspaceName => (Object::Workspace, workspace),
            Unique::Member => (Object::Member, self.locks.member.as_deref()),
            Unique::TemplateName => {
                (Object::Template, self.locks.template.as_ref().map(|template| template.name.as_str()))
            }
            Unique::SandboxName => match &self.locks.sandboxes {
                Sandboxes::Named(name) => (Object::Sandbox, Some(name.as_str())),
                _ => (Object::Sandbox, None),
            },
            Unique::ProviderName => match &self.locks.providers {
                Providers::Named(names, _) => (Object::Provider, names.first().map(String::as_str)),
                Providers::None => (Object::Provider, None),
            },
        };
        Refusal::already_exists(object, name.unwrap_or_default())
    }

    /// The refusal for a caller that holds too many claims.
    #[must_use]
    pub fn over_quota() -> Refusal {
        Refusal::Exhausted("too many request ids are kept for this caller; go on without one, or wait".to_owned())
    }

    fn unresolved(&self, now: SystemTime) -> Next {
        if now > self.command.deadline { Next::Leave } else { Next::Wait }
    }

    fn authorize(&self, role: Option<WorkspaceRole>) -> Result<(), Refusal> {
        // What cannot be read shows nothing of any state: its own fault is all that is told.
        let Ok(body) = &self.body else { return Ok(()) };
        let scope = scope_of(self.name, body.row, body.operation.as_ref())?;
        let method = body.row.map(|row| row.method);
        authorize(&self.caller, scope, method, role, body.operation.needs_platform_admin())
    }

    fn context(&self) -> Context<'_> {
        Context {
            caller: &self.caller,
            ids: self.core.ids.as_ref(),
            vault: self.core.vault.as_ref(),
            rules: &self.core.rules,
            naming: self.naming,
        }
    }
}

/// How a decision is committed. None if it is none that can be: its receipt is too large, or it asks for an effect.
fn conclusion(Decision { writes, reply, receipt }: Decision) -> Option<Conclusion> {
    if receipt.encoded_len() > RECEIPT_BYTES {
        return None;
    }
    let outcome = match reply {
        Reply::Response(body) => Outcome::Response { body, replayed: false },
        Reply::Token(grant) => Outcome::Reference(replay::encoded(&replay::token(grant))),
        Reply::Refusal(refusal) => Outcome::Refused(status(&refusal)),
        Reply::After(_) => return None,
    };
    Some(Conclusion::Effect { writes, outcome, receipt: replay::encoded(&receipt) })
}

fn scope_of<'a>(name: Name, row: Option<MethodRow>, operation: &'a dyn Operation) -> Result<Scope<'a>, Refusal> {
    match (name, row) {
        (Name::Method(_), Some(row)) => Scope::of(row.scope, operation.address()),
        (Name::Report(_), _) => Ok(Scope::OwnSandbox),
        (Name::Method(_), None) => Err(Refusal::Internal),
    }
}

/// The locks that every plan begins with: the workspace of the call, and whose rights in it count.
fn rights(scope: Scope<'_>, caller: &Caller) -> Locks {
    let workspace = match scope {
        Scope::Workspace(name) | Scope::Platform(name) if !name.is_empty() => {
            Some(ByName { name: name.to_owned(), lock: Lock::Share })
        }
        _ => None,
    };
    let subject = match (scope, caller) {
        (Scope::Workspace(_), Caller::User(user)) => Some(user.subject.clone()),
        _ => None,
    };
    Locks { subject, workspace, ..Locks::default() }
}

fn naming(caller: &[u8; 32], id: Uuid) -> [u8; 32] {
    Sha256::new().chain_update(b"roadstead name 1").chain_update(caller).chain_update(id.as_bytes()).finalize().into()
}

fn conclude(refusal: &Refusal) -> Next {
    Next::Conclude(Conclusion::Refusal(status(refusal)))
}

/// A refusal as the ledger keeps it.
#[must_use]
pub fn status(refusal: &Refusal) -> Bytes {
    refusal.status().to_bytes().into()
}

#[cfg(test)]
mod tests;
