//! Subjects of the broker, built and parsed only here (design section 3). They never hold user text (D12).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::id;
use crate::method::Method;

/// Header that carries the inbox for the answer: a JetStream publish needs the reply field for its own ack.
pub const REPLY_HEADER: &str = "Roadstead-Reply";

/// Renewals of liveness rows; core request to any admission.
pub const RENEW: &str = "roadstead.admission.renew";

/// Postgres's clock, as any admission tells it: empty request, `internal::ClockReading` back. Doors check theirs (D2).
pub const CLOCK: &str = "roadstead.admission.clock";

/// Sandboxes by id, as they stand in Postgres: `internal::SandboxEntriesRequest` to the watch role. A hub asks when a
/// stream begins and after a gap (D7).
pub const READ_SANDBOX_ENTRIES: &str = "roadstead.read.SandboxEntries";

/// A command of a user, on the work queue `COMMANDS`.
#[must_use]
pub fn command(method: Method) -> String {
    format!("roadstead.command.{}", method.name())
}

/// A report of a sandbox or about its session, on the work queue `REPORTS`.
#[must_use]
pub fn report(report: Report) -> String {
    format!("roadstead.report.{}", report.name())
}

/// A read answered by the watch role.
#[must_use]
pub fn read(method: Method) -> String {
    format!("roadstead.read.{}", method.name())
}

/// A configuration read answered by config-snapshot. The token before the name says which kind of principal the
/// caller may present; only the door of that kind may publish there (D9).
#[must_use]
pub fn config(door: Door, call: ConfigCall) -> String {
    format!("roadstead.config.{}.{}", door.name(), call.name())
}

/// Where a question of [`read`] or [`config`] is put to every replica, instead of to one of them.
#[must_use]
pub fn to_all(subject: &str) -> String {
    format!("{subject}.all")
}

/// What a sandbox says of a session that another bridge holds: `internal::ReadRequest` to that bridge.
#[must_use]
pub fn observe(bridge_id: Uuid) -> String {
    format!("roadstead.bridge.{bridge_id}.ReportProviderReadiness")
}

/// [`observe`] of every bridge.
pub const OBSERVE_ANY: &str = "roadstead.bridge.*.ReportProviderReadiness";

/// What each bridge tells the others of itself: `internal::BridgePresence`.
pub const PRESENCE: &str = "roadstead.bridge.presence";

/// An operator's request to even the sessions of all bridges out: empty, `internal::Rebalanced` back from any of them.
pub const REBALANCE: &str = "roadstead.bridge.rebalance";

/// An operator's request to admission.
#[must_use]
pub fn admin(call: AdminCall) -> String {
    format!("roadstead.admin.{}", call.name())
}

/// Declares an enum whose variants are tokens of subjects.
macro_rules! tokens {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $token:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The token in a subject.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $token),+ }
            }

            /// The value of that token.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($token => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

tokens! {
    /// What may travel on `REPORTS`: the unary methods of a sandbox, and what a bridge says of a session.
    Report {
        ReportPolicyStatus = "ReportPolicyStatus",
        ReportSandboxConfiguration = "ReportSandboxConfiguration",
        ReportMainProcessExit = "ReportMainProcessExit",
        FinalizeMainProcessExit = "FinalizeMainProcessExit",
        IssueSandboxToken = "IssueSandboxToken",
        RefreshSandboxToken = "RefreshSandboxToken",
        /// A supervisor's policy sync.
        UpdateConfig = "UpdateConfig",
        ReportEndpointStatus = "ReportEndpointStatus",
        RegisterSession = "RegisterSession",
        SessionResult = "SessionResult",
        SessionReadiness = "SessionReadiness",
        EndSession = "EndSession",
    }
}

tokens! {
    /// Which door a configuration read comes through.
    Door { User = "user", Sandbox = "sandbox" }
}

tokens! {
    /// Configuration reads.
    ConfigCall {
        GetSandboxConfig = "GetSandboxConfig",
        GetSandboxProviderEnvironment = "GetSandboxProviderEnvironment",
        GetSandboxProviderStatus = "GetSandboxProviderStatus",
        /// The entry that stands, for a session that begins.
        Bootstrap = "Bootstrap",
        /// Whether a sandbox's token is of its present run.
        Standing = "Standing",
    }
}

tokens! {
    /// Operators' requests.
    AdminCall {
        MintSandboxToken = "MintSandboxToken",
        ListUnresolved = "ListUnresolved",
        GetCommand = "GetCommand",
        SettleCommand = "SettleCommand",
        ReactivateWorkspace = "ReactivateWorkspace",
    }
}

tokens! {
    /// Kinds of objects that marks speak of.
    Kind {
        Workspace = "workspace",
        Member = "member",
        Provider = "provider",
        Sandbox = "sandbox",
        /// Global policy and settings; the object id is nil.
        Global = "global",
    }
}

tokens! {
    /// Lanes of the builders: `One` for a change of one sandbox, `Fleet` for what an expansion marked.
    Lane { One = "one", Fleet = "fleet" }
}

/// Why a subject could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the subject is not one of this stream")]
pub struct Malformed;

/// An object that changed: subject of the stream `CHANGES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Changed {
    pub kind: Kind,
    /// Nil for what belongs to no workspace.
    pub workspace_id: Uuid,
    pub object_id: Uuid,
}

/// A sandbox whose snapshot is out of date: subject of the stream `DIRTY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dirty {
    pub lane: Lane,
    pub workspace_id: Uuid,
    pub sandbox_id: Uuid,
}

impl fmt::Display for Changed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "roadstead.change.{}.{}.{}", self.kind.name(), self.workspace_id, self.object_id)
    }
}

impl fmt::Display for Dirty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "roadstead.dirty.{}.{}.{}", self.lane.name(), self.workspace_id, self.sandbox_id)
    }
}

impl FromStr for Changed {
    type Err = Malformed;

    fn from_str(subject: &str) -> Result<Self, Malformed> {
        let [kind, workspace_id, object_id] = tokens_after(subject, "roadstead.change.")?;
        Ok(Self {
            kind: Kind::from_name(kind).ok_or(Malformed)?,
            workspace_id: uuid(workspace_id)?,
            object_id: uuid(object_id)?,
        })
    }
}

impl FromStr for Dirty {
    type Err = Malformed;

    fn from_str(subject: &str) -> Result<Self, Malformed> {
        let [lane, workspace_id, sandbox_id] = tokens_after(subject, "roadstead.dirty.")?;
        Ok(Self {
            lane: Lane::from_name(lane).ok_or(Malformed)?,
            workspace_id: uuid(workspace_id)?,
            sandbox_id: uuid(sandbox_id)?,
        })
    }
}

/// The command's method, from a subject of `COMMANDS`.
pub fn parse_command(subject: &str) -> Result<Method, Malformed> {
    let [name] = tokens_after(subject, "roadstead.command.")?;
    Method::from_name(name).ok_or(Malformed)
}

/// The report's name, from a subject of `REPORTS`.
pub fn parse_report(subject: &str) -> Result<Report, Malformed> {
    let [name] = tokens_after(subject, "roadstead.report.")?;
    Report::from_name(name).ok_or(Malformed)
}

/// Splits what follows `prefix` into exactly `N` tokens.
pub(crate) fn tokens_after<'a, const N: usize>(subject: &'a str, prefix: &str) -> Result<[&'a str; N], Malformed> {
    let rest = subject.strip_prefix(prefix).ok_or(Malformed)?;
    rest.split('.').collect::<Vec<_>>().try_into().map_err(|_| Malformed)
}

/// Accepts the one spelling that we write: hyphenated and lower case.
pub(crate) fn uuid(text: &str) -> Result<Uuid, Malformed> {
    id::canonical(text).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_uuid() -> impl Strategy<Value = Uuid> {
        any::<u128>().prop_map(Uuid::from_u128)
    }

    proptest! {
        #[test]
        fn changed_survives_a_round_trip(kind in proptest::sample::select(Kind::ALL), w in any_uuid(), o in any_uuid()) {
            let changed = Changed { kind, workspace_id: w, object_id: o };
            prop_assert_eq!(changed.to_string().parse::<Changed>(), Ok(changed));
        }

        #[test]
        fn dirty_survives_a_round_trip(lane in proptest::sample::select(Lane::ALL), w in any_uuid(), s in any_uuid()) {
            let dirty = Dirty { lane, workspace_id: w, sandbox_id: s };
            prop_assert_eq!(dirty.to_string().parse::<Dirty>(), Ok(dirty));
        }

        #[test]
        fn other_text_is_refused(text in ".*") {
            prop_assert!(text.parse::<Changed>().is_err());
            prop_assert!(text.parse::<Dirty>().is_err());
            prop_assert!(parse_command(&text).is_err());
            prop_assert!(parse_report(&text).is_err());
        }
    }

    #[test]
    fn commands_and_reports_survive_a_round_trip() {
        for method in Method::ALL {
            assert_eq!(parse_command(&command(*method)), Ok(*method));
        }
        for name in Report::ALL {
            assert_eq!(parse_report(&report(*name)), Ok(*name));
        }
    }

    #[test]
    fn only_the_spelling_that_is_written_is_read() {
        let id = Uuid::from_u128(0xABCDEF);
        let good = Changed { kind: Kind::Sandbox, workspace_id: id, object_id: id }.to_string();
        for bad in
            [good.to_uppercase(), good.replace('-', ""), format!("{good}.x"), format!("x{good}"), good[..9].into()]
        {
            assert_eq!(bad.parse::<Changed>(), Err(Malformed), "{bad}");
        }
    }
}
