//! `SessionResult`: what a session has done with what it was sent. Applied only if the session is the sandbox's and
//! the number is above the row's, so a late or repeated one changes nothing (D6).

use roadstead_proto::api::v1::{ConfigApplyOutcome, ConfigurationAdmissionState, SandboxConfigurationAdmission};
use roadstead_proto::internal::{HalfResult, SessionResult, SessionResultRecorded};
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};
use roadstead_store::row;
use uuid::Uuid;

use super::{Decision, Operation, completion, session, verdict};
use crate::caller::Caller;
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::Refusal;

impl Operation for SessionResult {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let Caller::Sandbox { id, .. } = context.caller else { return Err(Refusal::Internal) };
        let policy_version = Some(self.loaded_version).filter(|version| *version > 0);
        let reads = Reads { policy_version, session_owner: true, ..completion::reads(locks.reads) };
        Ok(Locks { sandboxes: Sandboxes::ById(*id), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let before = loaded.sandboxes.first().ok_or(Refusal::NotTheSession)?;
        let held = before.session.as_ref().filter(|held| held.id.to_string() == self.session_id);
        let held = held.ok_or(Refusal::NotTheSession)?;
        if self.number <= held.result_number {
            return Ok(Decision::report(Vec::new(), &SessionResultRecorded {}));
        }
        let mut row = before.clone();
        row.session = Some(row::Session { result_number: self.number, ..held.clone() });
        let mut writes = on_policies(self, &mut row, loaded);
        if let Some(verdict) = on_configuration(self, held) {
            if is_of_epoch(self, row.attachment_epoch) {
                writes.extend(completion::by_verdict(&verdict, outcome(self), &row, loaded));
            }
            verdict::on_configuration(&mut row, verdict, loaded, context);
        }
        writes.push(session::updated(&mut row));
        Ok(Decision::report(writes, &SessionResultRecorded {}))
    }
}

/// A failure counts for the newest revision only: what is older is settled by the verdict on a newer one.
fn on_policies(result: &SessionResult, row: &mut row::Sandbox, loaded: &Loaded) -> Vec<Write> {
    let of_loaded = loaded.policy_version.as_ref();
    let of_loaded = of_loaded.and_then(|revision| verdict::on_policy(row, revision, true, ""));
    let failed = loaded
        .policy
        .as_ref()
        .filter(|latest| latest.version == result.failed_version && result.failed_version != result.loaded_version);
    let of_failed = failed.and_then(|revision| verdict::on_policy(row, revision, false, &result.failed_error));
    let says = |version| [result.loaded_version, result.failed_version].contains(&version);
    let unsaid = loaded.policy.as_ref().filter(|latest| !says(latest.version)).and_then(|_| verdict::shadowed(loaded));
    of_loaded.into_iter().chain(of_failed).chain(unsaid).collect()
}

/// The verdict on the whole, if the result has one: both halves must stand, and the supervisor must not say otherwise.
fn on_configuration(result: &SessionResult, held: &row::Session) -> Option<SandboxConfigurationAdmission> {
    let said = result.admission.clone().unwrap_or_default();
    let refused = refused(result);
    let runs = result.config.as_ref().is_some_and(|half| runs(half.outcome()));
    let (state, error) = match (refused, said.state()) {
        (Some(half), _) if said.error.is_empty() => (ConfigurationAdmissionState::Rejected, half.error.clone()),
        (Some(_), _) | (None, ConfigurationAdmissionState::Rejected) => {
            (ConfigurationAdmissionState::Rejected, said.error.clone())
        }
        (None, ConfigurationAdmissionState::Accepted | ConfigurationAdmissionState::Unspecified) if runs => {
            (ConfigurationAdmissionState::Accepted, String::new())
        }
        (None, _) => return None,
    };
    let policy_hash = verdict::bounded(&said.policy_hash).chars().take(128).collect();
    let instance_id = held.instance_id.clone();
    // An acceptance names no environment that is not in effect, so that it is none of what is desired, now or later.
    let whole = state == ConfigurationAdmissionState::Rejected || runs_with_environment(result);
    let provider_env_revision = if whole { said.provider_env_revision } else { 0 };
    Some(SandboxConfigurationAdmission {
        instance_id,
        state: state.into(),
        error,
        policy_hash,
        provider_env_revision,
        ..said
    })
}

fn refused(result: &SessionResult) -> Option<&HalfResult> {
    [&result.config, &result.environment].into_iter().flatten().find(|half| refuses(half.outcome()))
}

/// The outcome that counts for both halves together.
fn outcome(result: &SessionResult) -> ConfigApplyOutcome {
    refused(result).or(result.config.as_ref()).map(HalfResult::outcome).unwrap_or_default()
}

/// Whether the words on both halves are on content of these attachments.
fn is_of_epoch(result: &SessionResult, epoch: Uuid) -> bool {
    let of =
        |half: &Option<HalfResult>| half.as_ref().is_some_and(|half| half.attachment_epoch == epoch.as_bytes()[..]);
    of(&result.config) && of(&result.environment)
}

/// Whether the environment is in effect. One that the supervisor does not do, or has another of, is no success of a change
/// of its providers.
fn runs_with_environment(result: &SessionResult) -> bool {
    result.environment.as_ref().is_some_and(|half| runs(half.outcome()))
}

const fn runs(outcome: ConfigApplyOutcome) -> bool {
    matches!(outcome, ConfigApplyOutcome::Applied | ConfigApplyOutcome::IgnoredDuplicate)
}

const fn refuses(outcome: ConfigApplyOutcome) -> bool {
    matches!(
        outcome,
        ConfigApplyOutcome::Degraded
            | ConfigApplyOutcome::FailedClosed
            | ConfigApplyOutcome::FailedRetainedLastKnownGood
    )
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::{ConfigUpdateOperationState as State, PolicyStatus, SandboxPhase};
    use roadstead_store::mutation::SessionOwner;

    use super::completion::tests::verdict;
    use super::*;
    use crate::sample::{self, World};

    fn half(outcome: ConfigApplyOutcome) -> Option<HalfResult> {
        Some(HalfResult { outcome: outcome.into(), ..Default::default() })
    }

    fn connected() -> row::Sandbox {
        row::Sandbox { session: Some(sample::session(40)), ..sample::sandbox("s") }
    }

    fn result(number: u64, outcome: ConfigApplyOutcome) -> SessionResult {
        SessionResult {
            session_id: Uuid::from_u128(40).to_string(),
            number,
            config: half(outcome),
            ..Default::default()
        }
    }

    fn found(row: row::Sandbox) -> Loaded {
        Loaded { sandboxes: vec![row], session_owner: Some(SessionOwner::Alive), ..sample::nothing() }
    }

    fn decide(loaded: &Loaded, result: &SessionResult) -> Result<Decision, Refusal> {
        result.decide(loaded, &World::sandbox().context())
    }

    fn updated(decision: Decision) -> row::Sandbox {
        match decision.writes.into_iter().next_back() {
            Some(Write::UpdateSandbox(row)) => row,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_runs_makes_ready_and_nothing_else_does() {
        use ConfigApplyOutcome::{
            Applied, Degraded, FailedClosed, FailedRetainedLastKnownGood, IgnoredDuplicate, IgnoredStale,
            RetainedLocalOverride, Unspecified, Unsupported,
        };
        for (outcome, ready) in [
            (Applied, true),
            (IgnoredDuplicate, true),
            (Degraded, false),
            (FailedClosed, false),
            (FailedRetainedLastKnownGood, false),
            (IgnoredStale, false),
            (RetainedLocalOverride, false),
            (Unspecified, false),
            (Unsupported, false),
        ] {
            let row = updated(decide(&found(connected()), &result(1, outcome)).unwrap());
            assert_eq!(row.phase == SandboxPhase::Ready, ready, "{outcome:?}");
        }
    }

    #[test]
    fn both_halves_and_the_supervisors_own_word_must_stand() {
        let environment = half(ConfigApplyOutcome::FailedClosed);
        let mixed = SessionResult { environment, ..result(1, ConfigApplyOutcome::Applied) };
        assert_eq!(updated(decide(&found(connected()), &mixed).unwrap()).phase, SandboxPhase::Provisioning);
        let admission = Some(SandboxConfigurationAdmission {
            state: ConfigurationAdmissionState::Rejected.into(),
            error: "no".into(),
            ..Default::default()
        });
        let denied = SessionResult { admission, ..result(1, ConfigApplyOutcome::Applied) };
        let row = updated(decide(&found(connected()), &denied).unwrap());
        assert_eq!(row.status.configuration_admission.unwrap().error, "no");
        assert_eq!(row.phase, SandboxPhase::Provisioning);
    }

    #[test]
    fn an_acceptance_without_the_environment_is_none_of_what_is_desired_now_or_later() {
        use ConfigApplyOutcome::{Applied, Unsupported};
        for (outcome, ended) in [(Applied, true), (Unsupported, false)] {
            let loaded = Loaded { pending_receipts: true, ..found(connected()) };
            let epoch = connected().attachment_epoch;
            let of_epoch = |outcome: ConfigApplyOutcome| {
                let attachment_epoch = epoch.as_bytes().to_vec().into();
                Some(HalfResult { outcome: outcome.into(), attachment_epoch, ..Default::default() })
            };
            let said = verdict(ConfigurationAdmissionState::Accepted, &connected(), &loaded);
            let result = SessionResult {
                config: of_epoch(Applied),
                environment: of_epoch(outcome),
                admission: Some(said),
                ..result(1, Applied)
            };
            let decision = decide(&loaded, &result).unwrap();
            let settles = decision.writes.iter().any(|write| matches!(write, Write::SettleReceipts { .. }));
            let row = updated(decision);
            assert_eq!((settles, row.phase), (ended, SandboxPhase::Ready), "{outcome:?}");
            let later = completion::at_creation(&row, false, &found(row.clone()));
            assert_eq!(later.state == State::Applied, ended, "{outcome:?}");
        }
    }

    #[test]
    fn an_old_number_changes_nothing_and_another_session_is_told() {
        let row = updated(decide(&found(connected()), &result(5, ConfigApplyOutcome::Applied)).unwrap());
        assert_eq!(row.session.as_ref().unwrap().result_number, 5);
        let late = decide(&found(row.clone()), &result(4, ConfigApplyOutcome::FailedClosed)).unwrap();
        assert!(late.writes.is_empty());
        let other = SessionResult { session_id: "x".into(), ..result(6, ConfigApplyOutcome::Applied) };
        assert_eq!(decide(&found(row), &other).unwrap_err(), Refusal::NotTheSession);
        assert_eq!(
            decide(&sample::nothing(), &result(1, ConfigApplyOutcome::Applied)).unwrap_err(),
            Refusal::NotTheSession
        );
    }

    #[test]
    fn a_revision_that_waits_under_a_policy_of_the_deployment_is_superseded() {
        let revision = |scope, version, status| row::PolicyRevision {
            scope,
            version,
            hash: String::new(),
            policy: Default::default(),
            status,
            load_error: String::new(),
            created_at: sample::NOW,
            loaded_at: None,
            provenance: row::Pairs::new(),
        };
        let waiting = Loaded {
            policy: Some(revision(Some(connected().id), 3, PolicyStatus::Pending)),
            global_policy: Some(revision(None, 1, PolicyStatus::Loaded)),
            ..found(connected())
        };
        let settled = |loaded: &Loaded, result: &SessionResult| {
            let writes = decide(loaded, result).unwrap().writes;
            writes.into_iter().find_map(|write| match write {
                Write::SettlePolicy { version, status, .. } => Some((version, status)),
                _ => None,
            })
        };
        let result = result(1, ConfigApplyOutcome::Applied);
        assert_eq!(settled(&waiting, &result), None, "the global policy is out of force");
        let mut shadowed = waiting;
        _ = shadowed.global_settings.values.insert("policy".to_owned(), Default::default());
        assert_eq!(settled(&shadowed, &result), Some((3, PolicyStatus::Superseded)));
        let result = SessionResult { loaded_version: 2, ..result };
        assert_eq!(settled(&shadowed, &result), Some((3, PolicyStatus::Superseded)));
    }

    #[test]
    fn policies_are_settled_from_the_cumulative_word() {
        let revision = |version, status| row::PolicyRevision {
            scope: Some(connected().id),
            version,
            hash: String::new(),
            policy: Default::default(),
            status,
            load_error: String::new(),
            created_at: sample::NOW,
            loaded_at: None,
            provenance: row::Pairs::new(),
        };
        let loaded = Loaded {
            policy_version: Some(revision(2, PolicyStatus::Pending)),
            policy: Some(revision(3, PolicyStatus::Pending)),
            ..found(connected())
        };
        let result = SessionResult {
            loaded_version: 2,
            failed_version: 3,
            failed_error: "why".into(),
            ..result(1, ConfigApplyOutcome::FailedRetainedLastKnownGood)
        };
        let decision = decide(&loaded, &result).unwrap();
        let settled = decision.writes.iter().filter_map(|write| match write {
            Write::SettlePolicy { version, status, .. } => Some((*version, *status)),
            _ => None,
        });
        assert_eq!(settled.collect::<Vec<_>>(), [(2, PolicyStatus::Loaded), (3, PolicyStatus::Failed)]);
        assert_eq!(updated(decision).current_policy_version, 2);
    }
}
