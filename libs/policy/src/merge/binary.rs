//! Binaries of a rule. A rule that names none is open to any.

use std::collections::BTreeSet;

use roadstead_proto::api::sandbox::NetworkBinary;

use crate::refusal::{Path, Reason, Refusal};

const PATH_BYTES: usize = 4096;

pub(super) fn check(path: &str, at: &Path<'_>) -> Result<(), Refusal> {
    if path.trim().is_empty() {
        return Err(at.refuse(Reason::Missing));
    }
    at.at_most(path, PATH_BYTES)
}

pub(super) fn check_all(binaries: &[NetworkBinary], at: &Path<'_>) -> Result<(), Refusal> {
    binaries.iter().enumerate().try_for_each(|(index, binary)| check(&binary.path, &at.index(index).field("path")))
}

pub(super) fn paths(binaries: &[NetworkBinary]) -> BTreeSet<&str> {
    binaries.iter().map(|binary| binary.path.as_str()).collect()
}

/// Whether everybody whom `inner` lets in is let in by `outer`.
pub(super) fn covers(outer: &[NetworkBinary], inner: &[NetworkBinary]) -> bool {
    outer.is_empty() || (!inner.is_empty() && paths(inner).is_subset(&paths(outer)))
}

/// Lets in whom `more` lets in, beside those who are in already.
pub(super) fn add(binaries: &mut Vec<NetworkBinary>, more: &[NetworkBinary]) {
    if covers(binaries, more) {
        return;
    }
    if more.is_empty() {
        binaries.clear();
        return;
    }
    let mut seen: BTreeSet<String> = binaries.iter().map(|binary| binary.path.clone()).collect();
    binaries.extend(more.iter().filter(|binary| seen.insert(binary.path.clone())).cloned());
}
