//! Which other bridges hold the sessions whose supervisors speak to this one.
//!
//! A session stays where it was opened, so what is remembered holds until that bridge knows nothing of it any more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// Most sessions that are remembered. Who is forgotten is asked about again.
const MOST: usize = 16_384;

/// The bridges, by sandbox and session.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    known: Mutex<BTreeMap<(Uuid, Uuid), Uuid>>,
}

impl Holders {
    /// The bridge that held the session when it was last spoken to.
    pub(crate) fn of(&self, session: (Uuid, Uuid)) -> Option<Uuid> {
        self.lock().get(&session).copied()
    }

    /// The bridge has just shown that it holds the session.
    pub(crate) fn remember(&self, session: (Uuid, Uuid), bridge: Uuid) {
        let mut known = self.lock();
        if known.len() >= MOST {
            // Sessions that ended are never heard of again; those that live come back within seconds.
            known.clear();
        }
        known.insert(session, bridge);
    }

    pub(crate) fn forget(&self, session: (Uuid, Uuid)) {
        self.lock().remove(&session);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Uuid, Uuid), Uuid>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let holders = Holders::default();
        let session = |number: usize| (Uuid::nil(), Uuid::from_u128(number as u128));
        for number in 0..=MOST {
            holders.remember(session(number), Uuid::max());
        }
        assert_eq!(holders.lock().len(), 1);
        assert_eq!((holders.of(session(0)), holders.of(session(MOST))), (None, Some(Uuid::max())));
        holders.forget(session(MOST));
        assert_eq!(holders.of(session(MOST)), None);
    }
}
