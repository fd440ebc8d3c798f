//! `roadstead sandbox watch NAME`, or for short `roadstead watch NAME`

use roadstead_proto::api::v1;

use super::connect::Client;
use super::output::{Format, Output, json, line};
use super::sandbox::phase_of;
use super::{logs, scope};

/// Shows a sandbox's changes as they happen, until it is deleted or, with `until_terminal`, has come to rest.
pub(crate) async fn run(
    mut client: Client,
    output: Output,
    workspace: &str,
    sandbox: String,
    until_terminal: bool,
) -> anyhow::Result<()> {
    let request = v1::WatchSandboxRequest {
        workspace_scope: scope(workspace),
        sandbox,
        follow_status: true,
        stop_on_terminal: until_terminal,
        ..Default::default()
    };
    let mut events = client.watch_sandbox(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        match output.output {
            Format::Json => line(&json(&event)?)?,
            Format::Text => line(&text(&event))?,
        }
    }
    Ok(())
}

fn text(event: &v1::SandboxStreamEvent) -> String {
    use v1::sandbox_stream_event::Payload;
    match &event.payload {
        Some(Payload::Sandbox(sandbox)) => {
            let version = sandbox.metadata.as_ref().map_or(0, |metadata| metadata.resource_version);
            let condition = sandbox.status.as_ref().and_then(|status| status.conditions.first());
            let reason = condition.map_or(String::new(), |condition| condition.reason.clone());
            format!("{version:>6}  {:14}  {reason}", phase_of(sandbox))
        }
        Some(Payload::Warning(warning)) => format!("warning: {}", warning.message),
        Some(Payload::Log(log)) => logs::text(log),
        Some(Payload::Event(event)) => logs::of_event(event),
        Some(Payload::DraftPolicyUpdate(draft)) => format!("draft: {}", draft.summary),
        None => String::new(),
    }
}
