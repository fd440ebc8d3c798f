//! One command, as the ledger knows it, and what operators did about it.

use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_proto::internal::get_command_response::State;
use roadstead_proto::internal::{GetCommandRequest, GetCommandResponse, OperatorAct};
use roadstead_service_kit::status;
use roadstead_store::mutation::Outcome;
use roadstead_store::operator::{ActRow, CommandRow, Record};

use crate::executor::Parts;
use crate::refusal::{Object, Refusal};

pub(super) async fn answer(parts: &Parts, request: Bytes) -> Result<Bytes, Refusal> {
    let GetCommandRequest { command_id } = super::read(request)?;
    let id = super::command_id(&command_id)?;
    let now = parts.database.now().await.map_err(|error| super::unread(&error))?;
    let record = parts.database.command_record(id).await.map_err(|error| super::unread(&error))?;
    if record.command.is_none() && record.acts.is_empty() {
        return Err(Refusal::not_found(Object::Command, command_id));
    }
    let response =
        GetCommandResponse { command_id: id.to_string(), read_time: Some(Timestamp::from(now)), ..shown(record) };
    Ok(response.encode_to_vec().into())
}

fn shown(Record { command, unresolved, acts }: Record) -> GetCommandResponse {
    let known = command.map_or_else(
        || GetCommandResponse { state: State::Forgotten.into(), ..Default::default() },
        |command| of_row(&command),
    );
    let acts = acts.into_iter().map(|ActRow { at, operator, act, reason }| OperatorAct {
        time: Some(Timestamp::from(at)),
        operator,
        act,
        reason,
    });
    GetCommandResponse { unresolved: unresolved.map(super::unresolved), acts: acts.collect(), ..known }
}

/// Never what a success answered: that is its caller's.
fn of_row(row: &CommandRow) -> GetCommandResponse {
    let known = GetCommandResponse {
        method: row.method.clone(),
        caller: super::hex(&row.caller),
        admission_time: Some(Timestamp::from(row.admitted_at)),
        deadline: Some(Timestamp::from(row.deadline)),
        settle_time: row.settled_at.map(Timestamp::from),
        ..Default::default()
    };
    match &row.outcome {
        Outcome::Started => GetCommandResponse { state: State::Started.into(), ..known },
        Outcome::Response { replayed, .. } => {
            GetCommandResponse { state: State::Succeeded.into(), replayed: *replayed, ..known }
        }
        Outcome::Reference(_) => GetCommandResponse { state: State::Succeeded.into(), ..known },
        Outcome::Refused(bytes) => {
            let told = status::from_bytes(bytes);
            GetCommandResponse {
                state: State::Refused.into(),
                code: format!("{:?}", told.code()),
                reason: status::reason_of(&told).map(|reason| reason.name().to_owned()).unwrap_or_default(),
                message: told.message().to_owned(),
                ..known
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::attempt;

    fn row(outcome: Outcome) -> CommandRow {
        let at = SystemTime::UNIX_EPOCH;
        let settled_at = (outcome != Outcome::Started).then_some(at);
        CommandRow {
            method: "StopSandbox".into(),
            caller: vec![1, 171],
            admitted_at: at,
            deadline: at,
            settled_at,
            outcome,
        }
    }

    #[test]
    fn a_command_is_shown_by_its_outcome_and_never_by_its_answer() {
        let body = Bytes::from_static(b"canary");
        let success = of_row(&row(Outcome::Response { body, replayed: true }));
        assert!(success.state() == State::Succeeded && success.replayed && success.caller == "01ab");
        assert!(!format!("{success:?}").contains("canary"));
        let refused = of_row(&row(Outcome::Refused(attempt::status(&Refusal::PayloadMismatch))));
        let told = (refused.state(), refused.code.as_str(), refused.reason.as_str());
        assert_eq!(told, (State::Refused, "FailedPrecondition", "REQUEST_ID_PAYLOAD_MISMATCH"));
        assert_eq!(of_row(&row(Outcome::Started)).state(), State::Started);
    }

    #[test]
    fn of_a_forgotten_command_the_acts_are_left() {
        let act = ActRow { at: SystemTime::UNIX_EPOCH, operator: "ann".into(), act: "x".into(), reason: "y".into() };
        let shown = shown(Record { command: None, unresolved: None, acts: vec![act] });
        assert_eq!((shown.state(), shown.acts.len()), (State::Forgotten, 1));
    }
}
