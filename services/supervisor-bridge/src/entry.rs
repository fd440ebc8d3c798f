//! A snapshot entry as the bucket holds it, ready for a session.

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::internal::SnapshotEntry;

use crate::slots::{Digest, Entry, Order};

/// Why an entry cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("the entry cannot be decoded")]
    Undecodable,
    #[error("the entry lacks a half or its digest")]
    Incomplete,
}

/// Reads the value of a key.
///
/// # Errors
/// See [`Unusable`].
pub fn read(value: Bytes) -> Result<Entry, Unusable> {
    take(SnapshotEntry::decode(value).map_err(|_| Unusable::Undecodable)?)
}

/// Takes over a decoded entry.
///
/// # Errors
/// See [`Unusable`].
pub fn take(entry: SnapshotEntry) -> Result<Entry, Unusable> {
    let digest = |bytes: &[u8]| Digest::read(bytes).ok_or(Unusable::Incomplete);
    if entry.environment.is_empty() {
        return Err(Unusable::Incomplete);
    }
    Ok(Entry {
        order: Order { epoch: entry.epoch, sequence: entry.sequence },
        config_digest: digest(&entry.config_digest)?,
        config: Box::new(entry.config.ok_or(Unusable::Incomplete)?),
        environment_digest: digest(&entry.environment_digest)?,
        environment: entry.environment,
    })
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::SandboxConfigSnapshot;

    use super::*;

    fn whole() -> SnapshotEntry {
        SnapshotEntry {
            epoch: 2,
            sequence: 7,
            config: Some(SandboxConfigSnapshot { version: 3, ..Default::default() }),
            environment: Bytes::from_static(b"sealed"),
            config_digest: Bytes::from_static(&[1; 32]),
            environment_digest: Bytes::from_static(&[2; 32]),
            ..Default::default()
        }
    }

    #[test]
    fn a_whole_entry_is_taken_as_it_is() {
        let entry = read(whole().encode_to_vec().into()).unwrap();
        assert_eq!(entry.order, Order { epoch: 2, sequence: 7 });
        assert_eq!((entry.config.version, &entry.environment[..]), (3, &b"sealed"[..]));
        assert_eq!((entry.config_digest, entry.environment_digest), (Digest::new([1; 32]), Digest::new([2; 32])));
    }

    #[test]
    fn a_part_is_never_taken_for_a_whole() {
        for broken in [
            SnapshotEntry { config: None, ..whole() },
            SnapshotEntry { environment: Bytes::new(), ..whole() },
            SnapshotEntry { config_digest: Bytes::new(), ..whole() },
            SnapshotEntry { environment_digest: Bytes::from_static(&[2; 31]), ..whole() },
        ] {
            assert_eq!(take(broken).unwrap_err(), Unusable::Incomplete);
        }
        assert_eq!(read(Bytes::from_static(b"\xff")).unwrap_err(), Unusable::Undecodable);
    }
}
