use roadstead_proto::api::sandbox::{FilesystemPolicy, LandlockPolicy, ProcessPolicy, SandboxPolicy};

/// The policy that a supervisor proposes for a sandbox that has none: the usual places of a file system, an ordinary
/// user, and no network.
#[must_use]
pub fn default_policy() -> SandboxPolicy {
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    SandboxPolicy {
        version: 1,
        filesystem: Some(FilesystemPolicy {
            include_workdir: true,
            read_only: paths(&["/usr", "/lib", "/etc", "/proc"]),
            read_write: paths(&["/tmp", "/dev/null"]),
        }),
        landlock: Some(LandlockPolicy { compatibility: "best_effort".to_owned() }),
        process: Some(ProcessPolicy { run_as_user: "sandbox".to_owned(), run_as_group: "sandbox".to_owned() }),
        ..SandboxPolicy::default()
    }
}
