//! `roadstead bench`: what mutations, reads and pushes cost here, beside the floors of the same run.
//!
//! Nothing is compared with another machine or another day: each figure stands beside a floor that was measured in the
//! same run, on the same broker and database.

mod floor;
mod measure;
mod path;
mod push;

use std::time::Duration;

use clap::Args;
use roadstead_proto::api::v1;

use self::floor::Floor;
use self::measure::{Figure, Measure};
use crate::client::connect::{Client, Connection};
use crate::client::output::{line, table};
use crate::client::{request_id, scope};
use crate::demo::target::{Kind, Target};

/// Callers at the same time, each with a sandbox of its own.
const CALLERS: [usize; 3] = [1, 16, 64];
pub(crate) const WORKSPACE: &str = "bench";
/// All callers are one user here, who soon has more request ids than a deployment keeps for one.
const QUOTA: (&str, &str) = ("ROADSTEAD_REQUEST_ID_QUOTA", "1000000");
/// Most callers, so most sandboxes.
const SANDBOXES: usize = 64;

/// Measure mutations, configuration reads and pushes on this machine, beside floors taken in the same run. Build with
/// --release; nothing else should run meanwhile
#[derive(Args, Debug)]
pub(crate) struct Command {
    /// How long each measurement lasts, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    seconds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (target, doors) = Target::start(Kind::All, &[QUOTA]).await?;
        let mut clients = Vec::new();
        for edge in &doors.edges {
            clients.push(Connection::anonymous(edge).open_stream().await?);
        }
        let measured = self.measure(&target, &doors.bridge, &clients).await;
        target.stop().await?;
        let figures = measured?;
        if self.json {
            return line(&serde_json::to_string(&figures)?);
        }
        let mut rows =
            vec![["WHAT", "CALLERS", "PER SECOND", "P50 MS", "P99 MS", "OF THE FLOOR"].map(str::to_owned).into()];
        rows.extend(figures.iter().map(Figure::row));
        line(&table(&rows))
    }

    async fn measure(&self, target: &Target, bridge: &str, clients: &[Client]) -> anyhow::Result<Vec<Figure>> {
        prepare(clients).await?;
        let measure = Measure { time: Duration::from_secs(self.seconds) };
        let floor = Floor::open(target).await?;
        let mut figures = vec![measure.run("broker: one round trip", 1, |_| floor.round_trip()).await?];
        for callers in CALLERS {
            let raw =
                measure.run("floor: the two flights of the same mutation", callers, |at| floor.mutate(at)).await?;
            let plain = measure.run("mutation", callers, |at| path::mutate(clients, at, String::new())).await?;
            let with_id =
                measure.run("mutation with a request id", callers, |at| path::mutate(clients, at, request_id()));
            let with_id = with_id.await?;
            figures.extend([plain.beside(&raw), with_id.beside(&raw), raw]);
        }
        figures.push(measure.run("GetSandboxConfig", 16, |at| path::read_config(clients, at)).await?);
        figures.extend(push::measure(target, bridge, clients, measure.time).await?);
        Ok(figures)
    }
}

/// A workspace, and a sandbox for each caller.
async fn prepare(clients: &[Client]) -> anyhow::Result<()> {
    let mut client = clients[0].clone();
    client.create_workspace(v1::CreateWorkspaceRequest { name: WORKSPACE.to_owned(), ..Default::default() }).await?;
    for number in 0..SANDBOXES {
        let request = v1::CreateSandboxRequest {
            workspace_scope: scope(WORKSPACE),
            name: path::sandbox(number),
            spec: Some(v1::SandboxSpec::default()),
            ..Default::default()
        };
        client.create_sandbox(request).await?;
    }
    Ok(())
}
