//! `ReportEndpointStatus`: all that a supervisor has seen at the endpoints of its policy, in place of what it said before.
//!
//! The set is shown by the sandbox's status. A repeat of what is shown raises the sequence and nothing else, so a report
//! every few seconds is no change to anybody who watches.

use std::collections::BTreeMap;

use prost::Message as _;
use roadstead_proto::api::v1::{
    EndpointFailure, EndpointResult, EndpointStatus, ReportEndpointStatusRequest, ReportEndpointStatusResponse,
};
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};
use roadstead_store::{row, view::timestamp};

use super::{Decision, Operation, fits, session};
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::Refusal;
use crate::validate::{Checked, at_most, count_at_most};

/// Endpoints that a sandbox's status shows.
const ENDPOINTS: usize = 256;
/// Longest id, host, code, or other word of a report, in bytes.
const WORD_BYTES: usize = 256;
/// Largest report, in bytes. Whoever reads or watches the sandbox gets it whole, and it must not crowd out the rest.
const REPORT_BYTES: usize = 64 * 1024;

impl Operation for ReportEndpointStatusRequest {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let id = session::own_id(&self.sandbox_id, context)?;
        if self.supervisor_session_id.is_empty() {
            return Err(Refusal::invalid("supervisor_session_id", "required"));
        }
        if self.report_sequence == 0 {
            return Err(Refusal::invalid("report_sequence", "must be 1 or more"));
        }
        check(self)?;
        let reads = Reads { observation: true, ..locks.reads };
        Ok(Locks { sandboxes: Sandboxes::ById(id), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let before = session::own(loaded, context)?;
        let held = before.session.as_ref().filter(|held| held.id.to_string() == self.supervisor_session_id);
        let known = held.zip(loaded.observation.as_ref()).filter(|(held, known)| held.id == known.session_id);
        let (_, known) = known.ok_or_else(|| Refusal::precondition("the session is not the sandbox's"))?;
        if self.report_sequence < known.endpoint_sequence {
            return Err(Refusal::precondition("a later report was recorded; report_sequence must rise"));
        }
        if self.report_sequence == known.endpoint_sequence {
            return Ok(Decision::report(Vec::new(), &ReportEndpointStatusResponse {}));
        }
        let sequence = row::Observation { endpoint_sequence: self.report_sequence, ..known.clone() };
        let mut writes = vec![Write::PutObservation(sequence)];
        let mut row = before.clone();
        show(self, &mut row, loaded);
        if row != *before {
            fits(&row)?;
            writes.push(session::updated(&mut row));
        }
        Ok(Decision::report(writes, &ReportEndpointStatusResponse {}))
    }
}

/// Puts what is reported into the status. What was shown like that already keeps its time.
fn show(report: &ReportEndpointStatusRequest, row: &mut row::Sandbox, loaded: &Loaded) {
    let silent = report.observed_endpoint_ids.iter().map(|id| (id, (EndpointResult::NoObservedExchange, None)));
    let heard = report.observations.iter().map(|seen| (&seen.endpoint_id, (seen.result(), seen.failure.clone())));
    let reported: BTreeMap<_, _> = silent.chain(heard).collect();
    let status = |(id, (result, failure)): (&String, (EndpointResult, Option<EndpointFailure>))| EndpointStatus {
        endpoint_id: id.clone(),
        last_result: result.into(),
        last_failure: failure,
        last_reported_time: Some(timestamp(loaded.now)),
        ..Default::default()
    };
    let shown = std::mem::take(&mut row.status.endpoint_statuses);
    row.status.endpoint_statuses = reported
        .into_iter()
        .map(status)
        .map(|new| shown.iter().find(|old| same(old, &new)).cloned().unwrap_or(new))
        .collect();
    row.status.last_token_grant_failure =
        report.token_grant_status.as_ref().and_then(|status| status.last_failure.clone());
}

/// Whether both say the same, whenever they were said.
fn same(old: &EndpointStatus, new: &EndpointStatus) -> bool {
    EndpointStatus { last_reported_time: new.last_reported_time, ..old.clone() } == *new
}

/// Checks counts and sizes.
fn check(report: &ReportEndpointStatusRequest) -> Checked {
    count_at_most("observations", report.observations.len(), ENDPOINTS)?;
    count_at_most("observed_endpoint_ids", report.observed_endpoint_ids.len(), ENDPOINTS)?;
    let bytes = report.encoded_len();
    if bytes > REPORT_BYTES {
        return Err(Refusal::invalid(
            "observations",
            format!("a report has at most {REPORT_BYTES} bytes, not {bytes}"),
        ));
    }
    word("policy_hash", &report.policy_hash)?;
    for id in &report.observed_endpoint_ids {
        endpoint_id("observed_endpoint_ids", id)?;
    }
    for seen in &report.observations {
        endpoint_id("observations.endpoint_id", &seen.endpoint_id)?;
        if let Some(seen) = &seen.failure {
            failure("observations.failure", seen)?;
        }
    }
    match report.token_grant_status.as_ref().and_then(|status| status.last_failure.as_ref()) {
        Some(last) => {
            word("token_grant_status.last_failure.destination_host", &last.destination_host)?;
            last.failure.as_ref().map_or(Ok(()), |seen| failure("token_grant_status.last_failure.failure", seen))
        }
        None => Ok(()),
    }
}

fn endpoint_id(field: &str, id: &str) -> Checked {
    if id.is_empty() {
        return Err(Refusal::invalid(field, "must not be empty"));
    }
    word(field, id)
}

fn failure(field: &str, failure: &EndpointFailure) -> Checked {
    let EndpointFailure { code, provider, credential_key, stage, request_id, .. } = failure;
    [code, provider, credential_key, stage, request_id].into_iter().try_for_each(|text| word(field, text))
}

/// What anybody who reads the sandbox is shown.
fn word(field: &str, text: &str) -> Checked {
    at_most(field, text, WORD_BYTES)?;
    if text.contains(char::is_control) {
        return Err(Refusal::invalid(field, "must not hold control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roadstead_proto::api::v1::EndpointObservation;
    use uuid::Uuid;

    use super::*;
    use crate::sample::{self, World};

    fn report(sequence: u64, results: &[(&str, EndpointResult)]) -> ReportEndpointStatusRequest {
        let observation = |(id, result): &(&str, EndpointResult)| EndpointObservation {
            endpoint_id: (*id).to_owned(),
            result: (*result).into(),
            failure: None,
        };
        ReportEndpointStatusRequest {
            sandbox_id: sample::sandbox("s").id.to_string(),
            supervisor_session_id: Uuid::from_u128(40).to_string(),
            report_sequence: sequence,
            observations: results.iter().map(observation).collect(),
            observed_endpoint_ids: vec!["a".into(), "b".into()],
            ..Default::default()
        }
    }

    fn found(row: row::Sandbox, sequence: u64, seconds: u64) -> Loaded {
        let now = sample::NOW + Duration::from_secs(seconds);
        let observation = row::Observation {
            sandbox_id: row.id,
            session_id: Uuid::from_u128(40),
            readiness_announced: false,
            readiness_number: 0,
            readiness: None,
            readiness_at: now,
            endpoint_sequence: sequence,
        };
        Loaded { now, sandboxes: vec![row], observation: Some(observation), ..sample::nothing() }
    }

    fn connected() -> row::Sandbox {
        row::Sandbox { session: Some(sample::session(40)), ..sample::sandbox("s") }
    }

    fn decide(request: &ReportEndpointStatusRequest, loaded: &Loaded) -> Result<Decision, Refusal> {
        request.decide(loaded, &World::sandbox().context())
    }

    fn updated(decision: &Decision) -> &row::Sandbox {
        match decision.writes.as_slice() {
            [Write::PutObservation(_), Write::UpdateSandbox(row)] => row,
            other => panic!("{other:?}"),
        }
    }

    fn results(row: &row::Sandbox) -> Vec<(&str, EndpointResult, i64)> {
        let shown = row.status.endpoint_statuses.iter();
        shown
            .map(|shown| (&*shown.endpoint_id, shown.last_result(), shown.last_reported_time.unwrap().seconds))
            .collect()
    }

    #[test]
    fn a_report_replaces_the_whole_set_and_what_stays_keeps_its_time() {
        use EndpointResult::{HttpResponseReceived as Answered, NoObservedExchange as Nothing, TlsFailed};
        let first = decide(&report(1, &[("a", Answered)]), &found(connected(), 0, 10)).unwrap();
        let row = updated(&first).clone();
        assert_eq!(results(&row), [("a", Answered, 10), ("b", Nothing, 10)]);
        let second = decide(&report(2, &[("a", Answered), ("b", TlsFailed)]), &found(row.clone(), 1, 20)).unwrap();
        assert_eq!(results(updated(&second)), [("a", Answered, 10), ("b", TlsFailed, 20)]);
        let fewer = ReportEndpointStatusRequest { observed_endpoint_ids: Vec::new(), ..report(2, &[("b", TlsFailed)]) };
        assert_eq!(results(updated(&decide(&fewer, &found(row, 1, 30)).unwrap())), [("b", TlsFailed, 30)]);
    }

    #[test]
    fn a_report_that_says_nothing_new_raises_its_sequence_only() {
        let row = updated(&decide(&report(1, &[]), &found(connected(), 0, 10)).unwrap()).clone();
        let again = decide(&report(2, &[]), &found(row.clone(), 1, 20)).unwrap();
        let [Write::PutObservation(kept)] = again.writes.as_slice() else { panic!("{:?}", again.writes) };
        assert_eq!(kept.endpoint_sequence, 2);
        assert!(decide(&report(2, &[]), &found(row.clone(), 2, 30)).unwrap().writes.is_empty(), "a repeat");
        assert!(matches!(decide(&report(1, &[]), &found(row, 2, 30)), Err(Refusal::Precondition(_))));
    }

    #[test]
    fn only_the_live_session_may_report() {
        assert!(matches!(decide(&report(1, &[]), &found(sample::sandbox("s"), 0, 0)), Err(Refusal::Precondition(_))));
        let other = ReportEndpointStatusRequest { supervisor_session_id: "x".into(), ..report(1, &[]) };
        assert!(matches!(decide(&other, &found(connected(), 0, 0)), Err(Refusal::Precondition(_))));
    }

    #[test]
    fn reports_are_bounded() {
        let world = World::sandbox();
        let long = |number: usize| EndpointObservation {
            endpoint_id: format!("{number:0>WORD_BYTES$}"),
            failure: Some(EndpointFailure { code: "x".repeat(WORD_BYTES), ..Default::default() }),
            ..Default::default()
        };
        let large = (0..ENDPOINTS).map(long).collect();
        let many = vec![EndpointObservation { endpoint_id: "e".into(), ..Default::default() }; ENDPOINTS + 1];
        for bad in [
            report(0, &[]),
            ReportEndpointStatusRequest { supervisor_session_id: String::new(), ..report(1, &[]) },
            ReportEndpointStatusRequest { observations: many, ..report(1, &[]) },
            ReportEndpointStatusRequest { observations: large, ..report(1, &[]) },
            report(1, &[("", EndpointResult::TlsFailed)]),
            report(1, &[("a\n", EndpointResult::TlsFailed)]),
            report(1, &[(&"x".repeat(WORD_BYTES + 1), EndpointResult::TlsFailed)]),
        ] {
            assert!(matches!(bad.plan(Locks::default(), &world.context()), Err(Refusal::Invalid { .. })), "{bad:?}");
        }
    }
}
