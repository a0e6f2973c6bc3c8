//! What all rounds found: a report for each broker and one of ratios, as a folder with JSON and a
//! page that shows it.

use super::bars::{held_to_bars, ratios};
use super::page;
use super::peer::{Peer, PEERS};
use crate::error::PerfError;
use benches::report::{write_json, Report};
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// In the order of `PEERS`.
    pub peers: Vec<Report>,
    pub ratios: Report,
}

impl Default for Results {
    fn default() -> Self {
        let peers = PEERS.iter().map(|peer| Report::new(peer.name())).collect();
        Results { peers, ratios: ratios(&[]) }
    }
}

impl Results {
    /// Takes a round in.
    pub fn add(&mut self, round: Vec<(Peer, Report)>) -> Result<(), PerfError> {
        self.ratios.merge(ratios(&round))?;
        for (peer, report) in round {
            let known = self.peers.iter_mut().find(|known| known.name == peer.name());
            if let Some(known) = known {
                known.merge(report)?;
            }
        }
        Ok(())
    }

    /// How often anything was measured.
    pub fn rounds(&self) -> usize {
        let rows = self.peers.iter().flat_map(|report| &report.rows);
        rows.map(|row| row.values.len()).max().unwrap_or(0)
    }

    /// The bars alone.
    pub fn bars(&self) -> Report {
        held_to_bars(&self.ratios)
    }

    /// What a terminal is shown: the bars last.
    pub fn text(&self) -> String {
        let used = self.peers.iter().filter(|report| !report.rows.is_empty());
        let mut text: String = used.map(|report| report.table() + "\n").collect();
        text.push_str(&self.ratios.table());
        text.push('\n');
        text.push_str(&self.bars().table());
        text
    }

    /// Writes `compare.json` and `compare.html`.
    pub fn write(&self, folder: &Path) -> Result<(), PerfError> {
        fs::create_dir_all(folder).map_err(PerfError::file(folder))?;
        let mut all = self.peers.clone();
        all.push(self.ratios.clone());
        write_json(&folder.join("compare.json"), &all)?;
        let path = folder.join("compare.html");
        fs::write(&path, page::html(self)?).map_err(PerfError::file(&path))
    }

    /// What an earlier run has written; nothing where there was none.
    pub fn read(folder: &Path) -> Result<Results, PerfError> {
        let path = folder.join("compare.json");
        if !path.exists() {
            return Ok(Results::default());
        }
        let text = fs::read_to_string(&path).map_err(PerfError::file(&path))?;
        let mut document: serde_json::Value = serde_json::from_str(&text)?;
        let reports = document.get_mut("reports").map(serde_json::Value::take);
        let reports: Vec<Report> = serde_json::from_value(reports.unwrap_or_default())?;
        let mut results = Results::default();
        for report in reports {
            let mut known = results.peers.iter_mut().chain([&mut results.ratios]);
            match known.find(|known| known.name == report.name) {
                Some(known) => *known = report,
                None => {
                    let what = format!("{} is of no broker compared here", report.name);
                    return Err(PerfError::Answer(what));
                }
            }
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(scale: f64) -> Vec<(Peer, Report)> {
        let did = |peer: Peer, factor: f64| {
            let mut report = Report::new(peer.name());
            for case in ["produce-100B", "produce-1KiB"] {
                report.row(case, "rate", 100.0 / factor, "k msg/s");
                report.row(case, "CPU per million", factor * scale, "CPU-s");
                report.row(case, "memory", 100.0 * factor, "MB");
            }
            for (number, (quantile, _)) in crate::compare::work::QUANTILES.iter().enumerate() {
                report.row("latency-1000", quantile, factor * (number + 1) as f64, "ms");
            }
            (peer, report)
        };
        vec![did(Peer::Kafka, 8.0), did(Peer::BasaltOs, 1.0), did(Peer::BasaltCommit, 2.0)]
    }

    #[test]
    fn rounds_are_written_shown_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new");
        assert_eq!(Results::read(&folder).unwrap(), Results::default());
        let mut results = Results::default();
        results.add(round(1.0)).unwrap();
        results.add(round(3.0)).unwrap();
        assert_eq!(results.rounds(), 2);
        results.peers[0].note("<odd> & ends");
        results.write(&folder).unwrap();
        assert_eq!(Results::read(&folder).unwrap(), results);
        let text = results.text();
        assert!(text.contains("bars, Basalt to Kafka") && text.contains("≤ 0.200"), "{text}");
        let html = fs::read_to_string(folder.join("compare.html")).unwrap();
        // The plots are in the page, which asks nobody for anything.
        assert!(html.matches("<svg").count() >= 4, "{html}");
        assert!(!html.contains("<script") && !html.contains("src="));
        assert!(html.contains("&lt;odd&gt; &amp; ends") && html.contains("≤ 0.200"));
        let of_nobody = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!of_nobody.contains("http"), "{of_nobody}");
    }
}
