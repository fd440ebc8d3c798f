//! Logs and traces.

use clap::{Args, ValueEnum};

/// What is logged and traced, and where to.
#[derive(Args, Clone, Debug)]
pub struct LogSettings {
    /// Form of the log on standard error: text for people, json (one object a line) for collectors
    #[arg(long, global = true, env = "ROADSTEAD_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Least level that is logged. It concerns Roadstead's own code; libraries log warnings and errors only, since what
    /// they say below that can quote messages
    #[arg(long, global = true, env = "ROADSTEAD_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Also send traces to this OpenTelemetry collector (OTLP over gRPC), such as http://127.0.0.1:4317
    #[arg(long, global = true, env = "ROADSTEAD_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Least level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogSettings {
    /// The flags that give another process the same settings.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let Self { log_format, log_level, otlp_endpoint } = self;
        let mut arguments =
            vec![format!("--log-format={}", name(log_format)), format!("--log-level={}", name(log_level))];
        arguments.extend(otlp_endpoint.iter().map(|endpoint| format!("--otlp-endpoint={endpoint}")));
        arguments
    }
}

/// The value as it is written on a command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
