//! `roadstead sandbox logs NAME`

use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;

use super::connect::Connection;
use super::output::{Format, Output, json, line};
use super::scope;

/// What to show of a sandbox's log.
#[derive(clap::Args, Debug)]
pub(crate) struct Wanted {
    /// Name of the sandbox
    name: String,
    /// Go on with lines and platform events as they come
    #[arg(short, long)]
    follow: bool,
    /// How many lines of the past; 2000 are kept, and 200 shown before those that are followed
    #[arg(short = 'n', long, default_value_t = 0, hide_default_value = true)]
    lines: u32,
    /// Of the past only what is not older, in seconds
    #[arg(long, value_name = "SECONDS")]
    since: Option<u32>,
    /// Only lines that matter as much: ERROR, WARN, INFO, DEBUG, TRACE
    #[arg(long, default_value = "", hide_default_value = true)]
    level: String,
    /// Only lines from there: sandbox, gateway; may be repeated
    #[arg(long = "source", value_name = "SOURCE")]
    sources: Vec<String>,
}

/// Shows them.
pub(crate) async fn run(
    connection: &Connection,
    output: Output,
    workspace: &str,
    wanted: Wanted,
) -> anyhow::Result<()> {
    let Wanted { name, follow, lines, since, level, sources } = wanted;
    let since_time = since.map(|seconds| (now() - Duration::from_secs(seconds.into())).into());
    let workspace_scope = scope(workspace);
    if !follow {
        let request =
            v1::GetSandboxLogsRequest { workspace_scope, sandbox: name, lines, since_time, sources, min_level: level };
        let response = connection.open().await?.get_sandbox_logs(request).await?.into_inner();
        return output.show(&response, |response| response.logs.iter().map(text).collect::<Vec<_>>().join("\n"));
    }
    let request = v1::WatchSandboxRequest {
        workspace_scope,
        sandbox: name,
        follow_logs: true,
        follow_events: true,
        log_tail_lines: lines,
        since_time,
        log_sources: sources,
        log_min_level: level,
        ..Default::default()
    };
    let mut events = connection.open_stream().await?.watch_sandbox(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        match (output.output, &event.payload) {
            (Format::Json, _) => line(&json(&event)?)?,
            (Format::Text, Some(Payload::Log(log))) => line(&text(log))?,
            (Format::Text, Some(Payload::Event(event))) => line(&of_event(event))?,
            (Format::Text, Some(Payload::Warning(warning))) => line(&format!("warning: {}", warning.message))?,
            (Format::Text, _) => {}
        }
    }
    Ok(())
}

/// A line as people read it.
pub(crate) fn text(log: &v1::SandboxLogLine) -> String {
    let time = log.event_time.map(|time| time.to_string()).unwrap_or_default();
    let fields = log.fields.iter().map(|(name, value)| format!(" {name}={value}")).collect::<String>();
    plain(&format!("{time} {:5} {} {}: {}{fields}", log.level, log.source, log.target, log.message))
}

/// An event as people read it.
pub(crate) fn of_event(event: &v1::PlatformEvent) -> String {
    let time = event.event_time.map(|time| time.to_string()).unwrap_or_default();
    plain(&format!("{time} {:7} {} {}: {}", event.r#type, event.source, event.reason, event.message))
}

/// Without what a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter }).collect()
}

#[allow(clippy::disallowed_methods, reason = "how long ago is said by the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_command_the_terminal() {
        let log = v1::SandboxLogLine {
            level: "INFO".to_owned(),
            source: "sandbox".to_owned(),
            target: "t".to_owned(),
            message: "a\u{1b}[2Jb\nc".to_owned(),
            ..Default::default()
        };
        assert_eq!(text(&log), " INFO  sandbox t: a\u{fffd}[2Jb\u{fffd}c");
    }
}
