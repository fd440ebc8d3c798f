//! Whether the projection says that a sandbox's session is over. Pure.

use roadstead_proto::api::v1::SandboxPhase;
use roadstead_proto::internal::SandboxEntry;

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

    /// Whether the entry says that the sandbox stops, is deleted, or is gone, and is not of the past.
    pub fn is_over(&mut self, entry: &SandboxEntry) -> bool {
        let epoch = *self.epoch.get_or_insert(entry.epoch);
        // After a restore of the database versions may be lower; then the epoch is higher.
        let of_the_past = entry.version < self.version && entry.epoch <= epoch;
        if entry.gone {
            // Final for an id, whatever its version.
            return true;
        }
        let phase = entry.sandbox.as_ref().and_then(|sandbox| sandbox.status.as_ref()).map(|status| status.phase());
        !of_the_past && matches!(phase, Some(SandboxPhase::Stopping | SandboxPhase::Stopped | SandboxPhase::Deleting))
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
            assert_eq!(Known::registered(5).is_over(&entry(1, 6, phase)), over, "{phase:?}");
        }
    }

    #[test]
    fn what_was_before_the_registration_does_not_count() {
        let mut known = Known::registered(5);
        assert!(!known.is_over(&entry(1, 4, SandboxPhase::Stopped)));
        assert!(known.is_over(&entry(1, 5, SandboxPhase::Stopped)));
    }

    #[test]
    fn a_lower_version_of_a_higher_epoch_counts() {
        let mut known = Known::registered(5);
        assert!(!known.is_over(&entry(1, 5, SandboxPhase::Ready)));
        assert!(known.is_over(&entry(2, 3, SandboxPhase::Stopping)));
    }

    #[test]
    fn gone_is_final() {
        let gone = SandboxEntry { gone: true, ..Default::default() };
        assert!(Known::registered(5).is_over(&gone));
    }
}
