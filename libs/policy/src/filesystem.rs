//! Rules on the paths and the identity that a policy names.

use roadstead_proto::api::sandbox::{FilesystemPolicy, ProcessPolicy};

use crate::refusal::{Path, Reason, Refusal};

const PATHS: usize = 256;
const PATH_BYTES: usize = 4096;

pub(crate) fn check(filesystem: &FilesystemPolicy, at: &Path<'_>) -> Result<(), Refusal> {
    at.at_most_of("paths", filesystem.read_only.len() + filesystem.read_write.len(), PATHS)?;
    check_paths(&filesystem.read_only, &at.field("read_only"))?;
    check_paths(&filesystem.read_write, &at.field("read_write"))?;
    match filesystem.read_write.iter().position(|path| path.chars().all(|letter| letter == '/')) {
        Some(index) => Err(at.field("read_write").index(index).refuse(Reason::PathTooBroad)),
        None => Ok(()),
    }
}

fn check_paths(paths: &[String], at: &Path<'_>) -> Result<(), Refusal> {
    for (index, path) in paths.iter().enumerate() {
        let at = at.index(index);
        at.at_most(path, PATH_BYTES)?;
        if !path.starts_with('/') || path.contains('\0') || path.split('/').any(|part| part == "..") {
            return Err(at.refuse(Reason::PathNotPlain));
        }
    }
    Ok(())
}

pub(crate) fn check_identity(process: &ProcessPolicy, at: &Path<'_>) -> Result<(), Refusal> {
    for (name, field) in [(&process.run_as_user, "run_as_user"), (&process.run_as_group, "run_as_group")] {
        if matches!(name.as_str(), "root" | "0") {
            return Err(at.field(field).refuse(Reason::RootIdentity));
        }
    }
    Ok(())
}
