//! What a measurement found: rows with a bar and a verdict, as a table and as JSON.
//!
//! Rounds of one measurement are merged row by row; a row then shows the median and the spread.

use crate::BenchError;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;

/// What a value is held to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    AtMost(f64),
    AtLeast(f64),
    /// Inclusive on both sides.
    Between(f64, f64),
}

impl Bar {
    pub fn holds(&self, value: f64) -> bool {
        match *self {
            Bar::AtMost(most) => value <= most,
            Bar::AtLeast(least) => value >= least,
            Bar::Between(least, most) => (least..=most).contains(&value),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub case: String,
    pub metric: String,
    pub unit: String,
    /// One per round.
    pub values: Vec<f64>,
    pub bar: Option<Bar>,
}

impl Row {
    pub fn median(&self) -> f64 {
        median(&self.values)
    }

    /// Whether the median holds the bar; `None` when there is no bar.
    pub fn holds(&self) -> Option<bool> {
        self.bar.map(|bar| bar.holds(self.median()))
    }

    fn spread(&self) -> (f64, f64) {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }
}

/// The middle value; the mean of the two middle ones of an even number.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => at(count / 2),
        count => (at(count / 2 - 1) + at(count / 2)) / 2.0,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub rows: Vec<Row>,
    /// Hash of what was computed, not of how long it took.
    pub hash: Option<u64>,
    /// What a reader should know of the circumstances.
    pub notes: Vec<String>,
}

impl Report {
    pub fn new(name: impl Into<String>) -> Report {
        Report { name: name.into(), rows: Vec::new(), hash: None, notes: Vec::new() }
    }

    pub fn row(&mut self, case: &str, metric: &str, value: f64, unit: &str) -> &mut Row {
        let (case, metric, unit) = (case.to_string(), metric.to_string(), unit.to_string());
        self.rows.push(Row { case, metric, unit, values: vec![value], bar: None });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    pub fn held(&mut self, at: (&str, &str), value: f64, unit: &str, bar: Bar) {
        self.row(at.0, at.1, value, unit).bar = Some(bar);
    }

    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The rows of a histogram of nanoseconds, in microseconds.
    pub fn latency(&mut self, case: &str, what: &str, histogram: &Histogram<u64>) {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
            let value = histogram.value_at_quantile(quantile) as f64 / 1000.0;
            self.row(case, &format!("{what} {name}"), value, "µs");
        }
    }

    /// Holds a row that is there already to a bar.
    pub fn hold(&mut self, case: &str, metric: &str, bar: Bar) {
        for row in self.rows.iter_mut().filter(|row| row.case == case && row.metric == metric) {
            row.bar = Some(bar);
        }
    }

    /// Takes another round of the same measurement in. A row is known by its case and metric.
    pub fn merge(&mut self, other: Report) -> Result<(), BenchError> {
        if let (Some(first), Some(other)) = (self.hash, other.hash) {
            if first != other {
                return Err(BenchError::Different { first, other });
            }
        }
        for row in other.rows {
            let same = |known: &&mut Row| known.case == row.case && known.metric == row.metric;
            match self.rows.iter_mut().find(same) {
                Some(known) => known.values.extend(row.values),
                None => self.rows.push(row),
            }
        }
        other.notes.into_iter().for_each(|note| self.note(note));
        Ok(())
    }

    /// The rows whose median misses its bar.
    pub fn missed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.holds() == Some(false))
    }

    pub fn table(&self) -> String {
        let mut cells: Vec<[String; 7]> =
            vec![["case", "metric", "median", "spread", "unit", "bar", ""].map(str::to_string)];
        cells.extend(self.rows.iter().map(cells_of));
        let mut widths = [0; 7];
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = format!("{}\n", self.name);
        for row in &cells {
            let mut line = String::from(" ");
            for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
                let gap = " ".repeat(width - cell.chars().count());
                let _ = match at {
                    2 | 3 => write!(line, " {gap}{cell} "),
                    _ => write!(line, " {cell}{gap} "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "  - {note}");
        }
        if let Some(hash) = self.hash {
            let _ = writeln!(text, "  hash {hash:016x}");
        }
        text
    }
}

fn cells_of(row: &Row) -> [String; 7] {
    let (least, most) = row.spread();
    let spread = match row.values.len() {
        0 | 1 => String::new(),
        _ => format!("{}–{}", number(least), number(most)),
    };
    let bar = match row.bar {
        None => String::new(),
        Some(Bar::AtMost(most)) => format!("≤ {}", number(most)),
        Some(Bar::AtLeast(least)) => format!("≥ {}", number(least)),
        Some(Bar::Between(least, most)) => format!("{}–{}", number(least), number(most)),
    };
    let verdict = match row.holds() {
        None => "",
        Some(true) => "ok",
        Some(false) => "MISSED",
    };
    let (case, metric, unit) = (row.case.clone(), row.metric.clone(), row.unit.clone());
    [case, metric, number(row.median()), spread, unit, bar, verdict.to_string()]
}

/// Three significant digits, whole numbers from 100 on.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value == value.trunc() => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Reports as they are written to a file, with the machine they come from.
#[derive(Debug, Serialize)]
struct Document<'a> {
    kernel: String,
    cpus: usize,
    reports: &'a [Report],
}

pub fn write_json(path: &Path, reports: &[Report]) -> Result<(), BenchError> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let document = Document {
        kernel: kernel.trim().to_string(),
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get()),
        reports,
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    std::fs::write(path, text).map_err(BenchError::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_merged_row_by_row_and_judged_by_their_median() {
        let round = |value: f64| {
            let mut report = Report::new("sample");
            report.held(("a", "time"), value, "µs", Bar::AtMost(5.0));
            report.row("a", "count", value * 100.0, "");
            report.hash = Some(7);
            report
        };
        let mut report = round(9.0);
        report.merge(round(3.0)).unwrap();
        report.merge(round(4.0)).unwrap();
        assert_eq!(report.rows[0].values, [9.0, 3.0, 4.0]);
        assert_eq!(report.rows[0].holds(), Some(true));
        assert_eq!(report.missed().count(), 0);
        let table = report.table();
        assert!(table.contains("a     time         4 "), "{table}");
        assert!(table.contains("3–9") && table.contains("≤ 5") && table.contains("ok"), "{table}");
        let other = Report { hash: Some(8), ..round(1.0) };
        assert!(matches!(report.merge(other), Err(BenchError::Different { first: 7, other: 8 })));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn bars() {
        let check = |bar: Bar, value: f64, expect: bool| assert_eq!(bar.holds(value), expect);
        check(Bar::AtMost(1.0), 1.0, true);
        check(Bar::AtMost(1.0), 1.1, false);
        check(Bar::AtLeast(0.7), 0.69, false);
        check(Bar::Between(0.8, 1.2), 0.8, true);
        check(Bar::Between(0.8, 1.2), 1.21, false);
    }
}
