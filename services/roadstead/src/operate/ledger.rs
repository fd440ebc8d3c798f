//! `roadstead admission list|show|settle`: commands whose outcome is not known.

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use prost_types::Timestamp;
use roadstead_proto::internal::get_command_response::State;
use roadstead_proto::internal::settle_command_request::Outcome;
use roadstead_proto::internal::{
    GetCommandRequest, GetCommandResponse, ListUnresolvedRequest, ListUnresolvedResponse, SettleCommandRequest,
    SettleCommandResponse, UnresolvedCommand,
};
use roadstead_proto::subject::AdminCall;

use super::operator::{Act, Operator};
use crate::client::output::{Output, line, short, table};

/// Look at commands whose outcome is not known, and settle them. Asks admission over the broker, as operator
#[derive(Args, Debug)]
#[command(after_help = "A command with an effect outside the database that was cut off stands as started for ever: \
    it is never executed again, and its request id answers REQUEST_OUTCOME_UNCERTAIN. Find out at the other side \
    whether it happened, then settle it.")]
pub(crate) struct Command {
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show commands without an outcome, oldest first
    List {
        /// Most commands to show
        #[arg(long, default_value_t = 1000)]
        limit: u32,
        #[command(flatten)]
        operator: Operator,
    },
    /// Show one command, settled or not, and what operators did about it
    Show {
        command_id: String,
        #[command(flatten)]
        operator: Operator,
    },
    /// Say what became of a command: it is told so from then on, and it is kept who said it and why
    Settle {
        command_id: String,
        /// What you found: `succeeded` keeps its request id from ever executing again, `failed` frees it
        #[arg(long = "as", value_enum)]
        found: Found,
        #[command(flatten)]
        act: Act,
        #[command(flatten)]
        operator: Operator,
    },
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Found {
    Succeeded,
    Failed,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { output, action } = self;
        match action {
            Action::List { limit, operator } => output.show(&list(&operator, limit).await?, rows),
            Action::Show { command_id, operator } => {
                let request = GetCommandRequest { command_id };
                let response: GetCommandResponse = operator.ask(AdminCall::GetCommand, &request).await?;
                output.show(&response, shown)
            }
            Action::Settle { command_id, found, act, operator } => {
                let outcome = match found {
                    Found::Succeeded => Outcome::Succeeded,
                    Found::Failed => Outcome::Failed,
                };
                let Act { reason, name } = act;
                let request = SettleCommandRequest { command_id, outcome: outcome.into(), operator: name, reason };
                let _: SettleCommandResponse = operator.ask(AdminCall::SettleCommand, &request).await?;
                line("settled")
            }
        }
    }
}

async fn list(operator: &Operator, limit: u32) -> anyhow::Result<ListUnresolvedResponse> {
    let mut all = ListUnresolvedResponse::default();
    loop {
        let left = limit.saturating_sub(u32::try_from(all.commands.len()).unwrap_or(u32::MAX));
        if left == 0 {
            return Ok(all);
        }
        let request = ListUnresolvedRequest { page_size: left.min(100), page_token: all.next_page_token.clone() };
        let page: ListUnresolvedResponse = operator.ask(AdminCall::ListUnresolved, &request).await?;
        all.commands.extend(page.commands);
        (all.next_page_token, all.read_time) = (page.next_page_token, page.read_time);
        if all.next_page_token.is_empty() {
            return Ok(all);
        }
    }
}

fn rows(response: &ListUnresolvedResponse) -> String {
    let head = ["COMMAND", "METHOD", "AGE", "CALLER", "SCOPE", "REQUEST-ID", "SETTLE"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(response.commands.iter().map(|known| row(known, response.read_time.as_ref())));
    let more = if response.next_page_token.is_empty() { "" } else { "and more; --limit shows them\n" };
    format!("{}{more}", table(&rows))
}

fn row(known: &UnresolvedCommand, now: Option<&Timestamp>) -> Vec<String> {
    let settle = match seconds(now, known.executor_end_time.as_ref()) {
        0 => "now".to_owned(),
        left => format!("in {}", span(left)),
    };
    vec![
        known.command_id.clone(),
        known.method.clone(),
        span(seconds(known.start_time.as_ref(), now)),
        known.caller.chars().take(12).collect(),
        known.scope.clone(),
        if known.request_id.is_empty() { "-".to_owned() } else { known.request_id.clone() },
        settle,
    ]
}

fn shown(response: &GetCommandResponse) -> String {
    let now = response.read_time.as_ref();
    let ago = |at: &Option<Timestamp>| at.as_ref().map(|at| format!("{} ago", span(seconds(Some(at), now))));
    let state = short(response.state().as_str_name(), "STATE_").to_lowercase();
    let text = |value: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
    let unresolved = response.unresolved.as_ref();
    let facts = [
        ("command", text(&response.command_id)),
        ("state", Some(if response.replayed { format!("{state} (replayed)") } else { state })),
        ("method", text(&response.method)),
        ("caller", text(&response.caller)),
        ("admitted", ago(&response.admission_time)),
        ("settled", ago(&response.settle_time)),
        ("code", text(&response.code)),
        ("reason", text(&response.reason)),
        ("message", text(&response.message)),
        ("scope", unresolved.and_then(|known| text(&known.scope))),
        ("request id", unresolved.and_then(|known| text(&known.request_id))),
        ("may be settled", unresolved.and_then(|known| row(known, now).pop())),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some(vec![name.to_owned(), value?]));
    let mut rows: Vec<_> = facts.collect();
    rows.extend(response.acts.iter().map(|act| {
        let when = ago(&act.time).unwrap_or_default();
        vec!["act".to_owned(), format!("{} by {}, {when}: {}", act.act, act.operator, act.reason)]
    }));
    if response.state() == State::Forgotten {
        rows.push(vec!["note".to_owned(), "the ledger forgets a settled command after 15 minutes".to_owned()]);
    }
    table(&rows)
}

/// Whole seconds from one time to another; 0 if there are none.
fn seconds(from: Option<&Timestamp>, to: Option<&Timestamp>) -> u64 {
    let time = |at: Option<&Timestamp>| SystemTime::try_from(*at?).ok();
    let (Some(from), Some(to)) = (time(from), time(to)) else { return 0 };
    let left = to.duration_since(from).unwrap_or(Duration::ZERO);
    (left + Duration::from_millis(999)).as_secs()
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: 0 })
    }

    #[test]
    fn a_row_tells_age_and_when_it_may_be_settled() {
        let known = UnresolvedCommand {
            command_id: "c".into(),
            method: "m".into(),
            caller: "0123456789abcdef".into(),
            start_time: at(100),
            executor_end_time: at(160),
            ..Default::default()
        };
        assert_eq!(row(&known, at(130).as_ref()), ["c", "m", "30 s", "0123456789ab", "", "-", "in 30 s"]);
        assert_eq!(row(&known, at(4000).as_ref())[2..], ["65 min", "0123456789ab", "", "-", "now"]);
    }
}
