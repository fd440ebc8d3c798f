//! Where a command is addressed and which scope its claim has.

use roadstead_proto::api::datamodel::WorkspaceSelector;

use super::ScopeRule;
use crate::refusal::Refusal;
use crate::validate::{name, selector};

/// What a request says it is about.
#[derive(Clone, Copy, Debug)]
pub enum Address<'a> {
    /// An object of a workspace.
    Workspace(Option<&'a WorkspaceSelector>),
    /// The gateway as a whole.
    Global(Option<&'a WorkspaceSelector>),
    /// A workspace itself, by its name.
    Target(&'a str),
    /// The caller's own sandbox.
    OwnSandbox,
}

/// Where a command acts: scope of its claim and of the rights it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// In the workspace of that name.
    Workspace(&'a str),
    /// On the platform, under that name in the ledger; for platform admins.
    Platform(&'a str),
    /// On the caller's own sandbox.
    OwnSandbox,
}

impl<'a> Scope<'a> {
    /// Applies a method's rule to what the request says.
    ///
    /// # Errors
    /// `Invalid` if the selector has not the shape that the method needs.
    pub fn of(rule: ScopeRule, address: Address<'a>) -> Result<Self, Refusal> {
        match (rule, address) {
            (ScopeRule::TargetName, Address::Target(target)) => {
                name::given("name", target)?;
                Ok(Self::Platform(target))
            }
            (ScopeRule::WorkspaceOrGlobal, Address::Global(scope)) => {
                selector::absent(scope)?;
                Ok(Self::Platform(""))
            }
            (ScopeRule::Workspace | ScopeRule::WorkspaceOrGlobal, Address::Workspace(scope)) => {
                Ok(Self::Workspace(selector::workspace(scope)?))
            }
            // A method's row and its operation disagree: nothing may run.
            _ => Err(Refusal::Internal),
        }
    }

    /// The scope's name in the ledger.
    #[must_use]
    pub const fn name(self) -> &'a str {
        match self {
            Self::Workspace(name) | Self::Platform(name) => name,
            Self::OwnSandbox => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roadstead_proto::api::datamodel::workspace_selector::Selection;

    use super::*;

    fn named(name: &str) -> WorkspaceSelector {
        WorkspaceSelector { selection: Some(Selection::Workspace(name.into())) }
    }

    proptest! {
        #[test]
        fn the_scope_is_the_name_that_the_request_gives(name in "[a-z]{1,19}") {
            let selector = named(&name);
            for rule in [ScopeRule::Workspace, ScopeRule::WorkspaceOrGlobal] {
                let scope = Scope::of(rule, Address::Workspace(Some(&selector)));
                prop_assert_eq!(scope, Ok(Scope::Workspace(name.as_str())));
            }
            let scope = Scope::of(ScopeRule::TargetName, Address::Target(&name));
            prop_assert_eq!(scope, Ok(Scope::Platform(name.as_str())));
        }
    }

    #[test]
    fn a_global_call_has_the_empty_scope_and_no_selector() {
        assert_eq!(Scope::of(ScopeRule::WorkspaceOrGlobal, Address::Global(None)), Ok(Scope::Platform("")));
        let selector = named("w");
        assert!(Scope::of(ScopeRule::WorkspaceOrGlobal, Address::Global(Some(&selector))).is_err());
    }

    #[test]
    fn an_address_that_the_rule_does_not_know_is_refused() {
        assert_eq!(Scope::of(ScopeRule::Workspace, Address::Global(None)), Err(Refusal::Internal));
        assert_eq!(Scope::of(ScopeRule::Workspace, Address::OwnSandbox), Err(Refusal::Internal));
        assert_eq!(Scope::of(ScopeRule::TargetName, Address::Workspace(None)), Err(Refusal::Internal));
    }

    #[test]
    fn a_target_has_a_name() {
        assert!(matches!(Scope::of(ScopeRule::TargetName, Address::Target("")), Err(Refusal::Invalid { .. })));
    }
}
