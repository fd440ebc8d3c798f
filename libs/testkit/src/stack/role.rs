//! The five roles, as the program's command line knows them.

/// A role of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Every write.
    Admission,
    /// Configurations and environments.
    ConfigSnapshot,
    /// Reads and the projection.
    Watch,
    /// The supervisors' door.
    SupervisorBridge,
    /// The clients' door.
    Edge,
}

impl Role {
    /// All, in the order in which they are started.
    pub const ALL: [Self; 5] = [Self::Admission, Self::ConfigSnapshot, Self::Watch, Self::SupervisorBridge, Self::Edge];

    /// Its subcommand.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::ConfigSnapshot => "config-snapshot",
            Self::Watch => "watch",
            Self::SupervisorBridge => "supervisor-bridge",
            Self::Edge => "edge",
        }
    }

    /// Its user in Postgres, if it has one.
    #[must_use]
    pub const fn database_user(self) -> Option<&'static str> {
        match self {
            Self::Admission => Some("roadstead_admission"),
            Self::ConfigSnapshot => Some("roadstead_config_snapshot"),
            Self::Watch => Some("roadstead_watch"),
            Self::SupervisorBridge | Self::Edge => None,
        }
    }

    pub(crate) const fn has_database(self) -> bool {
        self.database_user().is_some()
    }

    pub(crate) const fn listens(self) -> bool {
        matches!(self, Self::SupervisorBridge | Self::Edge)
    }
}
