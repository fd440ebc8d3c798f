//! What an entry of the projection becomes (D5, D7): newer wins, equal and older are dropped, gone is final.

use roadstead_proto::api::v1::{Sandbox, WorkspaceRole};
use roadstead_proto::internal::{RightsEntry, SandboxEntry};
use std::collections::BTreeMap;

/// What to do with an entry after its object was read from Postgres.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step<E> {
    /// The entry says it already, or says something newer.
    Keep,
    /// Replaces the entry that was read, and only that one.
    Put(E),
}

/// The next entry of a sandbox. `row` is what Postgres has now, read after `standing`.
#[must_use]
pub(crate) fn sandbox(
    standing: Option<&SandboxEntry>,
    epoch: u64,
    workspace_id: &str,
    row: Option<Sandbox>,
) -> Step<SandboxEntry> {
    let version = row.as_ref().and_then(|row| row.metadata.as_ref()).map_or(0, |metadata| metadata.resource_version);
    let next =
        SandboxEntry { epoch, version, workspace_id: workspace_id.to_owned(), gone: row.is_none(), sandbox: row };
    match standing {
        None => Step::Put(next),
        // Of another life of the database: whatever it says is out of date, even that something is gone.
        Some(standing) if standing.epoch < epoch => Step::Put(next),
        Some(standing) if standing.epoch > epoch || standing.gone => Step::Keep,
        Some(_) if next.gone => Step::Put(next),
        Some(standing) if standing.version < next.version => Step::Put(next),
        Some(_) => Step::Keep,
    }
}

/// The next entry of a workspace's rights. Members have no common version; that Postgres was read after `standing`
/// is what makes the new content the newer one.
#[must_use]
pub(crate) fn rights(
    standing: Option<&RightsEntry>,
    epoch: u64,
    members: Option<BTreeMap<String, WorkspaceRole>>,
) -> Step<RightsEntry> {
    let gone = members.is_none();
    let members = members.unwrap_or_default().into_iter().map(|(subject, role)| (subject, role.into())).collect();
    let next = RightsEntry { epoch, gone, members };
    match standing {
        None => Step::Put(next),
        Some(standing) if standing.epoch < epoch => Step::Put(next),
        Some(standing) if standing.epoch > epoch || standing.gone || *standing == next => Step::Keep,
        Some(_) => Step::Put(next),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roadstead_proto::api::datamodel::ObjectMeta;

    use super::*;

    fn row(version: u64) -> Sandbox {
        let metadata = ObjectMeta { resource_version: version, ..ObjectMeta::default() };
        Sandbox { metadata: Some(metadata), ..Sandbox::default() }
    }

    proptest! {
        /// Whatever order reads arrive in, an entry only moves forward and ends at the newest thing read.
        #[test]
        fn an_entry_only_moves_forward(
            reads in proptest::collection::vec((1u64..3, proptest::option::of(1u64..6)), 1..30)
        ) {
            let mut standing: Option<SandboxEntry> = None;
            for (epoch, version) in &reads {
                let before = standing.clone();
                if let Step::Put(next) = sandbox(standing.as_ref(), *epoch, "w", version.map(row)) {
                    if let Some(before) = before {
                        prop_assert!(next.epoch > before.epoch || !before.gone);
                        prop_assert!(
                            next.epoch > before.epoch || next.gone || next.version > before.version
                        );
                    }
                    standing = Some(next);
                }
            }
            let standing = standing.unwrap();
            let newest = reads.iter().map(|(epoch, _)| *epoch).max().unwrap();
            let of_newest = reads.iter().filter(|(epoch, _)| *epoch == newest);
            prop_assert_eq!(standing.epoch, newest);
            prop_assert_eq!(standing.gone, of_newest.clone().any(|(_, version)| version.is_none()));
            if !standing.gone {
                prop_assert_eq!(Some(standing.version), of_newest.filter_map(|(_, version)| *version).max());
            }
        }
    }

    #[test]
    fn an_equal_entry_is_kept() {
        let Step::Put(entry) = sandbox(None, 1, "w", Some(row(4))) else { panic!("nothing stood") };
        assert_eq!(sandbox(Some(&entry), 1, "w", Some(row(4))), Step::Keep);
    }

    #[test]
    fn rights_of_a_workspace_that_went_stay_gone() {
        let Step::Put(entry) = rights(None, 1, None) else { panic!("nothing stood") };
        assert!(entry.gone);
        assert_eq!(rights(Some(&entry), 1, Some(BTreeMap::new())), Step::Keep);
        assert!(matches!(rights(Some(&entry), 2, Some(BTreeMap::new())), Step::Put(_)));
    }
}
