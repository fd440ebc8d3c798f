//! The methods of the public service and the rule each of them carries: who may call it.
//!
//! Both come from the protocol files. The enum is generated, so that code which treats methods one by one can match on
//! all of them; the rules are read from the method options when they are first asked for.

use std::fmt;
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor, Value};

use crate::api::FILE_DESCRIPTOR_SET;
use crate::api::options::AuthorizationRule;
pub use crate::api::v1::WorkspaceRole;

const SERVICE: &str = "openshell.v1.OpenShell";
const AUTHORIZATION_OPTION: &str = "openshell.options.v1.authorization";

macro_rules! methods {
    ($($name:ident),* $(,)?) => {
        /// A method of the public service, in the order of the protocol file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $(
                #[doc = concat!("`/openshell.v1.OpenShell/", stringify!($name), "`")]
                $name,
            )*
        }

        impl Method {
            /// Every method.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name in the protocol file, such as `CreateSandbox`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The method with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The path of a gRPC request, such as `/openshell.v1.OpenShell/CreateSandbox`.
            pub const fn full_path(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("/openshell.v1.OpenShell/", stringify!($name)),)*
                }
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/methods.rs"));

impl Method {
    /// Who may call this method.
    pub fn rule(self) -> MethodRule {
        self.facts().rule
    }

    /// The type of its request message.
    pub fn input_descriptor(self) -> MessageDescriptor {
        self.facts().input.clone()
    }

    /// Whether its request carries an id that makes a retry safe.
    pub fn has_request_id(self) -> bool {
        self.facts().input.get_field_by_name("request_id").is_some()
    }

    /// Checks at start-up that every rule can be read and that none is open by omission: a user needs a role and a
    /// scope, except to ask who they are (neither) and to read the gateway's settings (scope only).
    ///
    /// # Errors
    ///
    /// Names the first method whose rule is unreadable, or asks for too little or too much.
    pub fn check_rules() -> Result<(), RuleError> {
        FACTS.as_ref().map_err(Clone::clone)?;
        for &method in Self::ALL {
            let rule = method.rule();
            let role_and_scope = match (method, rule.auth) {
                (Self::GetCurrentUser, _) => (false, false),
                (Self::GetGatewayConfig, _) => (false, true),
                (_, AuthMode::Bearer | AuthMode::Dual) => (true, true),
                (_, AuthMode::Unauthenticated | AuthMode::Sandbox | AuthMode::Peer | AuthMode::Operator) => {
                    (false, false)
                }
            };
            if role_and_scope != (rule.workspace_role.is_some() || rule.platform_admin, rule.scope.is_some()) {
                return Err(RuleError::Demands(method));
            }
        }
        Ok(())
    }

    #[allow(clippy::panic, reason = "the descriptors are compiled in, and check_rules reports the error at start-up")]
    fn facts(self) -> &'static MethodFacts {
        match &*FACTS {
            Ok(facts) => &facts[self as usize],
            Err(error) => panic!("{error}"),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The kind of caller a method is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthMode {
    /// Anyone.
    Unauthenticated,
    /// A user.
    Bearer,
    /// A user, or the supervisor of the sandbox in question.
    Dual,
    /// A supervisor, for its own sandbox.
    Sandbox,
    /// Another replica of the gateway.
    Peer,
    /// An operator of the gateway.
    Operator,
}

/// Who may call a method, as its option in the protocol file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MethodRule {
    /// The kind of caller.
    pub auth: AuthMode,
    /// The lowest role a user must have in the workspace of the request.
    pub workspace_role: Option<WorkspaceRole>,
    /// Whether a user must administrate the whole platform.
    pub platform_admin: bool,
    /// The scope a user's token must have, such as `sandbox:write`.
    pub scope: Option<&'static str>,
}

/// A fault in the rules of the compiled-in protocol files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The descriptors cannot be decoded or lack what is looked up in them.
    #[error("the compiled-in descriptors are unusable: {0}")]
    Descriptors(String),
    /// The option of a method has a value without a meaning.
    #[error("the authorization option of {method} has no meaning: {value:?}")]
    Meaning {
        /// The method.
        method: Method,
        /// The value at fault.
        value: String,
    },
    /// The rule of a method asks users for a role or a scope too few or too many.
    #[error("the authorization option of {0} asks for too little or too much")]
    Demands(Method),
}

/// What the descriptors say of one method.
struct MethodFacts {
    input: MessageDescriptor,
    rule: MethodRule,
}

/// The facts of each method, in the order of [`Method::ALL`].
static FACTS: LazyLock<Result<Vec<MethodFacts>, RuleError>> = LazyLock::new(read_facts);

fn read_facts() -> Result<Vec<MethodFacts>, RuleError> {
    let unusable = |what: &str| RuleError::Descriptors(what.to_owned());

    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|error| unusable(&error.to_string()))?;
    let service = pool.get_service_by_name(SERVICE).ok_or_else(|| unusable("no public service"))?;
    let option = pool.get_extension_by_name(AUTHORIZATION_OPTION).ok_or_else(|| unusable("no option"))?;
    service
        .methods()
        .zip(Method::ALL)
        .map(|(descriptor, &method)| {
            let options = descriptor.options();
            let written = match &*options.get_extension(&option) {
                Value::Message(message) => message.transcode_to::<AuthorizationRule>().ok(),
                _ => None,
            };
            let written = written.ok_or_else(|| unusable("an authorization option of another type"))?;
            Ok(MethodFacts { input: descriptor.input(), rule: MethodRule::read(method, written)? })
        })
        .collect()
}

impl MethodRule {
    fn read(method: Method, written: AuthorizationRule) -> Result<Self, RuleError> {
        let AuthorizationRule { auth_mode, workspace_role, global_role, scope } = written;
        let meaningless = |value: &str| RuleError::Meaning { method, value: value.to_owned() };
        Ok(Self {
            auth: match auth_mode.as_str() {
                "unauthenticated" => AuthMode::Unauthenticated,
                "bearer" => AuthMode::Bearer,
                "dual" => AuthMode::Dual,
                "sandbox" => AuthMode::Sandbox,
                "peer" => AuthMode::Peer,
                "operator" => AuthMode::Operator,
                other => return Err(meaningless(other)),
            },
            workspace_role: match workspace_role.as_str() {
                "" => None,
                "user" => Some(WorkspaceRole::User),
                "admin" => Some(WorkspaceRole::Admin),
                other => return Err(meaningless(other)),
            },
            platform_admin: match global_role.as_str() {
                "" => false,
                "platform_admin" => true,
                other => return Err(meaningless(other)),
            },
            // Leaked once per method and process, which keeps the rule `Copy`.
            scope: (!scope.is_empty()).then(|| &*scope.leak()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_lead_back_to_the_method() {
        assert_eq!(Method::ALL.len(), 84);
        for &method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(method));
            assert_eq!(method.full_path(), format!("/{SERVICE}/{method}"));
        }
        assert_eq!(Method::from_name("createSandbox"), None);
    }

    #[test]
    fn facts_belong_to_their_method() {
        for &method in Method::ALL {
            let input = method.input_descriptor();
            let service = input.parent_pool().get_service_by_name(SERVICE).unwrap();
            let descriptor = service.methods().find(|descriptor| descriptor.name() == method.name()).unwrap();
            assert_eq!(descriptor.input(), input);
        }
        assert!(Method::CreateSandbox.has_request_id());
        assert!(!Method::GetSandbox.has_request_id());
    }

    #[test]
    fn a_rule_without_a_meaning_is_refused() {
        let bearer = || AuthorizationRule { auth_mode: "bearer".to_owned(), ..Default::default() };
        for written in [
            AuthorizationRule::default(),
            AuthorizationRule { auth_mode: "none".to_owned(), ..bearer() },
            AuthorizationRule { workspace_role: "owner".to_owned(), ..bearer() },
            AuthorizationRule { global_role: "root".to_owned(), ..bearer() },
        ] {
            assert!(matches!(MethodRule::read(Method::Health, written), Err(RuleError::Meaning { .. })));
        }
    }
}
