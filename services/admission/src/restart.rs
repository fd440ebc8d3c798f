//! When a main process that has ended is restarted. Pure.

use std::time::Duration;

use roadstead_proto::api::v1::SandboxRestartPolicy;

/// A run this long makes the next restart a first one again.
pub const STEADY: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(180);

/// The pause before the restart of a main process that ended with this code, after so many restarts in a row; none if
/// the policy wants no restart.
#[must_use]
pub fn pause(policy: SandboxRestartPolicy, exit_code: i32, restarts: u32) -> Option<Duration> {
    let wanted = match policy {
        SandboxRestartPolicy::Always => true,
        SandboxRestartPolicy::OnFailure => exit_code != 0,
        SandboxRestartPolicy::Never | SandboxRestartPolicy::Unspecified => false,
    };
    wanted.then(|| match restarts {
        0 => Duration::ZERO,
        more => FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(more - 1)).min(LONGEST_PAUSE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_at_once_and_pauses_then_double_up_to_three_minutes() {
        let seconds: Vec<_> =
            (0..11).map(|restarts| pause(SandboxRestartPolicy::Always, 0, restarts).unwrap().as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 64, 128, 180, 180]);
        assert_eq!(pause(SandboxRestartPolicy::OnFailure, 1, u32::MAX), Some(LONGEST_PAUSE));
    }

    #[test]
    fn the_policy_says_which_end_is_followed_by_a_restart() {
        use SandboxRestartPolicy::{Always, Never, OnFailure, Unspecified};
        for (policy, after_success, after_failure) in
            [(Unspecified, false, false), (Never, false, false), (OnFailure, false, true), (Always, true, true)]
        {
            assert_eq!(pause(policy, 0, 0).is_some(), after_success, "{policy:?}");
            for code in [1, 137, -1] {
                assert_eq!(pause(policy, code, 0).is_some(), after_failure, "{policy:?} {code}");
            }
        }
    }
}
