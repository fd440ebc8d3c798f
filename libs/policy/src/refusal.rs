//! Why a policy, a setting or a composition is refused.

use std::fmt;

/// Longest piece of authored text that a refusal repeats, in bytes.
const IDENTIFIER_LIMIT: usize = 64;

/// Which status a refusal becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The request is wrong whatever the state: `INVALID_ARGUMENT`.
    Invalid,
    /// The request does not fit the state: `FAILED_PRECONDITION`.
    Precondition,
}

/// A refusal: the field, and the rule it breaks with its limit. Its text holds no authored value but identifiers in
/// the field path, each at most 64 bytes of a safe alphabet, and stays under 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Refusal {
    /// Path of the field, such as `policy.network_policies[web].endpoints[0].port`.
    pub field: String,
    pub reason: Reason,
}

/// The rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("more than {limit} {what}")]
    TooMany { what: &'static str, limit: usize },
    #[error("longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("required")]
    Missing,
    #[error("not well-formed")]
    Malformed,
    #[error("the prefix `_provider_` is reserved")]
    ReservedName,
    #[error("must be from 1 to 65535")]
    PortOutOfRange,
    #[error("a wildcard must leave at least two labels")]
    WildcardTooBroad,
    #[error("must be an absolute path without `..`")]
    PathNotPlain,
    #[error("the whole file system may not be writable")]
    PathTooBroad,
    #[error("the workload may not run as root")]
    RootIdentity,
    #[error("numbers must be finite and every value must have a kind")]
    StructNotCanonical,
    #[error("may not change after creation")]
    Fixed,
    #[error("paths may be added after creation, not removed")]
    PathRemoved,
    #[error("matches the same requests as another endpoint but treats them differently in `{difference}`")]
    Ambiguous { difference: &'static str },
    #[error(
        "a credentialed endpoint uses L4-only; configure L7 inspection or explicitly set \
         allow_uninspected_credentials: true"
    )]
    Uninspected,
    #[error("a credential can only be bound to a host")]
    BindingWithoutHost,
    #[error("binds a provider that is not attached to the sandbox")]
    ProviderNotAttached,
    #[error("a global policy may not bind credentials")]
    BindingInGlobalPolicy,
    #[error("loopback, link-local and metadata addresses are always blocked")]
    AlwaysBlocked,
    #[error("either binaries or any_binary is required, not both")]
    BinariesOrAny,
    #[error("the policy has no such rule")]
    NoSuchRule,
    #[error("the policy has no such endpoint")]
    NoSuchEndpoint,
    #[error("the rule names no such binary")]
    NoSuchBinary,
    #[error("several endpoints match; name the path too")]
    SeveralEndpoints,
    #[error("would widen what is named: all binaries of the rule are affected, so name exactly these")]
    OtherBinaries,
    #[error("would widen what is named: all ports of the endpoint are affected, so name exactly these")]
    OtherPorts,
    #[error("would widen what other binaries of the rule may reach; name them too, or use a rule of its own")]
    WidensBinaries,
    #[error("would let a new binary reach what else the rule holds; name that too, or use a rule of its own")]
    WidensEndpoints,
    #[error("stands already and is treated differently in `{difference}`; remove it first")]
    StandsOtherwise { difference: &'static str },
    #[error("the endpoint has no L7 inspection, so no rules on requests")]
    NotInspected,
    #[error("the endpoint allows nothing that could be denied")]
    NothingAllowed,
    #[error("an access preset of this protocol cannot be joined with rules")]
    PresetNotRules,
    #[error("two providers would set the same environment key")]
    EnvironmentKeyTaken,
    #[error("not a registered setting")]
    UnknownSetting,
    #[error("reserved")]
    ReservedSetting,
    #[error("must be {expected}")]
    WrongKind { expected: &'static str },
}

impl Reason {
    /// The status this reason becomes.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Ambiguous { .. }
            | Self::Uninspected
            | Self::BindingWithoutHost
            | Self::ProviderNotAttached
            | Self::BindingInGlobalPolicy
            | Self::NoSuchRule
            | Self::NoSuchEndpoint
            | Self::NoSuchBinary
            | Self::SeveralEndpoints
            | Self::OtherBinaries
            | Self::OtherPorts
            | Self::WidensBinaries
            | Self::WidensEndpoints
            | Self::StandsOtherwise { .. }
            | Self::NotInspected
            | Self::NothingAllowed
            | Self::PresetNotRules
            | Self::EnvironmentKeyTaken => Class::Precondition,
            _ => Class::Invalid,
        }
    }
}

impl Refusal {
    pub(crate) fn new(field: impl Into<String>, reason: Reason) -> Self {
        Self { field: field.into(), reason }
    }

    /// The status this refusal becomes.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.reason.class()
    }
}

/// Where in a message a check stands; turned into text only when it fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root(&'static str),
    Field(&'a Path<'a>, &'static str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(crate) const fn field(&'a self, name: &'static str) -> Self {
        Self::Field(self, name)
    }

    pub(crate) const fn index(&'a self, at: usize) -> Self {
        Self::Index(self, at)
    }

    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    pub(crate) fn refuse(&self, reason: Reason) -> Refusal {
        Refusal::new(self.to_string(), reason)
    }

    /// Refuses text longer than `limit` bytes.
    pub(crate) fn at_most(&self, text: &str, limit: usize) -> Result<(), Refusal> {
        if text.len() > limit { Err(self.refuse(Reason::TooLong { limit })) } else { Ok(()) }
    }

    /// Refuses more than `limit` of `what`, counted in all that the field holds.
    pub(crate) fn at_most_of(&self, what: &'static str, count: usize, limit: usize) -> Result<(), Refusal> {
        if count > limit { Err(self.refuse(Reason::TooMany { what, limit })) } else { Ok(()) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => formatter.write_str(name),
            Self::Field(parent, name) => write!(formatter, "{parent}.{name}"),
            Self::Index(parent, at) => write!(formatter, "{parent}[{at}]"),
            Self::Key(parent, key) => write!(formatter, "{parent}[{}]", identifier(key)),
        }
    }
}

/// Authored text as it may appear in a message: as it is if short and plain, else a stand-in.
pub(crate) fn identifier(text: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    let fits = (1..=IDENTIFIER_LIMIT).contains(&text.len());
    if fits && text.bytes().all(plain) { text } else { "…" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_refusal_is_short_whatever_was_authored(key in ".{0,3000}", at in any::<usize>()) {
            let root = Path::Root("policy");
            let (rules, endpoints);
            rules = root.field("network_policies");
            let rule = rules.key(&key);
            endpoints = rule.field("endpoints");
            let text = endpoints.index(at).refuse(Reason::Uninspected).to_string();
            prop_assert!(text.len() <= 512);
            prop_assert!(!text.contains(char::is_control));
        }
    }

    #[test]
    fn a_plain_identifier_is_named_and_other_text_is_not() {
        assert_eq!(identifier("github-api"), "github-api");
        assert_eq!(identifier("a\nb"), "…");
        assert_eq!(identifier(&"x".repeat(65)), "…");
    }
}
