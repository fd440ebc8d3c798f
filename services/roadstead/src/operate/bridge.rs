//! `roadstead bridge rebalance`: evens out the sessions that the bridges hold.

use anyhow::bail;
use clap::{Args, Subcommand};
use roadstead_proto::internal::Rebalanced;
use roadstead_proto::subject;

use super::operator::Operator;
use crate::client::output::{line, table};

/// Look after the bridges. Asks them over the broker, as operator
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Have every bridge that holds more than its share of sessions hand the rest over, spread over some seconds; shows
    /// what each held and is to hand over
    #[command(
        after_help = "Bridges take part that are started with --advertise. A session stays if its supervisor follows \
        no redirects, or was handed over in the last minute (--settle-seconds of the bridge)."
    )]
    Rebalance {
        #[command(flatten)]
        operator: Operator,
    },
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Action::Rebalance { operator } = self.action;
        let rebalanced: Rebalanced = operator.connect().await?.ask_bridges(subject::REBALANCE).await?;
        if rebalanced.bridges.is_empty() {
            bail!("no bridge says where supervisors reach it: start them with --advertise");
        }
        line(&shown(&rebalanced))
    }
}

fn shown(rebalanced: &Rebalanced) -> String {
    let mut rows = vec![["BRIDGE", "ENDPOINT", "HELD", "MOVES"].map(str::to_owned).to_vec()];
    rows.extend(rebalanced.bridges.iter().map(|bridge| {
        vec![bridge.bridge_id.clone(), bridge.endpoint.clone(), bridge.held.to_string(), bridge.moves.to_string()]
    }));
    table(&rows)
}
