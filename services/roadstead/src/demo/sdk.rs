//! The steps that go through the real Python SDK.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use super::target::run;

/// A Python that has the SDK, and the script that uses it.
#[derive(Debug)]
pub(crate) struct Sdk {
    pub(crate) python: PathBuf,
    pub(crate) script: PathBuf,
    /// `host:port` of an edge.
    pub(crate) endpoint: String,
    pub(crate) workspace: String,
    pub(crate) sandbox: String,
}

impl Sdk {
    /// Runs one step of the script; what it prints.
    pub(crate) async fn step(&self, step: &str, further: &[&str]) -> anyhow::Result<Value> {
        let script = self.script.to_string_lossy();
        let mut arguments = vec![&*script, step, "--endpoint", &self.endpoint];
        arguments.extend(["--workspace", &self.workspace, "--sandbox", &self.sandbox]);
        arguments.extend(further);
        let printed = run(&self.python.to_string_lossy(), &arguments)
            .await
            .context("the SDK's step failed; `./dev demo` sets up the Python it needs")?;
        Ok(serde_json::from_str(&printed)?)
    }
}
