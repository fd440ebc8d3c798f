//! What operators ask for, over the broker as their own user, sealed both ways.

mod get_command;
mod list_unresolved;
mod mint_sandbox_token;
mod reactivate_workspace;
mod settle_command;

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use prost_types::Timestamp;
use roadstead_bus::service::Endpoint;
use roadstead_proto::internal::{self, Answer, Command, OperatorRequest, answer};
use roadstead_proto::subject::{self, AdminCall};
use roadstead_service_kit::clock;
use roadstead_store::operator::{Act, Unresolved};
use roadstead_store::{FlightError, StoreError};
use uuid::Uuid;

use crate::attempt::status;
use crate::executor::Parts;
use crate::refusal::Refusal;

/// Longest name of an operator and longest reason, in bytes.
const OPERATOR_BYTES: usize = 128;
const REASON_BYTES: usize = 1024;

/// The operators' endpoints.
pub(crate) fn endpoints(parts: &Arc<Parts>) -> Vec<Endpoint> {
    let serve = |call: AdminCall| {
        let parts = Arc::clone(parts);
        Endpoint::new(subject::admin(call), move |request| {
            let parts = Arc::clone(&parts);
            // Without a seal that opens there is nobody to answer.
            async move { answer(&parts, call, request).await.unwrap_or_default() }
        })
    };
    AdminCall::ALL.iter().copied().map(serve).collect()
}

async fn answer(parts: &Parts, call: AdminCall, request: Bytes) -> Option<Bytes> {
    let OperatorRequest { id, command } = OperatorRequest::decode(request).ok()?;
    let (id, sealed) = (Uuid::try_parse(&id).ok()?, command?);
    let command = Command::decode(parts.opener.seal.open_command(id, &sealed).ok()?).ok()?;
    if command.command_id != id.to_string() || command.method != call.name() {
        return None;
    }
    let answered = match call {
        AdminCall::MintSandboxToken => mint_sandbox_token::answer(parts, command.request, clock::now()).await,
        AdminCall::ListUnresolved => list_unresolved::answer(parts, command.request).await,
        AdminCall::GetCommand => get_command::answer(parts, command.request).await,
        AdminCall::SettleCommand => settle_command::answer(parts, command.request).await,
        AdminCall::ReactivateWorkspace => reactivate_workspace::answer(parts, command.request).await,
    };
    let outcome = match answered {
        Ok(response) => answer::Outcome::Response(response),
        Err(refusal) => answer::Outcome::Status(status(&refusal)),
    };
    let answer = Answer { command_id: id.to_string(), outcome: Some(outcome), replayed: false };
    let sealed = parts.opener.seal.seal_answer(id, &sealed, &answer.encode_to_vec()).ok()?;
    Some(sealed.encode_to_vec().into())
}

/// The request of a call.
fn read<M: Message + Default>(request: Bytes) -> Result<M, Refusal> {
    M::decode(request).map_err(|_| Refusal::invalid("request", "cannot be decoded"))
}

fn command_id(text: &str) -> Result<Uuid, Refusal> {
    Uuid::try_parse(text).map_err(|_| Refusal::invalid("command_id", "is not a UUID"))
}

/// Who acts and why, as it is kept.
fn act(operator: String, reason: String) -> Result<Act, Refusal> {
    for (field, text, most) in [("operator", &operator, OPERATOR_BYTES), ("reason", &reason, REASON_BYTES)] {
        if text.trim().is_empty() || text.len() > most || text.chars().any(char::is_control) {
            return Err(Refusal::invalid(field, format!("a line of 1 to {most} bytes")));
        }
    }
    Ok(Act { operator, reason })
}

/// A command without an outcome, as operators see it.
fn unresolved(row: Unresolved) -> internal::UnresolvedCommand {
    internal::UnresolvedCommand {
        command_id: row.command_id.to_string(),
        method: row.method,
        caller: hex(&row.caller),
        scope: row.scope,
        request_id: row.request_id.map(|id| id.to_string()).unwrap_or_default(),
        start_time: Some(Timestamp::from(row.since)),
        executor_end_time: Some(Timestamp::from(row.until)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Postgres could not be read.
fn unread(error: &StoreError) -> Refusal {
    tracing::warn!(%error, "an operator's question could not be answered");
    Refusal::Unavailable
}

/// An act that came to nothing, as far as is known.
fn undone(error: &FlightError) -> Refusal {
    tracing::warn!(error = error as &dyn std::error::Error, "an operator's act was not committed");
    match error {
        FlightError::Bug(_) => Refusal::Internal,
        FlightError::Lost(_) => Refusal::Aborted("the database's answer was lost: it may have been done"),
        _ => Refusal::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_needs_a_name_and_a_reason_of_one_line() {
        assert!(act("ann".into(), "looked at the provider".into()).is_ok());
        for (operator, reason) in [("", "x"), ("ann", " "), ("ann", "a\nb"), ("a\0", "x")] {
            assert!(matches!(act(operator.into(), reason.into()), Err(Refusal::Invalid { .. })));
        }
        assert!(act("ann".into(), "x".repeat(REASON_BYTES + 1)).is_err());
    }
}
