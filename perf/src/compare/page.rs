//! One HTML page of the comparison that needs nothing beside it: the bars, plots, and every figure.

use super::plot::{self, Series};
use super::results::Results;
use super::work::QUANTILES;
use crate::error::PerfError;
use benches::report::{Bar, Report, Row};
use std::fmt::Write as _;

/// What is plotted over the cases.
const PLOTTED: &[(&str, &str)] = &[
    ("rate", "rate, thousand messages a second"),
    ("CPU per million", "CPU seconds of the broker for a million messages"),
    ("CPU per GB", "CPU seconds of the broker for a GB"),
    ("memory", "most anonymous memory, MB"),
    ("written per byte", "bytes the device wrote for a byte produced"),
    ("to the first produce", "seconds from the start to the first produce"),
];
const STYLE: &str =
    "body{font:15px/1.45 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:.15em .8em;text-align:left;\
    border-bottom:1px solid #ddd}td.n{text-align:right;font-variant-numeric:tabular-nums}\
    .missed{color:#b00020;font-weight:bold}.ok{color:#1b7f3b}svg{max-width:100%;height:auto}";

pub fn html(results: &Results) -> Result<String, PerfError> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Basalt and Apache Kafka</title><style>{STYLE}</style></head><body>\n\
         <h1>Basalt and Apache Kafka on one machine</h1>\n"
    );
    table(&mut page, &results.bars());
    for (metric, title) in PLOTTED {
        let (labels, series) = over_cases(results, metric);
        page.push_str(&plot::bars(title, &labels, &series)?);
    }
    for case in cases_with(results, "p99.9") {
        let names: Vec<&str> = QUANTILES.iter().map(|(name, _)| *name).collect();
        let series: Vec<Series> = drawn(results)
            .map(|report| Series {
                name: report.name.clone(),
                values: names.iter().map(|name| value(report, &case, name)).collect(),
            })
            .collect();
        page.push_str(&plot::lines(&format!("{case}, end to end, ms"), &names, &series)?);
    }
    table(&mut page, &results.ratios);
    for report in results.peers.iter().filter(|report| !report.rows.is_empty()) {
        table(&mut page, report);
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

/// Brokers that did anything.
fn drawn(results: &Results) -> impl Iterator<Item = &Report> {
    results.peers.iter().filter(|report| !report.rows.is_empty())
}

fn over_cases(results: &Results, metric: &str) -> (Vec<String>, Vec<Series>) {
    let labels = cases_with(results, metric);
    let series = drawn(results).map(|report| Series {
        name: report.name.clone(),
        values: labels.iter().map(|case| value(report, case, metric)).collect(),
    });
    let series = series.collect();
    (labels, series)
}

/// The cases in which any broker has this figure, in the order in which they were run.
fn cases_with(results: &Results, metric: &str) -> Vec<String> {
    let mut cases: Vec<String> = Vec::new();
    for row in drawn(results).flat_map(|report| &report.rows) {
        if row.metric == metric && !cases.contains(&row.case) {
            cases.push(row.case.clone());
        }
    }
    cases
}

fn value(report: &Report, case: &str, metric: &str) -> Option<f64> {
    let row = report.rows.iter().find(|row| row.case == case && row.metric == metric);
    row.map(Row::median).filter(|value| *value > 0.0)
}

fn table(page: &mut String, report: &Report) {
    // Writing to a string cannot fail.
    let _ = write!(page, "<h2>{}</h2>\n<table><tr>", escape(&report.name));
    for head in ["case", "metric", "median", "rounds", "unit", "bar", ""] {
        let _ = write!(page, "<th>{head}</th>");
    }
    page.push_str("</tr>\n");
    for row in &report.rows {
        let rounds: Vec<String> = row.values.iter().map(|value| number(*value)).collect();
        let (class, verdict) = match row.holds() {
            None => ("", ""),
            Some(true) => ("ok", "ok"),
            Some(false) => ("missed", "missed"),
        };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{verdict}</td></tr>",
            escape(&row.case),
            escape(&row.metric),
            number(row.median()),
            rounds.join(" "),
            escape(&row.unit),
            row.bar.map_or(String::new(), bar),
        );
    }
    page.push_str("</table>\n");
    for note in &report.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
}

fn bar(bar: Bar) -> String {
    match bar {
        Bar::AtMost(most) => format!("≤ {}", number(most)),
        Bar::AtLeast(least) => format!("≥ {}", number(least)),
        Bar::Between(least, most) => format!("{}–{}", number(least), number(most)),
    }
}

/// Three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
