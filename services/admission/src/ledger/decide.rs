//! The decision about a command whose request id may have been seen before (behaviour 2.6, in its order).

use std::time::SystemTime;

use prost::Message as _;
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{CLAIM_FORMAT, ClaimRow, Ledger, Outcome};
use roadstead_store::retention::CLAIM_KEPT;
use uuid::Uuid;

use super::{Fingerprint, Fingerprints};
use crate::refusal::Refusal;

/// What is asked of the ledger, beside the key.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub fingerprint: Fingerprint,
    pub keys: &'a Fingerprints,
    /// Whether the method's fingerprints are kept under a key.
    pub protected: bool,
    pub binding: Binding,
    /// Postgres's clock.
    pub now: SystemTime,
}

/// Whether a claim holds for one workspace only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    Free,
    /// To the workspace that the request names, as it is now: none if it is gone.
    Workspace(Option<Uuid>),
}

/// What the ledger says.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing is known: execute.
    Execute,
    /// This very command is settled; its answer stands.
    Settled(Outcome),
    /// An earlier command with this request id succeeded.
    Replay(Box<Receipt>),
    Refuse(Refusal),
    /// An earlier command with this request id has no outcome yet.
    Unresolved,
    /// The claim is past its time and counts as absent once it is deleted.
    Expired,
}

/// Decides. `asked` is absent for commands without a request id, which can meet no claim.
#[must_use]
pub fn decide(ledger: &Ledger, asked: Option<Asked<'_>>) -> Verdict {
    match (ledger, asked) {
        (Ledger::Fresh, _) => Verdict::Execute,
        (Ledger::Settled(outcome), _) => Verdict::Settled(outcome.clone()),
        (Ledger::Claimed(claim), Some(asked)) => against(claim, asked),
        (Ledger::Claimed(_), None) => Verdict::Refuse(Refusal::Internal),
    }
}

fn against(claim: &ClaimRow, asked: Asked<'_>) -> Verdict {
    if claim.format != CLAIM_FORMAT {
        return unavailable("its record has a format that this server does not know");
    }
    if claim.completed_at.is_some_and(|completed_at| expired(completed_at, asked.now)) {
        return Verdict::Expired;
    }
    match asked.keys.matches(&claim.key_id, &claim.fingerprint, asked.fingerprint) {
        Ok(true) => {}
        Ok(false) => return Verdict::Refuse(Refusal::PayloadMismatch),
        Err(_) => {
            return unavailable(
                "its record cannot be verified, for it was kept under a key that this server does not have",
            );
        }
    }
    if matches!(asked.binding, Binding::Workspace(now) if now != claim.workspace_id) {
        return unavailable("its workspace is gone or was replaced");
    }
    if claim.protected != asked.protected {
        return unavailable("its record is of another class");
    }
    if claim.completed_at.is_none() {
        return Verdict::Unresolved;
    }
    match Receipt::decode(claim.receipt.clone()) {
        Ok(receipt) if receipt.kind.is_some() => Verdict::Replay(Box::new(receipt)),
        _ => unavailable("its receipt cannot be read"),
    }
}

/// Whether a success of that time is forgotten.
#[must_use]
pub fn expired(completed_at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(completed_at).is_ok_and(|age| age >= CLAIM_KEPT)
}

fn unavailable(why: &'static str) -> Verdict {
    Verdict::Refuse(Refusal::ReplayUnavailable(why))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use proptest::prelude::*;
    use roadstead_proto::internal::receipt;
    use roadstead_proto::method::Method;
    use roadstead_proto::sealing::SecretKey;
    use roadstead_service_kit::hmac_keys::HmacKeys;

    use super::*;
    use crate::ledger::Protection;

    fn keys(id: &str) -> Fingerprints {
        Fingerprints::new(HmacKeys::new((id.to_owned(), SecretKey::from_bytes([7; 32])), []))
    }

    fn receipt() -> Receipt {
        let deletion = receipt::Deletion { outcome: 1, sandbox_id: String::new() };
        Receipt { kind: Some(receipt::Kind::Deletion(deletion)) }
    }

    /// Everything that the table asks about a record.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        known_format: bool,
        age: Option<Duration>,
        known_key: bool,
        same_payload: bool,
        same_workspace: bool,
        same_class: bool,
        readable: bool,
    }

    fn run(case: Case) -> Verdict {
        let keys = keys("k");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let asked_for = Fingerprint::of(Method::StopSandbox, b"").unwrap();
        let stored = if case.same_payload { asked_for } else { Fingerprint::of(Method::StartSandbox, b"").unwrap() };
        let kept = keys.keep(Protection::Keyed, stored).unwrap();
        let workspace = Uuid::from_u128(1);
        let claim = ClaimRow {
            format: if case.known_format { CLAIM_FORMAT } else { CLAIM_FORMAT + 1 },
            protected: case.same_class,
            key_id: if case.known_key { kept.key_id } else { "lost".into() },
            fingerprint: kept.hash.to_vec(),
            workspace_id: Some(if case.same_workspace { workspace } else { Uuid::from_u128(2) }),
            completed_at: case.age.map(|age| now - age),
            receipt: if case.readable { receipt().encode_to_vec().into() } else { Bytes::from_static(b"\xff") },
        };
        let asked = Asked {
            fingerprint: asked_for,
            keys: &keys,
            protected: true,
            binding: Binding::Workspace(Some(workspace)),
            now,
        };
        decide(&Ledger::Claimed(claim), Some(asked))
    }

    /// The table of the contract, written down a second time.
    fn table(case: Case) -> &'static str {
        match case {
            Case { known_format: false, .. } => "unavailable",
            Case { age: Some(age), .. } if age >= CLAIM_KEPT => "expired",
            Case { known_key: false, .. } => "unavailable",
            Case { same_payload: false, .. } => "mismatch",
            Case { same_workspace: false, .. } | Case { same_class: false, .. } => "unavailable",
            Case { age: None, .. } => "unresolved",
            Case { readable: true, .. } => "replay",
            Case { readable: false, .. } => "unavailable",
        }
    }

    fn word(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Execute => "execute",
            Verdict::Settled(_) => "settled",
            Verdict::Replay(_) => "replay",
            Verdict::Refuse(Refusal::PayloadMismatch) => "mismatch",
            Verdict::Refuse(Refusal::ReplayUnavailable(_)) => "unavailable",
            Verdict::Refuse(_) => "other",
            Verdict::Unresolved => "unresolved",
            Verdict::Expired => "expired",
        }
    }

    fn any_case() -> impl Strategy<Value = Case> {
        let ages = prop_oneof![
            Just(None),
            (0_u64..200_000).prop_map(|seconds| Some(Duration::from_secs(seconds))),
            Just(Some(CLAIM_KEPT)),
            Just(Some(CLAIM_KEPT - Duration::from_nanos(1))),
        ];
        (any::<[bool; 6]>(), ages).prop_map(|(flags, age)| {
            let [known_format, known_key, same_payload, same_workspace, same_class, readable] = flags;
            Case { known_format, age, known_key, same_payload, same_workspace, same_class, readable }
        })
    }

    proptest! {
        #[test]
        fn the_decision_follows_the_table(case in any_case()) {
            prop_assert_eq!(word(&run(case)), table(case), "{:?}", case);
        }

        #[test]
        fn a_record_without_confirmed_success_never_leads_to_an_execution(case in any_case()) {
            let verdict = run(Case { age: None, ..case });
            prop_assert!(!matches!(verdict, Verdict::Execute | Verdict::Expired | Verdict::Replay(_)));
        }
    }

    #[test]
    fn an_own_command_gets_exactly_its_outcome() {
        let outcome = Outcome::Refused(Bytes::from_static(b"status"));
        assert_eq!(decide(&Ledger::Settled(outcome.clone()), None), Verdict::Settled(outcome));
        assert_eq!(decide(&Ledger::Fresh, None), Verdict::Execute);
    }

    #[test]
    fn a_clock_that_went_back_expires_nothing() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        assert!(!expired(now + Duration::from_secs(5), now));
    }
}
