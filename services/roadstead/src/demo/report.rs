//! What the demo says: a line for each step as it ends, and the whole as a table or as data.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::client::output::{line, table};

/// One step that ended.
#[derive(Debug, Serialize)]
struct Step {
    name: &'static str,
    ok: bool,
    milliseconds: f64,
    /// What was seen, or what went wrong.
    detail: String,
}

/// Collects the steps. Prints each as it ends unless the whole is wanted as data.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    as_data: bool,
    steps: Vec<Step>,
}

/// The whole, as data.
#[derive(Serialize)]
struct Whole<'a> {
    ok: bool,
    milliseconds: f64,
    steps: &'a [Step],
}

impl Report {
    pub(crate) fn new(as_data: bool) -> Self {
        Self { started: Instant::now(), as_data, steps: Vec::new() }
    }

    /// Runs one step, which ends with what was seen or with what went wrong. An error ends the demo.
    pub(crate) async fn step<T>(
        &mut self,
        name: &'static str,
        step: impl Future<Output = anyhow::Result<(T, String)>>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        let (result, detail) = match step.await {
            Ok((value, detail)) => (Ok(value), detail),
            Err(error) => {
                let detail = format!("{error:#}");
                (Err(error), detail)
            }
        };
        let step = Step { name, ok: result.is_ok(), milliseconds: milliseconds(began.elapsed()), detail };
        if !self.as_data {
            let mark = if step.ok { "ok  " } else { "FAIL" };
            line(&format!("{mark} {:>9.1} ms  {name}: {}", step.milliseconds, step.detail))?;
        }
        self.steps.push(step);
        result.with_context(|| format!("step failed: {name}"))
    }

    /// Prints the summary; whether all steps held.
    pub(crate) fn finish(&self) -> anyhow::Result<bool> {
        let ok = self.steps.iter().all(|step| step.ok);
        let total = milliseconds(self.started.elapsed());
        if self.as_data {
            line(&serde_json::to_string(&Whole { ok, milliseconds: total, steps: &self.steps })?)?;
            return Ok(ok);
        }
        let mut rows = vec![vec!["STEP".into(), "HELD".into(), "MS".into()]];
        rows.extend(self.steps.iter().map(|step| {
            vec![
                step.name.to_owned(),
                if step.ok { "yes" } else { "NO" }.to_owned(),
                format!("{:.1}", step.milliseconds),
            ]
        }));
        line("")?;
        line(&table(&rows))?;
        line(&format!("{} in {:.1} s", if ok { "all held" } else { "NOT all held" }, total / 1000.0))?;
        Ok(ok)
    }
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
