//! How answers are shown: for people, or as the JSON form of the protobuf message.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use prost_reflect::{DescriptorPool, DynamicMessage};
use roadstead_proto::api::FILE_DESCRIPTOR_SET;

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Text, global = true)]
    pub(crate) output: Format,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

impl Output {
    /// Prints `message`, or what `text` makes of it. Ends quietly if nobody reads any more.
    pub(crate) fn show<M: prost::Message + prost::Name>(
        self,
        message: &M,
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        let shown = match self.output {
            Format::Text => text(message),
            Format::Json => json(message)?,
        };
        line(&shown)
    }
}

/// Prints one line on standard output.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{}", text.trim_end())?;
    Ok(())
}

/// The message in protobuf's JSON form.
pub(crate) fn json<M: prost::Message + prost::Name>(message: &M) -> anyhow::Result<String> {
    let dynamic = DynamicMessage::decode(descriptor(&M::full_name())?, message.encode_to_vec().as_slice())?;
    Ok(serde_json::to_string(&dynamic)?)
}

/// Reads a message from protobuf's JSON form.
pub(crate) fn from_json<M: prost::Message + prost::Name + Default>(text: &str) -> anyhow::Result<M> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let dynamic = DynamicMessage::deserialize(descriptor(&M::full_name())?, &mut deserializer)?;
    deserializer.end()?;
    Ok(dynamic.transcode_to()?)
}

fn descriptor(name: &str) -> anyhow::Result<prost_reflect::MessageDescriptor> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET)?;
    pool.get_message_by_name(name).ok_or_else(|| anyhow::anyhow!("{name} is not described"))
}

/// An end that has an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Ended {
    pub(crate) code: u8,
    pub(crate) text: String,
}

/// Says on standard error why a command failed. A server's refusal is told by its code and its own words.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    let text = match error.downcast_ref::<tonic::Status>() {
        Some(status) => format!("{:?}: {}", status.code(), status.message()),
        None => format!("{error:#}"),
    };
    // With standard error gone there is nobody left to tell.
    drop(writeln!(std::io::stderr().lock(), "roadstead: {text}"));
    error.downcast_ref::<Ended>().map_or(ExitCode::FAILURE, |ended| ExitCode::from(ended.code))
}

/// Columns of equal width, the first row being the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// An enum value without the prefix that protobuf repeats: `SANDBOX_PHASE_READY` → `READY`.
pub(crate) fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_owned()
}
