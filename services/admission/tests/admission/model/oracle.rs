//! What must be true of every run.

use std::collections::BTreeMap;

use prost::Message as _;
use roadstead_proto::api::v1::{self, DeletionOutcome};
use roadstead_proto::method::Method;
use tonic::Code;
use uuid::Uuid;

use super::audit::{Change, Log, Settled};
use super::calls::{Call, Key};
use crate::world::{Told, reason};

/// Everything that was told of each command.
#[derive(Debug, Default)]
pub(crate) struct Heard(BTreeMap<Uuid, Vec<Told>>);

impl Heard {
    pub(crate) fn add(&mut self, id: Uuid, told: Told) {
        self.0.entry(id).or_default().push(told);
    }

    /// Whether any copy may have reached the queue. To send one that was not is to send it for the first time.
    pub(crate) fn may_have_been_stored(&self, id: Uuid) -> bool {
        self.0[&id]
            .iter()
            .any(|told| !matches!(told, Err(status) if ["not stored", "full"].contains(&status.message())))
    }

    /// What admission told of it, if it did.
    fn answer(&self, id: Uuid) -> Option<&Told> {
        let mut answers = self.0[&id].iter().filter(|told| !by_the_door(told));
        let first = answers.next()?;
        for other in answers {
            assert_eq!(shown(first), shown(other), "{id} was told two things");
        }
        Some(first)
    }
}

/// What a door says by itself when no answer came.
fn by_the_door(told: &Told) -> bool {
    let Err(status) = told else { return false };
    matches!(status.message(), "not stored" | "full" | "outcome unknown")
}

fn shown(told: &Told) -> String {
    match told {
        Ok((body, replayed)) => format!("{replayed} {body:?}"),
        Err(status) => format!("{:?} {}", status.code(), status.message()),
    }
}

pub(crate) fn check(calls: &[Call], heard: &Heard, log: &Log) {
    let mut by_tx: BTreeMap<&str, &Settled> = BTreeMap::new();
    for settled in &log.settled {
        assert!(by_tx.insert(&settled.tx, settled).is_none(), "two commands in one transaction: {settled:?}");
        let same = log.settled.iter().filter(|other| other.command == settled.command).count();
        assert_eq!(same, 1, "a command was settled twice: {settled:?}");
    }
    for (tx, changes) in log.changes() {
        let settled = by_tx.get(tx.as_str()).unwrap_or_else(|| panic!("an effect of nobody: {changes:?}"));
        assert!(settled.success && !settled.replayed, "{settled:?} has an effect: {changes:?}");
    }
    for call in calls {
        let told = heard.answer(call.id());
        let settled = log.command(call.id());
        match (told, settled) {
            (Some(Ok((body, replayed))), Some(settled)) => {
                assert_eq!((true, *replayed), (settled.success, settled.replayed), "{call:?}");
                let changes = log.of(&settled.tx);
                match replayed {
                    true => assert!(changes.is_empty(), "{call:?}: {changes:?}"),
                    false => effect(call.request.method, body, changes),
                }
            }
            (Some(Err(status)), settled) => {
                assert_ne!(status.code(), Code::Internal, "{call:?}: {status:?}");
                assert!(settled.is_some_and(|settled| !settled.success), "{call:?}: {status:?} but {settled:?}");
            }
            // Nothing came back; it was asked again, so it never reached the queue.
            (None, None) => {}
            (told, settled) => panic!("{call:?}: {told:?} but {settled:?}"),
        }
    }
    versions(log);
    one_effect_for_an_id(calls, heard, log);
}

/// That a success has just the changes that it tells of.
fn effect(method: Method, body: &bytes::Bytes, changes: &[Change]) {
    let mut of: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for change in changes {
        *of.entry((change.kind.as_str(), change.op.as_str())).or_default() += 1;
    }
    let mut take = |kind, op| of.remove(&(kind, op)).unwrap_or_default();
    match method {
        Method::CreateSandbox => {
            let sandbox = v1::SandboxResponse::decode(body.clone()).unwrap().sandbox.unwrap();
            assert_eq!(take("sandbox", "INSERT"), 1);
            assert_eq!(changes[0].id, sandbox.metadata.unwrap().id);
        }
        Method::DeleteSandbox => {
            let outcome = v1::DeleteSandboxResponse::decode(body.clone()).unwrap().outcome();
            let deleted = usize::from(outcome == DeletionOutcome::Completed);
            assert_eq!(take("sandbox", "DELETE"), deleted, "{outcome:?}");
            // What hangs on it goes with it.
            for kind in ["attachment", "setting", "settings_revision"] {
                assert!(take(kind, "DELETE") == 0 || deleted == 1);
            }
        }
        Method::StopSandbox | Method::StartSandbox => assert!(take("sandbox", "UPDATE") <= 1),
        Method::AttachSandboxProvider => {
            let attached = usize::from(v1::AttachSandboxProviderResponse::decode(body.clone()).unwrap().attached);
            assert_eq!((take("attachment", "INSERT"), take("sandbox", "UPDATE")), (attached, attached));
        }
        Method::DetachSandboxProvider => {
            let detached = usize::from(v1::DetachSandboxProviderResponse::decode(body.clone()).unwrap().detached);
            assert_eq!((take("attachment", "DELETE"), take("sandbox", "UPDATE")), (detached, detached));
        }
        Method::UpdateProvider => assert_eq!(take("provider", "UPDATE"), 1),
        Method::UpdateConfig => {
            let set = take("setting", "INSERT") + take("setting", "UPDATE");
            let revised = take("settings_revision", "INSERT") + take("settings_revision", "UPDATE");
            assert!(set <= 1 && revised == set, "{changes:?}");
        }
        other => panic!("{other} is not in the model"),
    }
    assert!(of.is_empty(), "{method} did more than it tells: {of:?}");
}

/// That the version of each object rose by one with each effect.
fn versions(log: &Log) {
    let mut versions: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for change in log.changes().values().flatten().filter(|change| change.op != "DELETE") {
        if let Some(version) = change.version {
            versions.entry((&change.kind, &change.id)).or_default().push(version);
        }
    }
    for (object, mut versions) in versions {
        versions.sort_unstable();
        // Those that were there before are at 1.
        let first = versions[0];
        assert!(first <= 2, "{object:?}: {versions:?}");
        assert!(versions.iter().copied().eq((first..).take(versions.len())), "{object:?}: {versions:?}");
    }
}

/// That of all commands with one request id one was executed, and that all successes are of its request.
fn one_effect_for_an_id(calls: &[Call], heard: &Heard, log: &Log) {
    let mut by_key: BTreeMap<Key, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        if let Some(key) = call.key() {
            by_key.entry(key).or_default().push(call);
        }
    }
    for (key, calls) in by_key {
        let settled = |call: &Call| log.command(call.id()).cloned();
        let executed = |call: &Call| settled(call).is_some_and(|settled| settled.success && !settled.replayed);
        let executed = calls.iter().filter(|call| executed(call)).collect::<Vec<_>>();
        assert!(executed.len() <= 1, "{key:?} was executed more than once: {executed:?}");
        for call in &calls {
            if let Some(Ok((_, _))) = heard.answer(call.id()) {
                let original = executed.first().unwrap_or_else(|| panic!("{key:?}: a success of nothing"));
                assert!(call.request.message == original.request.message, "{call:?} got the answer to {original:?}");
            }
        }
    }
}

/// The calls with a request id that were executed.
pub(crate) fn successes(calls: &[Call], log: &Log) -> Vec<Call> {
    let executed = |call: &&Call| log.command(call.id()).is_some_and(|settled| settled.success && !settled.replayed);
    calls.iter().filter(|call| call.key().is_some()).filter(executed).cloned().collect()
}

/// What an id that was executed is told for ever.
pub(crate) fn is_a_replay(told: &Told) {
    match told {
        Ok((_, true)) => {}
        Err(status) if reason(status) == Some("REQUEST_REPLAY_UNAVAILABLE") => {}
        other => panic!("{other:?}"),
    }
}

/// What another request under that id is told.
pub(crate) fn is_a_mismatch(told: &Told) {
    assert_eq!(told.as_ref().err().and_then(reason), Some("REQUEST_ID_PAYLOAD_MISMATCH"), "{told:?}");
}
