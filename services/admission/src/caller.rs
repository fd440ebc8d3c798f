//! Who asks, as the ledger and the rules see it.

use std::time::SystemTime;

use roadstead_proto::internal::{self, principal::Kind};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The caller of a command. The door authenticated it; what it may do is decided here.
#[derive(Clone, Debug)]
pub enum Caller {
    User(internal::User),
    /// A supervisor for its sandbox, with the runtime generation that its token names.
    Sandbox {
        id: Uuid,
        generation: u64,
    },
    /// A workload that a platform vouches for, by a token that it issued then, to be this sandbox's.
    Bootstrap {
        id: Uuid,
        issued_at: SystemTime,
    },
}

/// The principal of an envelope says nothing or something that no door writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the envelope names no usable principal")]
pub struct Unreadable;

impl Caller {
    /// Reads the principal of an envelope.
    ///
    /// # Errors
    /// If it is missing, a user without a subject, or a sandbox without an id.
    pub fn read(principal: Option<internal::Principal>) -> Result<Self, Unreadable> {
        match principal.and_then(|principal| principal.kind).ok_or(Unreadable)? {
            Kind::User(user) if user.subject.is_empty() => Err(Unreadable),
            Kind::User(user) => Ok(Self::User(user)),
            Kind::Sandbox(identity) => Ok(Self::Sandbox {
                id: Uuid::try_parse(&identity.sandbox_id).map_err(|_| Unreadable)?,
                generation: identity.generation,
            }),
        }
    }

    /// Identity in the ledger: provider, issuer and subject of a user, or the id of a sandbox. Two issuers that know
    /// the same subject are two callers.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let parts: [&[u8]; 4] = match self {
            Self::User(user) => [b"user", user.provider.as_bytes(), user.issuer.as_bytes(), user.subject.as_bytes()],
            Self::Sandbox { id, .. } => [b"sandbox", id.as_bytes(), b"", b""],
            Self::Bootstrap { id, .. } => [b"bootstrap", id.as_bytes(), b"", b""],
        };
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn user(provider: &str, issuer: &str, subject: &str) -> Caller {
        Caller::User(internal::User {
            provider: provider.into(),
            issuer: issuer.into(),
            subject: subject.into(),
            ..Default::default()
        })
    }

    #[test]
    fn every_part_of_an_identity_tells_callers_apart_and_parts_do_not_run_together() {
        let callers = [
            user("oidc", "a", "s"),
            user("oidc", "b", "s"),
            user("mtls", "a", "s"),
            user("oidc", "a", "t"),
            user("oidc", "as", ""),
            user("oidca", "", "s"),
            Caller::Sandbox { id: Uuid::from_u128(1), generation: 1 },
            Caller::Sandbox { id: Uuid::from_u128(2), generation: 1 },
            Caller::Bootstrap { id: Uuid::from_u128(1), issued_at: SystemTime::UNIX_EPOCH },
        ];
        assert_eq!(callers.iter().map(Caller::hash).collect::<BTreeSet<_>>().len(), callers.len());
    }

    #[test]
    fn rights_and_generation_are_no_part_of_the_identity() {
        let mut admin = internal::User { subject: "s".into(), ..Default::default() };
        let plain = Caller::User(admin.clone()).hash();
        admin.platform_admin = true;
        admin.roles = vec!["x".into()];
        assert_eq!(Caller::User(admin).hash(), plain);
        let sandbox = |generation| Caller::Sandbox { id: Uuid::from_u128(1), generation }.hash();
        assert_eq!(sandbox(1), sandbox(2));
    }

    #[test]
    fn a_principal_without_identity_is_unreadable() {
        assert!(Caller::read(None).is_err());
        let user = Kind::User(internal::User::default());
        assert!(Caller::read(Some(internal::Principal { kind: Some(user) })).is_err());
        let sandbox = Kind::Sandbox(internal::SandboxIdentity::default());
        assert!(Caller::read(Some(internal::Principal { kind: Some(sandbox) })).is_err());
    }
}
