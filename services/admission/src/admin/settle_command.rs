//! An operator found out what became of an effect, and says so. At most one of them does.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::internal::settle_command_request::Outcome;
use roadstead_proto::internal::{SettleCommandRequest, SettleCommandResponse};
use roadstead_store::operator::{Finding, Standing, Unresolved};

use crate::attempt::status;
use crate::executor::Parts;
use crate::metrics::Reason;
use crate::refusal::{Object, Refusal};

pub(super) async fn answer(parts: &Parts, request: Bytes) -> Result<Bytes, Refusal> {
    let request: SettleCommandRequest = super::read(request)?;
    let finding = finding(request.outcome())?;
    let id = super::command_id(&request.command_id)?;
    let act = super::act(request.operator, request.reason)?;
    let held = match parts.database.hold_command(id).await.map_err(|error| super::undone(&error))? {
        Standing::Started(held) => held,
        Standing::Settled => {
            let how = format!("the command has its outcome; see `roadstead admission show {id}`");
            return Err(Refusal::precondition(how));
        }
        Standing::Absent => return Err(Refusal::not_found(Object::Command, request.command_id)),
    };
    if let Err(refusal) = may_settle(&held.row, held.now) {
        held.abandon().await;
        return Err(refusal);
    }
    let (operator, reason, method) = (act.operator.clone(), act.reason.clone(), held.row.method.clone());
    held.settle(finding, status(&told(finding)), act).await.map_err(|error| super::undone(&error))?;
    parts.metrics.effects_settled.get_or_create(&Reason { reason: word(finding) }).inc();
    tracing::info!(command = %id, method, outcome = word(finding), operator, reason, "an operator settled a command");
    Ok(SettleCommandResponse {}.encode_to_vec().into())
}

fn finding(outcome: Outcome) -> Result<Finding, Refusal> {
    match outcome {
        Outcome::Succeeded => Ok(Finding::Happened),
        Outcome::Failed => Ok(Finding::DidNotHappen),
        Outcome::Unspecified => Err(Refusal::invalid("outcome", "required")),
    }
}

/// Only once its executor cannot be at work any more: it could still have the effect, or write it down. And only with
/// its claim, which would stay unresolved for good.
fn may_settle(unresolved: &Unresolved, now: SystemTime) -> Result<(), Refusal> {
    if unresolved.claimed && unresolved.request_id.is_none() {
        let problem =
            "an older program began the command and did not note its request id, so its claim cannot be found";
        return Err(Refusal::precondition(problem));
    }
    match unresolved.until.duration_since(now) {
        Ok(left) => {
            let seconds = (left + Duration::from_millis(999)).as_secs().max(1);
            let problem = format!("the command may still be at work; look again in {seconds} s, then settle it");
            Err(Refusal::precondition(problem))
        }
        Err(_) => Ok(()),
    }
}

/// What the command itself is told from now on.
const fn told(finding: Finding) -> Refusal {
    match finding {
        Finding::Happened => Refusal::AnswerUnknown,
        Finding::DidNotHappen => Refusal::Aborted("an operator found out that the call had no effect"),
    }
}

const fn word(finding: Finding) -> &'static str {
    match finding {
        Finding::Happened => "succeeded",
        Finding::DidNotHappen => "failed",
    }
}

#[cfg(test)]
mod tests {
    use roadstead_service_kit::status::{Reason, from_bytes, reason_of};
    use uuid::Uuid;

    use super::*;

    fn begun(until: SystemTime) -> Unresolved {
        Unresolved {
            command_id: Uuid::nil(),
            method: "x".into(),
            caller: Vec::new(),
            scope: String::new(),
            claimed: false,
            request_id: None,
            since: SystemTime::UNIX_EPOCH,
            until,
        }
    }

    #[test]
    fn nobody_settles_what_may_still_be_at_work() {
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let unresolved = begun(until);
        for early in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(60)] {
            let refused = may_settle(&unresolved, until - early).unwrap_err();
            assert!(refused.to_string().contains("may still be at work"), "{refused}");
        }
        assert_eq!(may_settle(&unresolved, until + Duration::from_millis(1)), Ok(()));
    }

    #[test]
    fn a_claim_that_cannot_be_found_is_not_left_behind() {
        let until = SystemTime::UNIX_EPOCH;
        let nameless = Unresolved { claimed: true, ..begun(until) };
        let refused = may_settle(&nameless, until + Duration::from_secs(1)).unwrap_err();
        assert!(refused.to_string().contains("request id"), "{refused}");
        let named = Unresolved { request_id: Some(Uuid::nil()), ..nameless };
        assert_eq!(may_settle(&named, until + Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn what_had_its_effect_is_not_told_that_it_did_nothing() {
        let told = told(Finding::Happened);
        assert!(!told.to_string().contains("nothing"), "{told}");
        assert_eq!(reason_of(&from_bytes(&told.status().to_bytes())), Some(Reason::RequestReplayUnavailable));
    }
}
