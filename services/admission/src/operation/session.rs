//! What the operations on a sandbox share about its session.

use roadstead_proto::api::v1;
use roadstead_service_kit::access::ANOTHER_SANDBOX;
use roadstead_store::mutation::{Loaded, SessionOwner, Write};
use roadstead_store::row;
use uuid::Uuid;

use crate::caller::Caller;
use crate::context::Context;
use crate::phase::{self, Applied, At, Event};
use crate::refusal::{Object, Refusal, Shown};
use crate::validate::at_most;

/// The sandbox of that name.
///
/// # Errors
/// `NotFound`.
pub(crate) fn named<'a>(loaded: &'a Loaded, name: &str) -> Result<&'a row::Sandbox, Refusal> {
    loaded.sandboxes.first().ok_or_else(|| Refusal::not_found(Object::Sandbox, name))
}

/// Refuses changes of what is on its way out.
///
/// # Errors
/// `Precondition`.
pub(crate) fn not_deleting(row: &row::Sandbox) -> Result<(), Refusal> {
    match row.deletion_at {
        None => Ok(()),
        Some(_) => Err(Refusal::precondition(format!("sandbox {} is being deleted", Shown(&row.name)))),
    }
}

/// The caller's own sandbox, if its token is of the present generation.
///
/// # Errors
/// `NotFound`, or `Unauthenticated` if the sandbox was started anew since.
pub(crate) fn own<'a>(loaded: &'a Loaded, context: &Context<'_>) -> Result<&'a row::Sandbox, Refusal> {
    let Caller::Sandbox { id, generation } = context.caller else { return Err(Refusal::Internal) };
    let found = loaded.sandboxes.first().filter(|row| row.id == *id);
    let row = found.ok_or_else(|| Refusal::not_found(Object::Sandbox, id.to_string()))?;
    if row.generation != *generation {
        return Err(Refusal::Unauthenticated("the sandbox was started anew; its supervisor needs a new token"));
    }
    Ok(row)
}

/// Id of the caller's own sandbox.
///
/// # Errors
/// `Denied` unless a sandbox calls and `named` is its own id.
pub(crate) fn own_id(named: &str, context: &Context<'_>) -> Result<Uuid, Refusal> {
    match context.caller {
        Caller::Sandbox { id, .. } if *named == id.to_string() => Ok(*id),
        _ => Err(Refusal::Denied(ANOTHER_SANDBOX.to_owned())),
    }
}

/// Longest id of a supervisor's instance, in bytes.
const INSTANCE_BYTES: usize = 128;

/// Checks the id of an instance.
///
/// # Errors
/// `Invalid` with the field.
pub(crate) fn instance(id: &str) -> Result<(), Refusal> {
    if id.is_empty() {
        return Err(Refusal::invalid("instance_id", "required"));
    }
    at_most("instance_id", id, INSTANCE_BYTES)
}

/// Whether the main process of that instance was the last to run, and has ended. The instance may go on talking until
/// another one takes its place.
pub(crate) fn has_ended(row: &row::Sandbox, instance_id: &str) -> bool {
    row.status.exit_code.is_some() && row.status.main_process_instance_id == instance_id
}

/// Refuses an instance whose main process has ended.
///
/// # Errors
/// `Precondition`.
pub(crate) fn not_ended(row: &row::Sandbox, instance_id: &str) -> Result<(), Refusal> {
    if has_ended(row, instance_id) {
        return Err(Refusal::precondition("the main process of this instance has ended; a new instance may connect"));
    }
    Ok(())
}

/// Whether a session stands that could still act: there is one, and the process that holds it is not known to be gone.
pub(crate) fn live(row: &row::Sandbox, loaded: &Loaded) -> bool {
    row.session.is_some() && loaded.session_owner != Some(SessionOwner::Gone)
}

/// Whether the live session is that instance's: only what it runs with is what the sandbox runs with.
pub(crate) fn live_of(row: &row::Sandbox, instance_id: &str, loaded: &Loaded) -> bool {
    live(row, loaded) && row.session.as_ref().is_some_and(|held| held.instance_id == instance_id)
}

/// The sandbox as the event leaves it, and the writes for that.
///
/// # Errors
/// `Precondition` if the event does not fit the phase.
pub(crate) fn happened(
    row: &row::Sandbox,
    event: Event,
    loaded: &Loaded,
    context: &Context<'_>,
) -> Result<(row::Sandbox, Vec<Write>), Refusal> {
    let mut row = row.clone();
    let live = live(&row, loaded);
    if !live {
        row.session = None;
    }
    let writes = match phase::apply(&mut row, event, live, at(loaded, context)) {
        Applied::Unchanged => Vec::new(),
        Applied::Changed => vec![updated(&mut row)],
        Applied::Removed => vec![Write::DeleteSandbox(row.id)],
        Applied::Refused => return Err(refused(&row, event)),
    };
    Ok((row, writes))
}

/// The write for the end of the row's session, whoever ended it.
pub(crate) fn ended(row: &row::Sandbox, at: At<'_>) -> Write {
    let mut row = row::Sandbox { session: None, ..row.clone() };
    match phase::apply(&mut row, Event::SessionGone, false, at) {
        Applied::Removed => Write::DeleteSandbox(row.id),
        Applied::Unchanged | Applied::Changed | Applied::Refused => updated(&mut row),
    }
}

/// Raises the version and writes the row.
pub(crate) fn updated(row: &mut row::Sandbox) -> Write {
    row.resource_version += 1;
    Write::UpdateSandbox(row.clone())
}

/// Surroundings of an event in this attempt.
pub(crate) fn at<'a>(loaded: &Loaded, context: &Context<'a>) -> At<'a> {
    At { now: loaded.now, ids: context.ids, window: context.rules.provisioning_window }
}

/// The name of a phase as people read it.
pub(crate) fn phase_word(phase: v1::SandboxPhase) -> &'static str {
    let name = phase.as_str_name();
    name.strip_prefix("SANDBOX_PHASE_").unwrap_or(name)
}

fn refused(row: &row::Sandbox, event: Event) -> Refusal {
    let needed = match event {
        Event::Stop => "stopped only while READY, or while it waits to be restarted",
        Event::Start => "started only while STOPPED, COMPLETED or ERROR",
        _ => "changed so only in another phase",
    };
    Refusal::precondition(format!("sandbox {} is {}; it can be {needed}", Shown(&row.name), phase_word(row.phase)))
}
