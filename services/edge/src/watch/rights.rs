//! Changes of the rights of those who watch. The feed only says whom to look at again: what a caller may do is asked of
//! Postgres, so a late or repeated message costs a question and never lets anybody see too much.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message as _;
use roadstead_bus::feed::Stored;
use roadstead_proto::bucket::{Bucket, RightsKey};
use roadstead_proto::internal::RightsEntry;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::feed::{Heard, Listener};

/// Who cannot be authorized again this long after the moment up to which the feed is known to be whole watches no longer.
const BOUND: Duration = Duration::from_secs(5);
/// But there is always the time for one question.
const QUESTION: Duration = Duration::from_secs(1);

/// The workspaces in which somebody watches. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    workspaces: HashMap<Uuid, Watched>,
    /// Rises with every change of any workspace.
    changes: u64,
}

#[derive(Debug)]
struct Watched {
    watchers: usize,
    members: watch::Sender<Members>,
}

/// What the feed said last.
#[derive(Clone, Debug)]
enum Members {
    /// Nothing yet, or something may have been missed after this moment.
    Unknown {
        after: Instant,
    },
    Are(Arc<BTreeSet<String>>),
}

/// A moment in the feed, before a caller was authorized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(u64);

/// One stream's interest in its caller's rights.
#[derive(Debug)]
pub(crate) struct RightsWatcher {
    workspace_id: Uuid,
    subject: String,
    rights: Rights,
    members: watch::Receiver<Members>,
}

impl Rights {
    /// The moment now.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.lock().changes)
    }

    /// Watches the rights of `subject`, who was authorized after `since`, until the watcher is dropped.
    pub(crate) fn enter(&self, workspace_id: Uuid, subject: &str, since: Moment) -> RightsWatcher {
        let mut state = self.lock();
        let may_have_missed = state.changes != since.0;
        let place = state.workspaces.entry(workspace_id).or_insert_with(|| Watched {
            watchers: 0,
            members: watch::Sender::new(Members::Unknown { after: Instant::now() }),
        });
        place.watchers += 1;
        let mut members = place.members.subscribe();
        if may_have_missed {
            members.mark_changed();
        }
        RightsWatcher { workspace_id, subject: subject.to_owned(), rights: self.clone(), members }
    }

    fn changed(&self, workspace_id: Uuid, entry: Option<RightsEntry>) {
        let mut state = self.lock();
        state.changes += 1;
        // A workspace goes after its sandboxes, and each stream ends with its own.
        let gone = entry.as_ref().is_some_and(|entry| entry.gone);
        if let Some(watched) = state.workspaces.get(&workspace_id).filter(|_| !gone) {
            watched.members.send_replace(match entry {
                Some(entry) => Members::Are(Arc::new(entry.members.into_keys().collect())),
                None => Members::Unknown { after: Instant::now() },
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Rights {
    const BUCKET: Bucket = Bucket::Rights;

    fn stored(&self, Stored { key, value, .. }: Stored) -> Heard {
        match key.parse() {
            Ok(RightsKey::Beat(_)) => return Heard::Beat,
            Ok(RightsKey::Workspace(id)) => self.changed(id, value.and_then(|value| RightsEntry::decode(value).ok())),
            Err(_) => tracing::error!("the feed of rights has a key that cannot be read; left out"),
        }
        Heard::Other
    }

    fn missed(&self, after: Instant) {
        let mut state = self.lock();
        state.changes += 1;
        for watched in state.workspaces.values() {
            watched.members.send_replace(Members::Unknown { after });
        }
    }
}

impl RightsWatcher {
    /// Waits until the caller has to be authorized again, and says by when.
    pub(crate) async fn in_doubt(&mut self) -> Instant {
        loop {
            // Fails only if the sender is gone, and it is kept as long as this watcher is there.
            if self.members.changed().await.is_err() {
                return std::future::pending().await;
            }
            let now = Instant::now();
            let after = match &*self.members.borrow_and_update() {
                Members::Unknown { after } => *after,
                Members::Are(members) if members.contains(&self.subject) => continue,
                Members::Are(_) => now,
            };
            return (after + BOUND).max(now + QUESTION);
        }
    }
}

impl Drop for RightsWatcher {
    fn drop(&mut self) {
        let mut state = self.rights.lock();
        if let Some(watched) = state.workspaces.get_mut(&self.workspace_id) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                state.workspaces.remove(&self.workspace_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use roadstead_proto::api::v1::WorkspaceRole;

    use super::*;

    const WORKSPACE: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn members(subjects: &[&str]) -> Option<RightsEntry> {
        let members = subjects.iter().map(|&subject| (subject.to_owned(), WorkspaceRole::User.into())).collect();
        Some(RightsEntry { members, ..Default::default() })
    }

    fn in_doubt(watcher: &mut RightsWatcher) -> bool {
        watcher.in_doubt().now_or_never().is_some()
    }

    #[tokio::test]
    async fn who_is_no_longer_a_member_is_in_doubt_and_nobody_else() {
        let rights = Rights::default();
        let mut alice = rights.enter(WORKSPACE, "alice", rights.now());
        let mut bob = rights.enter(WORKSPACE, "bob", rights.now());
        let mut carol = rights.enter(OTHER, "carol", rights.now());
        assert!(![&mut alice, &mut bob, &mut carol].into_iter().any(in_doubt));

        rights.changed(WORKSPACE, members(&["alice", "bob"]));
        assert!(![&mut alice, &mut bob, &mut carol].into_iter().any(in_doubt));
        rights.changed(WORKSPACE, members(&["alice"]));
        assert!(!in_doubt(&mut alice) && in_doubt(&mut bob) && !in_doubt(&mut carol));
        assert!(!in_doubt(&mut bob), "once for each change");
    }

    #[tokio::test]
    async fn a_gap_puts_everybody_in_doubt() {
        let rights = Rights::default();
        let mut alice = rights.enter(WORKSPACE, "alice", rights.now());
        rights.changed(WORKSPACE, members(&["alice"]));
        rights.missed(Instant::now());
        assert!(in_doubt(&mut alice));
        rights.changed(WORKSPACE, None);
        assert!(in_doubt(&mut alice));
        rights.changed(WORKSPACE, Some(RightsEntry { gone: true, ..Default::default() }));
        assert!(!in_doubt(&mut alice), "its sandbox has gone before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubt_is_settled_within_five_seconds_of_the_last_sound_moment() {
        let (rights, second) = (Rights::default(), Duration::from_secs(1));
        let mut alice = rights.enter(WORKSPACE, "alice", rights.now());
        let whole = Instant::now();
        tokio::time::advance(3 * second).await;
        rights.missed(whole);
        assert_eq!(alice.in_doubt().await, whole + 5 * second);
        tokio::time::advance(3 * second).await;
        rights.missed(whole);
        assert_eq!(alice.in_doubt().await, whole + 7 * second, "there is time for one question");
        rights.changed(WORKSPACE, members(&["bob"]));
        assert_eq!(alice.in_doubt().await, whole + 11 * second);
    }

    #[tokio::test]
    async fn a_change_between_authorization_and_entry_is_not_missed() {
        let rights = Rights::default();
        let authorized = rights.now();
        rights.changed(WORKSPACE, members(&[]));
        assert!(in_doubt(&mut rights.enter(WORKSPACE, "alice", authorized)));
        assert!(!in_doubt(&mut rights.enter(WORKSPACE, "alice", rights.now())));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_workspaces_that_nobody_watches() {
        let rights = Rights::default();
        let watchers = (rights.enter(WORKSPACE, "a", rights.now()), rights.enter(WORKSPACE, "b", rights.now()));
        drop(watchers.0);
        assert_eq!(rights.lock().workspaces.len(), 1);
        drop(watchers.1);
        assert!(rights.lock().workspaces.is_empty());
    }
}
