use prost::Message;
use roadstead_proto::api::datamodel::{WorkspaceSelector, workspace_selector::Selection};
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_proto::sealing::SecretKey;
use roadstead_proto::subject::Report;
use roadstead_service_kit::hmac_keys::HmacKeys;
use roadstead_service_kit::status::{Code, from_bytes};
use roadstead_store::mutation::{ClaimRow, SessionOwner, Write};

use super::*;
use crate::sample::{self, CountedIds, PaperVault};

const REQUEST_ID: &str = "0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0f";

fn core() -> Core {
    Core {
        served: Served::default(),
        rules: Rules::default(),
        fingerprints: Fingerprints::new(HmacKeys::new(("k".into(), SecretKey::from_bytes([7; 32])), [])),
        vault: Box::new(PaperVault),
        ids: Box::new(CountedIds::default()),
    }
}

fn opened(method: Method, caller: Caller, request: &impl Message) -> Opened {
    Opened {
        id: Uuid::from_u128(77),
        name: Name::Method(method),
        caller,
        request: request.encode_to_vec().into(),
        deadline: sample::NOW + Duration::from_secs(60),
        traceparent: String::new(),
        refused: None,
    }
}

fn ann() -> Caller {
    Caller::User(sample::user("ann", false))
}

fn scope() -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace("w".into())) })
}

fn stop(name: &str, request_id: &str) -> v1::StopSandboxRequest {
    v1::StopSandboxRequest { name: name.into(), workspace_scope: scope(), request_id: request_id.into() }
}

fn member() -> Loaded {
    Loaded { role: Some(WorkspaceRole::User), session_owner: Some(SessionOwner::Alive), ..sample::in_workspace() }
}

fn code(next: Next) -> Code {
    match next {
        Next::Conclude(Conclusion::Refusal(status) | Conclusion::Effect { outcome: Outcome::Refused(status), .. }) => {
            from_bytes(&status).code()
        }
        Next::Conclude(_) => Code::Ok,
        other => panic!("{other:?}"),
    }
}

fn message(next: Next) -> String {
    match next {
        Next::Conclude(Conclusion::Refusal(status)) => from_bytes(&status).message().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// The claim of an earlier command with the same request.
fn claimed(attempt: &Attempt<'_>, receipt: &Receipt, completed: bool) -> Ledger {
    let claim = attempt.command.claim.clone().unwrap();
    Ledger::Claimed(ClaimRow {
        format: 1,
        protected: claim.protected,
        key_id: claim.key_id,
        fingerprint: claim.fingerprint.to_vec(),
        workspace_id: Some(sample::workspace("w").id),
        completed_at: completed.then_some(sample::NOW),
        receipt: receipt.encode_to_vec().into(),
    })
}

#[test]
fn a_sound_command_of_a_member_is_executed() {
    let core = core();
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", "")));
    let loaded = Loaded { sandboxes: vec![sample::ready_sandbox("s")], ..member() };
    let Next::Conclude(Conclusion::Effect { writes, .. }) = attempt.decide(&loaded, false) else { panic!("refused") };
    assert!(matches!(writes.as_slice(), [Write::UpdateSandbox(_)]));
}

#[test]
fn the_checks_come_in_the_order_of_the_contract() {
    let core = core();
    let unsound = || {
        opened(
            Method::CreateSandbox,
            ann(),
            &v1::CreateSandboxRequest { workspace_scope: scope(), name: "-".into(), ..Default::default() },
        )
    };
    // Who may not ask is told so, whether the workspace is there or not, and whatever is wrong with the request.
    for loaded in [sample::nothing(), Loaded { role: None, ..sample::in_workspace() }] {
        assert_eq!(code(core.attempt(unsound()).decide(&loaded, false)), Code::PermissionDenied);
    }
    let nowhere = Loaded { workspace: None, ..member() };
    assert_eq!(code(core.attempt(unsound()).decide(&nowhere, false)), Code::NotFound);
    let mut going = member();
    going.workspace.as_mut().unwrap().terminating_since = Some(sample::NOW);
    assert!(message(core.attempt(unsound()).decide(&going, false)).contains("being deleted"));
    assert_eq!(code(core.attempt(unsound()).decide(&member(), false)), Code::InvalidArgument);
    // The shape of the selector comes before all of them.
    let shapeless = opened(Method::CreateSandbox, ann(), &v1::CreateSandboxRequest::default());
    assert!(message(core.attempt(shapeless).decide(&sample::nothing(), false)).contains("workspace_scope"));
}

#[test]
fn an_unsound_plan_still_looks_at_the_callers_rights() {
    let core = core();
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("-", "")));
    assert_eq!(attempt.locks.subject.as_deref(), Some("ann"));
    assert_eq!(attempt.locks.workspace.as_ref().unwrap().name, "w");
    assert!(matches!(attempt.locks.sandboxes, Sandboxes::None));
}

#[test]
fn a_success_is_shown_again_and_marked() {
    let core = core();
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", REQUEST_ID)));
    let row = sample::ready_sandbox("s");
    let ledger = claimed(&attempt, &replay::sandbox_now(row.id, true, None), true);
    let loaded = Loaded { sandboxes: vec![row], ledger, ..member() };
    let Next::Conclude(Conclusion::Replay(outcome)) = attempt.decide(&loaded, false) else { panic!("no replay") };
    assert!(matches!(outcome, Outcome::Response { replayed: true, .. }));
}

#[test]
fn a_present_denial_wins_over_a_stored_success_and_never_over_the_commands_own_outcome() {
    let core = core();
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", REQUEST_ID)));
    let row = sample::ready_sandbox("s");
    let ledger = claimed(&attempt, &replay::sandbox_now(row.id, true, None), true);
    let denied = Loaded { role: None, sandboxes: vec![row], ledger, ..member() };
    assert_eq!(code(attempt.decide(&denied, false)), Code::PermissionDenied);

    let told = Outcome::Response { body: Bytes::from_static(b"told"), replayed: false };
    let settled = Loaded { ledger: Ledger::Settled(told.clone()), ..denied };
    assert!(matches!(attempt.decide(&settled, false), Next::Tell(outcome) if outcome == told));
}

#[test]
fn a_duplicate_waits_and_is_told_uncertain_after_that() {
    let core = core();
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", REQUEST_ID)));
    let ledger = claimed(&attempt, &Receipt::default(), false);
    let loaded = Loaded { ledger, ..member() };
    assert!(matches!(attempt.decide(&loaded, false), Next::Wait));
    assert!(message(attempt.decide(&loaded, true)).contains("outcome is not known"));

    let (role, now) = (Some(WorkspaceRole::User), sample::NOW);
    assert_eq!(attempt.while_claimed(role, now, false), None);
    assert_eq!(attempt.while_claimed(role, now, true), Some(Refusal::OutcomeUncertain));
    assert!(matches!(attempt.while_claimed(None, now, false), Some(Refusal::Denied(_))));
    let late = attempt.command.deadline + Duration::from_secs(1);
    assert_eq!(attempt.while_claimed(role, late, false), Some(Refusal::OutcomeUncertain));
}

#[test]
fn an_own_effect_without_an_outcome_is_never_told_uncertain_in_time() {
    let core = core();
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", "")));
    let started = Loaded { ledger: Ledger::Settled(Outcome::Started), ..member() };
    assert!(matches!(attempt.decide(&started, true), Next::Wait));
    let late = Loaded { now: attempt.command.deadline + Duration::from_secs(1), ..started };
    assert!(matches!(attempt.decide(&late, true), Next::Leave));
}

#[test]
fn deadlines_are_kept_and_none_lies_too_far_ahead() {
    let core = core();
    let loaded = Loaded { sandboxes: vec![sample::ready_sandbox("s")], ..member() };
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", "")));
    let late = Loaded { now: attempt.command.deadline + Duration::from_millis(1), ..loaded.clone() };
    assert_eq!(code(attempt.decide(&late, false)), Code::DeadlineExceeded);
    let deadline = sample::NOW + FURTHEST_DEADLINE + Duration::from_secs(1);
    let far = core.attempt(Opened { deadline, ..opened(Method::StopSandbox, ann(), &stop("s", "")) });
    assert_eq!(code(far.decide(&loaded, false)), Code::InvalidArgument);
}

#[test]
fn late_copies_still_ask_the_ledger() {
    let core = core();
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", REQUEST_ID)));
    let row = sample::ready_sandbox("s");
    let ledger = claimed(&attempt, &replay::sandbox_now(row.id, true, None), true);
    let now = attempt.command.deadline + Duration::from_secs(1);
    let late = Loaded { now, sandboxes: vec![row], ledger, ..member() };
    assert!(matches!(attempt.decide(&late, false), Next::Conclude(Conclusion::Replay(_))));
}

#[test]
fn without_its_key_a_protected_method_takes_no_request_id_and_goes_on_without_one() {
    let core = Core { fingerprints: Fingerprints::default(), ..core() };
    let loaded = Loaded { sandboxes: vec![sample::ready_sandbox("s")], ..member() };
    let with = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", REQUEST_ID)));
    assert!(with.command.claim.is_none());
    assert!(message(with.decide(&loaded, false)).contains("no key"));
    let without = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", "")));
    assert_eq!(code(without.decide(&loaded, false)), Code::Ok);
}

#[test]
fn a_claim_has_the_scope_of_its_method_and_the_canonical_id() {
    let core = core();
    let upper = REQUEST_ID.to_uppercase();
    let stop = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", &upper)));
    let claim = stop.command.claim.unwrap();
    assert_eq!((claim.scope.as_str(), claim.request_id.to_string().as_str()), ("w", REQUEST_ID));
    assert!(claim.protected && claim.key_id.starts_with("k."));

    let create = v1::CreateWorkspaceRequest { name: "new".into(), request_id: REQUEST_ID.into(), ..Default::default() };
    let claim = core.attempt(opened(Method::CreateWorkspace, ann(), &create)).command.claim.unwrap();
    assert_eq!((claim.scope.as_str(), claim.protected, claim.key_id.as_str()), ("new", false, ""));
    let bad = v1::CreateWorkspaceRequest { request_id: "x".into(), ..create };
    let bad = core.attempt(opened(Method::CreateWorkspace, ann(), &bad));
    assert!(bad.command.claim.is_none());
    assert!(message(bad.decide(&sample::nothing(), false)).contains("request_id"));
}

#[test]
fn a_duplicate_with_another_command_id_coins_the_same_name() {
    let core = core();
    let request = v1::CreateSandboxRequest {
        workspace_scope: scope(),
        spec: Some(v1::SandboxSpec::default()),
        request_id: REQUEST_ID.into(),
        ..Default::default()
    };
    let name = |id: u128| {
        let opened = Opened { id: Uuid::from_u128(id), ..opened(Method::CreateSandbox, ann(), &request) };
        match core.attempt(opened).locks.sandboxes {
            Sandboxes::Named(name) => name,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(name(1), name(2));
}

#[test]
fn a_refusal_that_leaves_something_behind_is_an_effect_with_a_refusal_for_its_outcome() {
    let core = core();
    let request = v1::DeleteWorkspaceRequest { name: "w".into(), ..Default::default() };
    let root = Caller::User(sample::user("root", true));
    let attempt = core.attempt(opened(Method::DeleteWorkspace, root, &request));
    let loaded = Loaded { blockers: vec!["sandbox".into()], ..sample::in_workspace() };
    let Next::Conclude(Conclusion::Effect { writes, outcome, .. }) = attempt.decide(&loaded, false) else {
        panic!("no effect")
    };
    assert!(matches!(writes.as_slice(), [Write::UpdateWorkspace(_)]));
    assert!(matches!(outcome, Outcome::Refused(_)));
}

#[test]
fn a_credential_that_did_not_hold_is_told_before_anything_is_read() {
    let core = core();
    let opened = Opened {
        name: Name::Report(Report::ReportPolicyStatus),
        refused: Some(Refusal::Unauthenticated("the token has expired")),
        ..opened(
            Method::StopSandbox,
            Caller::Sandbox { id: sample::sandbox("s").id, generation: 1 },
            &v1::ReportPolicyStatusRequest::default(),
        )
    };
    let attempt = core.attempt(opened);
    assert!(matches!(attempt.locks.sandboxes, Sandboxes::None));
    assert_eq!(code(attempt.decide(&sample::nothing(), false)), Code::Unauthenticated);
}

#[test]
fn a_name_taken_meanwhile_is_told_by_its_name() {
    let core = core();
    let create = v1::CreateWorkspaceRequest { name: "new".into(), ..Default::default() };
    let attempt = core.attempt(opened(Method::CreateWorkspace, ann(), &create));
    assert!(attempt.taken(Unique::WorkspaceName).to_string().contains("'new'"));
    let request = v1::CreateSandboxRequest {
        workspace_scope: scope(),
        name: "box".into(),
        spec: Some(v1::SandboxSpec::default()),
        ..Default::default()
    };
    let attempt = core.attempt(opened(Method::CreateSandbox, ann(), &request));
    assert!(attempt.taken(Unique::SandboxName).to_string().contains("'box'"));
}

#[test]
fn a_method_that_is_not_served_says_so() {
    let core = core();
    let attempt =
        core.attempt(opened(Method::ImportProviderProfiles, ann(), &v1::ImportProviderProfilesRequest::default()));
    assert_eq!(code(attempt.decide(&sample::nothing(), false)), Code::Unimplemented);
}

/// An operation that leaves Postgres; what it brought says whether it can be written down.
struct Leaves(Option<WorkspaceSelector>);

#[derive(Debug)]
struct Far;

impl Effect for Far {
    fn perform(&self) -> std::pin::Pin<Box<dyn std::future::Future<Output = Ended> + Send + '_>> {
        Box::pin(async { Ended::Unknown("nobody asks") })
    }
}

impl Operation for Leaves {
    fn address(&self) -> ledger::Address<'_> {
        ledger::Address::Workspace(self.0.as_ref())
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        Ok(locks)
    }

    fn decide(&self, _: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        Ok(Decision::after(Arc::new(Far)))
    }

    fn complete(&self, brought: &secrecy::SecretSlice<u8>, loaded: &Loaded, _: &Context<'_>) -> Option<Decision> {
        let brought = secrecy::ExposeSecret::expose_secret(brought);
        let writes = loaded.sandboxes.iter().cloned().map(Write::UpdateSandbox).collect();
        match brought {
            b"again" => Some(Decision::after(Arc::new(Far))),
            b"too much" => {
                let sandbox_id = "x".repeat(RECEIPT_BYTES);
                Some(Decision {
                    receipt: replay::sandbox_deletion(v1::DeletionOutcome::Completed, sandbox_id),
                    ..Decision::report(writes, &v1::SandboxResponse::default())
                })
            }
            b"nothing" => None,
            _ => Some(Decision::report(writes, &v1::SandboxResponse::default())),
        }
    }
}

#[test]
fn an_effect_is_begun_and_its_end_says_what_is_committed() {
    let served = Served { read: Arc::new(|_, _| Ok(Box::new(Leaves(scope())))), ..Served::default() };
    let core = Core { served, ..core() };
    let attempt = core.attempt(opened(Method::StopSandbox, ann(), &stop("s", "")));
    assert!(matches!(attempt.decide(&member(), false), Next::Begin(_)));
    // What is written is decided on the state after it.
    let loaded = Loaded { sandboxes: vec![sample::ready_sandbox("s")], ..member() };
    let happened = |brought: &[u8]| Ended::Happened(brought.to_vec().into());
    let Some(Conclusion::Effect { writes, .. }) = attempt.finish(&happened(b""), &loaded) else { panic!("no effect") };
    assert_eq!(writes.len(), 1);
    let refused = attempt.finish(&Ended::DidNotHappen(Refusal::Unavailable), &loaded);
    assert!(matches!(refused, Some(Conclusion::Refusal(_))));
    for left in [happened(b"again"), happened(b"too much"), happened(b"nothing"), Ended::Unknown("x")] {
        assert!(attempt.finish(&left, &loaded).is_none(), "{left:?}");
    }
    // The same command, delivered again, begins nothing: it waits, and is left once its time is over.
    let started = Loaded { ledger: Ledger::Settled(Outcome::Started), ..loaded };
    assert!(matches!(attempt.decide(&started, true), Next::Wait));
    let late = Loaded { now: attempt.command.deadline + Duration::from_secs(1), ..started };
    assert!(matches!(attempt.decide(&late, true), Next::Leave));
}
