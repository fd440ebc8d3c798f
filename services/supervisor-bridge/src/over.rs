//! Whether what the projection says of a sandbox ends its session. Pure.

use roadstead_proto::api::v1::SandboxPhase;
use roadstead_proto::internal::SandboxEntry;

use crate::end::End;

/// What is known of the sandbox's row.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The row's version with this session. The projection may still show an earlier one.
    pub version: u64,
    /// The epoch of the first entry that was seen.
    pub epoch: Option<u64>,
}

impl Known {
    /// What is known after a registration.
    #[must_use]
    pub const fn registered(version: u64) -> Self {
        Self { version, epoch: None }
    }

    /// Why the session ends, if it does: the entry says that the sandbox stops, is deleted, or is gone, and is not of
    /// the past; or the database was restored, and its row may know nothing of this session.
    pub fn end(&mut self, entry: &SandboxEntry) -> Option<End> {
        let epoch = *self.epoch.get_or_insert(entry.epoch);
        if entry.gone {
            // Final for an id, whatever its version.
            return Some(End::SandboxOver);
        }
        let restored = entry.epoch > epoch;
        let phase = entry.sandbox.as_ref().and_then(|sandbox| sandbox.status.as_ref()).map(|status| status.phase());
        let stops = matches!(phase, Some(SandboxPhase::Stopping | SandboxPhase::Stopped | SandboxPhase::Deleting));
        // Versions of a restored database may be lower.
        if stops && (restored || entry.version >= self.version) {
            return Some(End::SandboxOver);
        }
        restored.then_some(End::Restored)
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::{Sandbox, SandboxStatus};

    use super::*;

    fn entry(epoch: u64, version: u64, phase: SandboxPhase) -> SandboxEntry {
        let status = Some(SandboxStatus { phase: phase.into(), ..Default::default() });
        let sandbox = Some(Sandbox { status, ..Default::default() });
        SandboxEntry { epoch, version, sandbox, ..Default::default() }
    }

    #[test]
    fn a_sandbox_that_stops_or_goes_is_over() {
        use SandboxPhase::{Completed, Deleting, Error, Provisioning, Ready, Starting, Stopped, Stopping};
        for (phase, over) in [
            (Provisioning, false),
            (Ready, false),
            (Starting, false),
            (Error, false),
            (Completed, false),
            (Stopping, true),
            (Stopped, true),
            (Deleting, true),
        ] {
            let end = over.then_some(End::SandboxOver);
            assert_eq!(Known::registered(5).end(&entry(1, 6, phase)), end, "{phase:?}");
        }
    }

    #[test]
    fn what_was_before_the_registration_does_not_count() {
        let mut known = Known::registered(5);
        assert_eq!(known.end(&entry(1, 4, SandboxPhase::Stopped)), None);
        assert_eq!(known.end(&entry(1, 5, SandboxPhase::Stopped)), Some(End::SandboxOver));
    }

    #[test]
    fn a_lower_version_of_a_higher_epoch_counts() {
        let mut known = Known::registered(5);
        assert_eq!(known.end(&entry(1, 5, SandboxPhase::Ready)), None);
        assert_eq!(known.end(&entry(2, 3, SandboxPhase::Stopping)), Some(End::SandboxOver));
    }

    #[test]
    fn a_restored_database_is_told_of_the_session_anew() {
        let mut known = Known::registered(5);
        assert_eq!(known.end(&entry(3, 5, SandboxPhase::Ready)), None);
        assert_eq!(known.end(&entry(2, 9, SandboxPhase::Ready)), None);
        assert_eq!(known.end(&entry(4, 2, SandboxPhase::Ready)), Some(End::Restored));
    }

    #[test]
    fn gone_is_final() {
        let gone = SandboxEntry { gone: true, ..Default::default() };
        assert_eq!(Known::registered(5).end(&gone), Some(End::SandboxOver));
    }
}
