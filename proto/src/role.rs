//! The roles a process can have: each has its own broker user, keys and grants.

use std::fmt;

/// A role of the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Edge,
    Admission,
    ConfigSnapshot,
    Watch,
    SupervisorBridge,
    /// A person at the operator's commands; holds no service.
    Operator,
}

impl Role {
    /// All roles, services first.
    pub const ALL: [Self; 6] =
        [Self::Edge, Self::Admission, Self::ConfigSnapshot, Self::Watch, Self::SupervisorBridge, Self::Operator];

    /// The name used for subcommands, files and the broker's inboxes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Admission => "admission",
            Self::ConfigSnapshot => "config-snapshot",
            Self::Watch => "watch",
            Self::SupervisorBridge => "supervisor-bridge",
            Self::Operator => "operator",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// First token of the inboxes that only this role may read.
    #[must_use]
    pub fn inbox_prefix(self) -> String {
        format!("_INBOX_{}", self.name())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
