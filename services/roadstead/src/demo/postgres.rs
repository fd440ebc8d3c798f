//! A look into the embedded database with Postgres's own client: what is counted there no role has touched.

use std::path::Path;

use anyhow::Context as _;
use roadstead_embedded::Binaries;
use roadstead_embedded::postgres::SUPERUSER;
use tokio::process::Command;

use crate::all::run_file::RunFile;

/// Rows as text, one a line.
pub(crate) async fn ask(data: &Path, query: &str) -> anyhow::Result<String> {
    let database = RunFile::load(data)?.database_url;
    let password = std::fs::read_to_string(data.join("postgres/password")).context("no password of the database")?;
    let psql = Binaries::from_env()?.postgres_bin.join("psql");
    let psql = if psql.exists() { psql } else { "psql".into() };
    let output = Command::new(psql)
        .args(["-X", "-tA", "-U", SUPERUSER, "-d", &database, "-c", query])
        .env("PGPASSWORD", password.trim())
        .output()
        .await
        .context("cannot run psql")?;
    anyhow::ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
