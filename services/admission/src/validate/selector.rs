//! The workspace that a request is about (behaviour 1.4).

use roadstead_proto::api::datamodel::{WorkspaceSelector, workspace_selector::Selection};

use super::Checked;
use crate::refusal::Refusal;

const FIELD: &str = "workspace_scope";

/// The workspace's name. There is no default.
///
/// # Errors
/// `Invalid` on `workspace_scope` if it is missing, empty, or means all workspaces.
pub fn workspace(selector: Option<&WorkspaceSelector>) -> Result<&str, Refusal> {
    match selector.and_then(|selector| selector.selection.as_ref()) {
        Some(Selection::Workspace(name)) if !name.is_empty() => Ok(name),
        Some(Selection::AllWorkspaces(_)) => Err(Refusal::invalid(FIELD, "must name one workspace")),
        Some(Selection::Workspace(_)) | None => Err(Refusal::invalid(FIELD, "required: name a workspace")),
    }
}

/// Refuses a scope beside a global form.
///
/// # Errors
/// `Invalid` on `workspace_scope` if one is given.
pub fn absent(selector: Option<&WorkspaceSelector>) -> Checked {
    match selector {
        None => Ok(()),
        Some(_) => Err(Refusal::invalid(FIELD, "must be left out of a global call")),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::datamodel::AllWorkspaces;

    use super::*;

    fn selector(selection: Selection) -> WorkspaceSelector {
        WorkspaceSelector { selection: Some(selection) }
    }

    #[test]
    fn only_a_named_workspace_will_do() {
        assert_eq!(workspace(Some(&selector(Selection::Workspace("w".into())))), Ok("w"));
        for bad in [
            None,
            Some(WorkspaceSelector::default()),
            Some(selector(Selection::Workspace(String::new()))),
            Some(selector(Selection::AllWorkspaces(AllWorkspaces {}))),
        ] {
            let refused = workspace(bad.as_ref()).unwrap_err();
            assert!(matches!(refused, Refusal::Invalid { ref field, .. } if field == FIELD));
        }
    }

    #[test]
    fn a_global_call_has_no_scope() {
        assert!(absent(None).is_ok());
        assert!(absent(Some(&WorkspaceSelector::default())).is_err());
    }
}
