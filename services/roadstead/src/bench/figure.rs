//! What was measured, which goals it had, and how both are shown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::measure::Ran;
use crate::client::output::table;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) callers: usize,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) longest_ms: f64,
    /// Throughput as a part of the floor's, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of_floor: Option<f64>,
    /// Time from the end of the load until every mark was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) marks_gone_ms: Option<f64>,
    /// Answers that were not OK, by code.
    pub(crate) errors: BTreeMap<String, u64>,
}

/// A measurement of one number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Reading {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// Something that is to be reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) goal: String,
    pub(crate) of: String,
    pub(crate) measured: f64,
    pub(crate) reached: bool,
}

/// All that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) figures: Vec<Figure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) readings: Vec<Reading>,
    pub(crate) goals: Vec<Goal>,
}

impl Goal {
    pub(crate) fn at_least(least: f64, unit: &str, of: impl Into<String>, measured: f64) -> Self {
        Self { goal: format!("at least {least} {unit}"), of: of.into(), measured, reached: measured >= least }
    }

    pub(crate) fn at_most(most: f64, unit: &str, of: impl Into<String>, measured: f64) -> Self {
        Self { goal: format!("at most {most} {unit}"), of: of.into(), measured, reached: measured <= most }
    }
}

impl Figure {
    pub(crate) fn of(what: &'static str, callers: usize, ran: Ran) -> Self {
        let Ran { mut took, time, errors } = ran;
        took.sort_unstable();
        #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
        let per_second = took.len() as f64 / time.as_secs_f64();
        let [p50_ms, p99_ms, longest_ms] = [50, 99, 100].map(|percent| percentile(&took, percent));
        Self { what, callers, per_second, p50_ms, p99_ms, longest_ms, of_floor: None, marks_gone_ms: None, errors }
    }

    pub(crate) fn beside(mut self, floor: &Self) -> Self {
        self.of_floor = Some(self.per_second / floor.per_second);
        self
    }

    /// Answers that were not OK.
    pub(crate) fn refused(&self) -> u64 {
        self.errors.values().sum()
    }

    fn row(&self) -> Vec<String> {
        let errors: Vec<_> = self.errors.iter().map(|(code, count)| format!("{code} {count}")).collect();
        vec![
            self.what.to_owned(),
            self.callers.to_string(),
            format!("{:.0}", self.per_second),
            format!("{:.2}", self.p50_ms),
            format!("{:.2}", self.p99_ms),
            format!("{:.2}", self.longest_ms),
            self.of_floor.map_or(String::new(), |part| format!("{part:.2}")),
            self.marks_gone_ms.map_or(String::new(), |time| format!("{time:.0}")),
            if errors.is_empty() { "none".to_owned() } else { errors.join(", ") },
        ]
    }
}

impl Report {
    /// A table of the figures, one of what has one number, if anything has, and one of the goals.
    pub(crate) fn text(&self) -> String {
        let head = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let mut figures = vec![head(&[
            "WHAT",
            "CALLERS",
            "PER SECOND",
            "P50 MS",
            "P99 MS",
            "LONGEST MS",
            "OF THE FLOOR",
            "MARKS GONE MS",
            "ERRORS",
        ])];
        figures.extend(self.figures.iter().map(Figure::row));
        let mut readings = vec![head(&["WHAT", "MEASURED", "UNIT"])];
        readings.extend(
            self.readings
                .iter()
                .map(|Reading { what, value, unit }| vec![what.clone(), format!("{value:.1}"), (*unit).to_owned()]),
        );
        let mut goals = vec![head(&["GOAL", "MEASURED", "REACHED", "OF"])];
        goals.extend(self.goals.iter().map(|Goal { goal, of, measured, reached }| {
            vec![goal.clone(), format!("{measured:.2}"), if *reached { "yes" } else { "NO" }.to_owned(), of.clone()]
        }));
        let tables = [figures, readings, goals].into_iter().filter(|rows| rows.len() > 1);
        tables.map(|rows| table(&rows)).collect::<Vec<_>>().join("\n")
    }

    /// The same as one JSON object.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.readings.extend(other.readings);
        self.goals.extend(other.goals);
    }
}

/// The duration that `percent` of all do not exceed, in milliseconds. `sorted` is in order.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(f64::NAN, |duration| duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let took: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!((percentile(&took, 50), percentile(&took, 99)), (100.0, 198.0));
        assert_eq!(percentile(&took[..1], 99), 1.0);
        assert!(percentile(&[], 50).is_nan());
    }

    #[test]
    fn a_goal_that_was_not_reached_or_not_measured_is_shown_as_such() {
        let took = vec![Duration::from_millis(4); 100];
        let ran = |errors| Ran { took: took.clone(), time: Duration::from_secs(1), errors };
        let floor = Figure::of("floor", 1, ran(BTreeMap::new()));
        let figure = Figure::of("mutation", 1, ran([("Aborted".to_owned(), 2)].into())).beside(&floor);
        assert_eq!(figure.of_floor, Some(1.0));
        let goals = vec![Goal::at_least(0.4, "of it", "all", 1.0), Goal::at_most(2.0, "ms", "one", f64::NAN)];
        let shown = Report { figures: vec![figure], goals, ..Report::default() }.text();
        assert!(shown.contains("Aborted 2") && shown.contains("yes") && shown.contains("NO"), "{shown}");
    }
}
