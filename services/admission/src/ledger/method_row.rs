//! One declared row per mutation with a request id: the whole of what the ledger knows about a method. To serve
//! another such method, add its row here, its line in docs/replay.md, and its operation.

use roadstead_proto::method::Method;

/// What a claim of the method is scoped to (behaviour 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeRule {
    /// The workspace that the request selects; the claim binds its id.
    Workspace,
    /// That workspace, or nothing where the request is global.
    WorkspaceOrGlobal,
    /// The name of the target, so that it works before the target exists and after it is gone. Binds no id.
    TargetName,
}

/// How the fingerprint of a request is kept (behaviour 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// As a plain hash.
    Plain,
    /// Under a key, so that a stored record is no oracle for guesses of a secret.
    Keyed,
}

/// What the receipt of a success holds and how it is shown again (behaviour 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Id and version of an object: shown while the object is at that version.
    SameVersion,
    /// The outcome of a deletion: shown as recorded, whatever lives under the name now.
    Recorded,
    /// A sandbox's id and what changed: shown with that sandbox as it is now.
    SandboxNow,
    /// Scalars of a configuration write: shown while the sandbox lives.
    ConfigScalars,
}

/// What the ledger knows of one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodRow {
    pub method: Method,
    pub scope: ScopeRule,
    pub protection: Protection,
    pub replay: Replay,
}

/// The rows of all served mutations with a request id.
pub const ROWS: &[MethodRow] = &[
    row(Method::CreateWorkspace, ScopeRule::TargetName, Protection::Plain, Replay::SameVersion),
    row(Method::DeleteWorkspace, ScopeRule::TargetName, Protection::Plain, Replay::Recorded),
    row(Method::AddWorkspaceMember, ScopeRule::Workspace, Protection::Plain, Replay::SameVersion),
    row(Method::RemoveWorkspaceMember, ScopeRule::Workspace, Protection::Plain, Replay::Recorded),
    row(Method::CreateSandboxTemplate, ScopeRule::Workspace, Protection::Plain, Replay::SameVersion),
    row(Method::DeleteSandboxTemplate, ScopeRule::Workspace, Protection::Plain, Replay::Recorded),
    row(Method::CreateSandbox, ScopeRule::Workspace, Protection::Keyed, Replay::SandboxNow),
    row(Method::DeleteSandbox, ScopeRule::Workspace, Protection::Keyed, Replay::Recorded),
    row(Method::StopSandbox, ScopeRule::Workspace, Protection::Keyed, Replay::SandboxNow),
    row(Method::StartSandbox, ScopeRule::Workspace, Protection::Keyed, Replay::SandboxNow),
    row(Method::AttachSandboxProvider, ScopeRule::Workspace, Protection::Keyed, Replay::SandboxNow),
    row(Method::DetachSandboxProvider, ScopeRule::Workspace, Protection::Keyed, Replay::SandboxNow),
    row(Method::ExposeService, ScopeRule::Workspace, Protection::Keyed, Replay::SameVersion),
    row(Method::DeleteService, ScopeRule::Workspace, Protection::Keyed, Replay::Recorded),
    row(Method::CreateProvider, ScopeRule::Workspace, Protection::Keyed, Replay::SameVersion),
    row(Method::UpdateProvider, ScopeRule::Workspace, Protection::Keyed, Replay::SameVersion),
    row(Method::DeleteProvider, ScopeRule::Workspace, Protection::Keyed, Replay::Recorded),
    row(Method::UpdateConfig, ScopeRule::WorkspaceOrGlobal, Protection::Keyed, Replay::ConfigScalars),
];

const fn row(method: Method, scope: ScopeRule, protection: Protection, replay: Replay) -> MethodRow {
    MethodRow { method, scope, protection, replay }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::method::AuthMode;

    use super::*;

    #[test]
    fn each_row_is_of_a_method_with_a_request_id_for_users_and_stands_once() {
        for row in ROWS {
            assert!(row.method.has_request_id(), "{}", row.method);
            assert!(matches!(row.method.rule().auth, AuthMode::Bearer | AuthMode::Dual), "{}", row.method);
            assert_eq!(ROWS.iter().filter(|other| other.method == row.method).count(), 1, "{}", row.method);
        }
    }

    #[test]
    fn a_scope_fits_the_fields_of_the_request() {
        for row in ROWS {
            let field = |name| row.method.input_descriptor().get_field_by_name(name).is_some();
            match row.scope {
                ScopeRule::Workspace => assert!(field("workspace_scope"), "{}", row.method),
                ScopeRule::WorkspaceOrGlobal => assert!(field("workspace_scope") && field("global"), "{}", row.method),
                ScopeRule::TargetName => assert!(field("name") && !field("workspace_scope"), "{}", row.method),
            }
        }
    }

    #[test]
    fn only_workspaces_members_and_templates_are_unprotected() {
        for row in ROWS {
            let plain = row.method.name().contains("Workspace") || row.method.name().contains("Template");
            assert_eq!(row.protection == Protection::Plain, plain, "{}", row.method);
        }
    }

    #[test]
    fn deletions_replay_what_was_recorded() {
        for row in ROWS {
            let deletes = row.method.name().starts_with("Delete") || row.method.name().starts_with("Remove");
            assert_eq!(row.replay == Replay::Recorded, deletes, "{}", row.method);
        }
    }

    #[test]
    fn the_page_for_clients_has_exactly_these_rows() {
        let line = |row: &MethodRow| {
            let scope = match row.scope {
                ScopeRule::Workspace => "workspace",
                ScopeRule::WorkspaceOrGlobal => "workspace, or the platform if global",
                ScopeRule::TargetName => "name of the target",
            };
            let shown = match row.replay {
                Replay::SameVersion => "the object, while it is at that version",
                Replay::Recorded => "the outcome, as recorded",
                Replay::SandboxNow => "that sandbox as it is now",
                Replay::ConfigScalars => "the answer, while the sandbox lives",
            };
            format!("| `{}` | {scope} | {shown} |", row.method.name())
        };
        let page = include_str!("../../../../docs/replay.md");
        let told: Vec<_> =
            page.lines().filter(|line| Method::ALL.iter().any(|method| is_about(line, *method))).collect();
        let declared: Vec<_> = ROWS.iter().map(line).collect();
        assert_eq!(told, declared, "the table of docs/replay.md");
    }

    fn is_about(line: &str, method: Method) -> bool {
        line.strip_prefix("| `")
            .and_then(|line| line.strip_prefix(method.name()))
            .is_some_and(|rest| rest.starts_with('`'))
    }
}
