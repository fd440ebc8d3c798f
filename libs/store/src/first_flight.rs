//! The first flight: it asks the ledger, claims, resolves every name and locks, in the one lock order.

use std::collections::HashSet;
use std::time::SystemTime;

use roadstead_proto::api::v1::WorkspaceRole;

use crate::database::Database;
use crate::error::{Busy, Fault, FlightError, LedgerRow, Stage, is_lock_timeout};
use crate::fields::{first, only};
use crate::flight::{Answers, Failed, Flight, Slot, Step};
use crate::in_flight::{InFlight, Own};
use crate::lease::BEGIN;
use crate::mutation::{Command, Ledger, Loaded, Lock, Locks, Providers, SessionOwner};
use crate::parameter::value;
use crate::row;
use crate::table::sandbox::Selection;
use crate::table::{
    attachment, claim, command, member, observation, policy_revision, provider, provider_receipt, sandbox,
    service_endpoint, setting, workload_template, workspace,
};

/// Nobody waits for the ledger. The clock is cut to milliseconds, the unit of paging, so that what an answer says of a
/// new object is what a later read says.
pub(crate) const OPEN: &str =
    "SELECT date_trunc('milliseconds', clock_timestamp()), set_config('lock_timeout', '200ms', true),
    set_config('roadstead.traceparent', $1, true)";

pub(crate) const WAIT_FOR_ROWS: &str = "SELECT set_config('lock_timeout', '2s', true)";

impl Database {
    /// Flies the first flight. What it returns holds a connection and its locks until it is concluded, abandoned or
    /// dropped; Postgres ends the transaction by itself if that takes more than 4 s.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed.
    pub async fn first_flight(&self, command: &Command, locks: &Locks) -> Result<InFlight, FlightError> {
        self.open(command, locks, false).await
    }

    /// As [`Database::first_flight`], for a command that stands as started and is now to have its outcome: its row is
    /// locked instead of inserted. Found settled after all, what it was settled with is in the ledger.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed.
    pub async fn resume(&self, command: &Command, locks: &Locks) -> Result<InFlight, FlightError> {
        self.open(command, locks, true).await
    }

    async fn open(&self, command: &Command, locks: &Locks, resumed: bool) -> Result<InFlight, FlightError> {
        let (flight, plan) = plan(self, command, locks, resumed)?;
        let mut lease = self.lease().await?;
        let answers = lease.begin(flight).await.map_err(|failed| plan.failure(failed))?;
        let (loaded, own) = plan.load(&answers, command, locks)?;
        Ok(InFlight::new(lease, command.clone(), loaded, own, self.quota()))
    }
}

/// Where in the flight each answer is.
struct Plan {
    resumed: bool,
    opened: Slot,
    rights: Option<Slot>,
    command: Slot,
    claim: Option<ClaimSlots>,
    workspace: Option<Slot>,
    members: Option<Slot>,
    template: Option<Slot>,
    providers: Option<Slot>,
    sandboxes: Option<Slot>,
    provider_names: Option<Slot>,
    attached_providers: Option<Slot>,
    policy: Option<Slot>,
    policy_version: Option<Slot>,
    global_policy: Option<Slot>,
    sandbox_settings: Option<Slot>,
    global_settings: Option<Slot>,
    blockers: Option<Slot>,
    member_count: Option<Slot>,
    template_count: Option<Slot>,
    services: Option<Slot>,
    receipt: Option<Slot>,
    owner_is_gone: Option<Slot>,
    observation: Option<Slot>,
    pending_receipts: Option<Slot>,
}

struct ClaimSlots {
    expired: Slot,
    inserted: Slot,
    found: Slot,
}

fn plan(database: &Database, command: &Command, locks: &Locks, resumed: bool) -> Result<(Flight, Plan), FlightError> {
    let Locks { subject, workspace, global, member, template, providers, sandboxes, reads } = locks;
    let name = workspace.as_ref().map(|workspace| workspace.name.as_str());
    let subject = subject.as_deref();
    let selection = Selection::of(name, sandboxes, providers);
    check(locks, selection.as_ref())?;

    let mut flight = Flight::default();
    flight.add(Step::plain(BEGIN));
    let opened = flight.add(Step::new(OPEN, [value(command.traceparent.clone())]));
    let rights = name.zip(subject).map(|(name, subject)| flight.add(member::role(name, subject)));

    let known = if resumed {
        flight.add(command::lock(command.id))
    } else {
        flight.add(command::insert(command));
        flight.add(command::read(command.id))
    };
    // The claim of a started command is locked by nobody who has not locked the command.
    let claim = command.claim.as_ref().filter(|_| !resumed).map(|claim| ClaimSlots {
        expired: flight.add(claim::delete_expired(command, claim)),
        inserted: flight.add(claim::insert(command, claim, name)),
        found: flight.add(claim::read(command, claim)),
    });

    flight.add(Step::plain(WAIT_FOR_ROWS));
    if *global {
        flight.add(setting::lock_global());
    }
    let workspace = workspace.as_ref().map(|known| flight.add(workspace::lock(&known.name, known.lock)));
    // The caller's own membership and the one to be changed, in one statement, so that neither is upgraded.
    let subjects: HashSet<&str> = subject.into_iter().chain(member.as_deref()).collect();
    let members = name.filter(|_| !subjects.is_empty()).map(|name| {
        let lock = if member.is_some() { Lock::Update } else { Lock::Share };
        flight.add(member::lock(name, subjects.into_iter().map(str::to_owned).collect(), lock))
    });
    let template = name.zip(template.as_ref()).map(|(name, known)| flight.add(workload_template::lock(name, known)));
    let named = match providers {
        Providers::None => None,
        Providers::Named(names, lock) => Some((names, *lock)),
    };
    let providers = name.zip(named).map(|(name, (names, lock))| flight.add(provider::lock(name, names.clone(), lock)));
    let selected = selection.as_ref();
    let sandboxes = selected.map(|selected| flight.add(selected.lock()));

    // Every lock is held from here on; these statements see what was committed before the last one was granted.
    let plan = Plan {
        resumed,
        opened,
        rights,
        command: known,
        claim,
        workspace,
        members,
        template,
        providers,
        sandboxes,
        provider_names: selected.map(|selected| flight.add(selected.provider_names())),
        attached_providers: selected
            .filter(|_| reads.attached_providers)
            .map(|selected| flight.add(selected.providers())),
        policy: selected.filter(|_| reads.policy).map(|selected| flight.add(selected.policy())),
        policy_version: selected
            .zip(reads.policy_version)
            .map(|(selected, version)| flight.add(selected.policy_version(version))),
        global_policy: reads.global_policy.then(|| flight.add(policy_revision::latest_global())),
        sandbox_settings: selected.filter(|_| reads.sandbox_settings).map(|selected| flight.add(selected.settings())),
        global_settings: reads.global_settings.then(|| flight.add(setting::global())),
        blockers: name.filter(|_| reads.blockers).map(|name| flight.add(workspace::blockers(name))),
        member_count: name.filter(|_| reads.member_count).map(|name| flight.add(member::count_of(name))),
        template_count: name.filter(|_| reads.template_count).map(|name| flight.add(workload_template::count_of(name))),
        services: selected.filter(|_| reads.services).map(|selected| flight.add(selected.services())),
        receipt: selected
            .zip(named)
            .filter(|_| reads.receipt)
            .map(|(selected, (names, _))| flight.add(selected.receipt(names.clone()))),
        owner_is_gone: selected
            .filter(|_| reads.session_owner)
            .map(|selected| flight.add(selected.owner_is_gone(database.process_id()))),
        observation: selected.filter(|_| reads.observation).map(|selected| flight.add(selected.observation())),
        pending_receipts: selected
            .filter(|_| reads.pending_receipts)
            .map(|selected| flight.add(selected.pending_receipts())),
    };
    Ok((flight, plan))
}

/// Refuses plans that would silently read nothing.
fn check(locks: &Locks, selection: Option<&Selection>) -> Result<(), Fault> {
    use crate::mutation::Sandboxes;
    let Locks { workspace, member, template, providers, sandboxes, reads, .. } = locks;
    let names = member.is_some() || template.is_some() || matches!(providers, Providers::Named(..));
    let needs_workspace = names || reads.blockers || reads.member_count || reads.template_count;
    if needs_workspace && workspace.is_none() {
        return Err(Fault("a plan looks for names without a workspace"));
    }
    if selection.is_none() && !matches!(sandboxes, Sandboxes::None) {
        return Err(Fault("a plan selects sandboxes by something it does not lock"));
    }
    let of_one = reads.policy
        || reads.sandbox_settings
        || reads.policy_version.is_some()
        || reads.services
        || reads.receipt
        || reads.session_owner
        || reads.observation
        || reads.pending_receipts;
    let one = matches!(sandboxes, Sandboxes::Named(_) | Sandboxes::ById(_));
    if (of_one && !one) || (reads.attached_providers && selection.is_none()) {
        return Err(Fault("a plan reads of a sandbox that it does not select"));
    }
    Ok(())
}

impl Plan {
    fn failure(&self, failed: Failed) -> FlightError {
        match failed {
            Failed::Statement { slot, error, before } if is_lock_timeout(&error) => {
                match self.held(slot).and_then(|on| self.busy(on, &before)) {
                    Some(busy) => FlightError::Busy(busy),
                    None => FlightError::of(Failed::Statement { slot, error, before }, Stage::First),
                }
            }
            failed => FlightError::of(failed, Stage::First),
        }
    }

    /// Which row of the ledger the statement in `slot` waited for.
    fn held(&self, slot: Slot) -> Option<LedgerRow> {
        let last = self.claim.as_ref().map_or(self.command, |claim| claim.found);
        match slot {
            slot if slot <= self.command => Some(LedgerRow::Command),
            slot if slot <= last => Some(LedgerRow::Claim),
            _ => None,
        }
    }

    fn busy(&self, on: LedgerRow, answers: &Answers) -> Option<Busy> {
        let now = self.now(answers).ok()?;
        let role = self.rights.and_then(|slot| member::read_role(answers.rows(slot)).ok().flatten());
        Some(Busy { on, now, role })
    }

    fn now(&self, answers: &Answers) -> Result<SystemTime, FlightError> {
        Ok(only(answers.rows(self.opened), |fields| fields.time())?)
    }

    fn load(&self, answers: &Answers, command: &Command, locks: &Locks) -> Result<(Loaded, Own), FlightError> {
        let rows = |slot: Option<Slot>| slot.map_or(&[][..], |slot| answers.rows(slot));
        let mut sandboxes = sandbox::read_all(rows(self.sandboxes))?;
        let mut names = attachment::names(rows(self.provider_names))?;
        for sandbox in &mut sandboxes {
            sandbox.providers = names.remove(&sandbox.id).unwrap_or_default();
        }
        let members = member::read_all(rows(self.members))?;
        let policy = |slot| first(rows(slot), policy_revision::read);
        let (ledger, own) = self.ledger(answers, command)?;
        let loaded = Loaded {
            now: self.now(answers)?,
            ledger,
            role: role(&members, locks.subject.as_deref()),
            workspace: first(rows(self.workspace), workspace::read)?,
            member: members.into_iter().find(|member| Some(&member.subject) == locks.member.as_ref()),
            template: first(rows(self.template), workload_template::read)?,
            providers: provider::read_all(rows(self.providers))?,
            sandboxes,
            attached_providers: provider::read_all(rows(self.attached_providers))?,
            policy: policy(self.policy)?,
            policy_version: policy(self.policy_version)?,
            global_policy: policy(self.global_policy)?,
            sandbox_settings: setting::read(rows(self.sandbox_settings))?,
            global_settings: setting::read(rows(self.global_settings))?,
            blockers: workspace::kinds(rows(self.blockers))?,
            member_count: self.member_count.map_or(Ok(0), |slot| member::read_count(answers.rows(slot)))?,
            template_count: self
                .template_count
                .map_or(Ok(0), |slot| workload_template::read_count(answers.rows(slot)))?,
            services: service_endpoint::read_all(rows(self.services))?,
            receipt: first(rows(self.receipt), provider_receipt::read)?,
            session_owner: first(rows(self.owner_is_gone), |fields| {
                let gone: bool = fields.take()?;
                Ok(if gone { SessionOwner::Gone } else { SessionOwner::Alive })
            })?,
            observation: first(rows(self.observation), observation::read)?,
            pending_receipts: !rows(self.pending_receipts).is_empty(),
        };
        Ok((loaded, own))
    }

    fn ledger(&self, answers: &Answers, command: &Command) -> Result<(Ledger, Own), FlightError> {
        let none = Own::default();
        match command::known(answers.rows(self.command))? {
            command::Known::Settled(outcome) if self.resumed => {
                let claim = command.claim.is_some();
                return Ok((Ledger::Settled(outcome), Own { command: false, claim, counted: claim, resumed: true }));
            }
            command::Known::Settled(outcome) => return Ok((Ledger::Settled(outcome), none)),
            command::Known::Absent => {
                return Err(FlightError::Retry(Fault("the ledger's row was just deleted").into()));
            }
            command::Known::Open => {}
        }
        let Some(slots) = &self.claim else { return Ok((Ledger::Fresh, Own { command: true, ..none })) };
        let own = Own {
            command: true,
            claim: !answers.rows(slots.inserted).is_empty(),
            counted: !answers.rows(slots.expired).is_empty(),
            ..none
        };
        match claim::found(answers.rows(slots.found))? {
            Some((_, by)) if own.claim && by == command.id => Ok((Ledger::Fresh, own)),
            Some((row, _)) if !own.claim => Ok((Ledger::Claimed(row), own)),
            _ => Err(FlightError::Retry(Fault("the claim was just deleted").into())),
        }
    }
}

fn role(members: &[row::Member], subject: Option<&str>) -> Option<WorkspaceRole> {
    members.iter().find(|member| Some(member.subject.as_str()) == subject).map(|member| member.role)
}
