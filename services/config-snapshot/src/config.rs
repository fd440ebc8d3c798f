//! Settings of the role.

use clap::{Args, ValueEnum};
use roadstead_policy::compose::{Deployment, FailureMode};
use roadstead_service_kit::settings::{AdminSettings, BrokerSettings, DatabaseSettings, KeysSettings};

/// Builds the effective configuration and the provider environment of each sandbox, for push and for poll alike. Any
/// number of replicas share the work.
#[derive(Args, Clone, Debug)]
pub struct Config {
    #[command(flatten)]
    pub broker: BrokerSettings,
    #[command(flatten)]
    pub database: DatabaseSettings,
    #[command(flatten)]
    pub keys: KeysSettings,
    #[command(flatten)]
    pub admin: AdminSettings,
    /// Snapshots that are built at the same time. A quarter of the slots, at least two, is kept for changes of single
    /// sandboxes, so that a change of the whole fleet does not hold them up
    #[arg(long, env = "ROADSTEAD_BUILD_SLOTS", value_name = "COUNT", default_value_t = 24,
        value_parser = clap::value_parser!(u16).range(4..=256))]
    pub build_slots: u16,
    /// Requests for a configuration that are answered at the same time; more are refused for the moment
    #[arg(long, env = "ROADSTEAD_CONFIG_READ_SLOTS", value_name = "COUNT", default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub config_read_slots: u16,
    /// Snapshots per second that the sweeper compares with Postgres while nothing is known to be lost
    #[arg(long, env = "ROADSTEAD_SWEEP_RATE", value_name = "COUNT", default_value_t = 25,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sweep_rate: u32,
    /// What supervisors do with a configuration that they cannot take
    #[arg(long, env = "ROADSTEAD_POLICY_VALIDATION_FAILURE_MODE", value_name = "MODE", default_value = "fail-closed")]
    pub policy_validation_failure_mode: Mode,
}

/// A [`FailureMode`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Close the sandbox's network.
    FailClosed,
    /// Go on with the last one that they took.
    RetainLastValid,
}

impl Config {
    /// What the settings say for every sandbox.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        let failure_mode = match self.policy_validation_failure_mode {
            Mode::FailClosed => FailureMode::FailClosed,
            Mode::RetainLastValid => FailureMode::RetainLastValid,
        };
        Deployment { failure_mode, ..Deployment::default() }
    }

    /// Slots for changes of single sandboxes, and for the rest.
    #[must_use]
    pub fn lanes(&self) -> Lanes {
        let all = usize::from(self.build_slots);
        let one = (all / 4).max(2);
        Lanes { one, fleet: all - one }
    }
}

/// How the build slots are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    pub one: usize,
    pub fleet: usize,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        config: Config,
    }

    fn config(arguments: &[&str]) -> Config {
        let given = ["x", "--keys", "f"].iter().chain(arguments);
        Line::parse_from(given).config
    }

    #[test]
    fn single_sandboxes_have_slots_of_their_own() {
        assert_eq!(config(&[]).lanes(), Lanes { one: 6, fleet: 18 });
        assert_eq!(config(&["--build-slots=4"]).lanes(), Lanes { one: 2, fleet: 2 });
    }

    #[test]
    fn the_failure_mode_reaches_the_deployment() {
        assert_eq!(config(&[]).deployment().failure_mode, FailureMode::FailClosed);
        let retain = config(&["--policy-validation-failure-mode=retain-last-valid"]);
        assert_eq!(retain.deployment().failure_mode, FailureMode::RetainLastValid);
    }
}
