//! What a user may do in a workspace: the one rule of membership and role (behaviour 7.2). Whoever holds the state
//! asks it, with the rights of today.

use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_proto::internal::User;

/// What a supervisor is told that names another sandbox than its own, by whoever notices: the same text everywhere, so
/// that it says nothing of what exists.
pub const ANOTHER_SANDBOX: &str = "a supervisor acts for its own sandbox only";

/// Longest name or subject that a message repeats, in characters.
const SHOWN: usize = 64;

/// Why a user may not act in a workspace. The text says who could change that and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("not a member of workspace {}; a workspace admin can run: {}", quoted(.workspace), hint(.workspace, .subject, *.role))]
    NotAMember { workspace: String, subject: String, role: WorkspaceRole },
    #[error("workspace role '{}' required in workspace {}; a workspace admin can run: {}", role_name(*.role), quoted(.workspace), hint(.workspace, .subject, *.role))]
    Role { workspace: String, subject: String, role: WorkspaceRole },
    #[error("platform admin role required")]
    PlatformAdmin,
}

/// Whether `user`, who holds `role` in `workspace`, satisfies a rule that asks for `required` there.
///
/// Says nothing about whether the workspace exists: a stranger learns the same of one that does and one that does not.
pub fn in_workspace(
    user: &User,
    workspace: &str,
    role: Option<WorkspaceRole>,
    required: WorkspaceRole,
) -> Result<(), Denied> {
    let named = || (workspace.to_owned(), user.subject.clone());
    match role {
        _ if user.platform_admin => Ok(()),
        Some(role) if role as i32 >= required as i32 => Ok(()),
        Some(_) => {
            let (workspace, subject) = named();
            Err(Denied::Role { workspace, subject, role: required })
        }
        None => {
            let (workspace, subject) = named();
            Err(Denied::NotAMember { workspace, subject, role: required })
        }
    }
}

/// Whether `user` may use the forms that belong to no workspace.
pub fn platform(user: &User) -> Result<(), Denied> {
    if user.platform_admin { Ok(()) } else { Err(Denied::PlatformAdmin) }
}

/// The role's name as people write it.
#[must_use]
pub const fn role_name(role: WorkspaceRole) -> &'static str {
    match role {
        WorkspaceRole::Admin => "admin",
        WorkspaceRole::User | WorkspaceRole::Unspecified => "user",
    }
}

fn hint(workspace: &str, subject: &str, role: WorkspaceRole) -> String {
    format!(
        "openshell workspace member add --workspace {} --subject {} --role {}",
        quoted(workspace),
        quoted(subject),
        role_name(role)
    )
}

/// In single quotes as a shell reads them, cut to a bounded length.
fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    format!("'{}'", shown.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(platform_admin: bool) -> User {
        User { subject: "ann".into(), platform_admin, ..User::default() }
    }

    #[test]
    fn an_admin_of_the_platform_needs_no_membership() {
        assert_eq!(in_workspace(&user(true), "w", None, WorkspaceRole::Admin), Ok(()));
    }

    #[test]
    fn a_role_covers_itself_and_what_is_below_it() {
        use WorkspaceRole::{Admin, User};
        assert_eq!(in_workspace(&user(false), "w", Some(Admin), User), Ok(()));
        assert_eq!(in_workspace(&user(false), "w", Some(User), User), Ok(()));
        assert!(matches!(in_workspace(&user(false), "w", Some(User), Admin), Err(Denied::Role { .. })));
        assert!(matches!(in_workspace(&user(false), "w", None, User), Err(Denied::NotAMember { .. })));
    }

    #[test]
    fn the_texts_tell_the_way_out_in_words_a_shell_takes_literally() {
        let denied = in_workspace(&user(false), "a'b", None, WorkspaceRole::User).unwrap_err().to_string();
        assert_eq!(
            denied,
            r"not a member of workspace 'a'\''b'; a workspace admin can run: openshell workspace member add --workspace 'a'\''b' --subject 'ann' --role user"
        );
        let denied = in_workspace(&user(false), "w", Some(WorkspaceRole::User), WorkspaceRole::Admin).unwrap_err();
        assert!(denied.to_string().starts_with("workspace role 'admin' required in workspace 'w'"));
    }

    #[test]
    fn long_names_are_not_repeated_in_full() {
        let text = in_workspace(&user(false), &"x".repeat(10_000), None, WorkspaceRole::User).unwrap_err().to_string();
        assert!(text.len() < 400);
    }
}
