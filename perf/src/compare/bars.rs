//! Basalt to Kafka: the ratios of one round, and what they are held to.

use super::case::Case;
use super::peer::{Peer, PAIRS};
use benches::report::{Bar, Report, Row};

/// A ratio of Basalt's figure to Kafka's that has a bar.
struct Held {
    case: &'static str,
    metric: &'static str,
    /// Of the brokers that sync before they acknowledge, or of the others.
    syncs: bool,
    bar: Bar,
}

const HELD: &[Held] = &[
    held("produce-100B", "CPU per million", false, Bar::AtMost(0.2)),
    held("produce-1KiB", "CPU per million", false, Bar::AtMost(0.2)),
    held("produce-1KiB-1000p-all", "rate", true, Bar::AtLeast(10.0)),
    held("produce-1KiB-1000p-all-scattered", "rate", true, Bar::AtLeast(10.0)),
    held("latency-1000", "p99", false, Bar::AtMost(0.5)),
    held("latency-50000", "p99", false, Bar::AtMost(0.5)),
    held("latency-1000", "p99", true, Bar::AtMost(0.5)),
    held("latency-50000", "p99", true, Bar::AtMost(0.5)),
    held("consume-1KiB", "CPU per GB", false, Bar::AtMost(0.5)),
    held("produce-100B", "memory", false, Bar::AtMost(0.1)),
    held("produce-1KiB", "memory", false, Bar::AtMost(0.1)),
    held("consume-1KiB", "memory", false, Bar::AtMost(0.1)),
    held("start, empty", "to the first produce", false, Bar::AtMost(0.1)),
    held("start, 10000 partitions", "to the first produce", false, Bar::AtMost(0.1)),
];

/// What JSON records may take on the disk once they are columns, of a byte produced.
const AT_REST: Bar = Bar::AtMost(0.35);

const fn held(case: &'static str, metric: &'static str, syncs: bool, bar: Bar) -> Held {
    Held { case, metric, syncs, bar }
}

/// The ratios of what the brokers did in one round. A figure that only one of two has, and one
/// that is nothing at Kafka's, makes none.
pub fn ratios(round: &[(Peer, Report)]) -> Report {
    let of = |peer: Peer| round.iter().find(|(known, _)| *known == peer).map(|(_, report)| report);
    let mut all = Report::new("Basalt to Kafka");
    for (ours, theirs) in PAIRS {
        let (Some(ours_did), Some(theirs_did)) = (of(ours), of(theirs)) else { continue };
        for row in &ours_did.rows {
            let same = |other: &&Row| other.case == row.case && other.metric == row.metric;
            let Some(other) = theirs_did.rows.iter().find(same) else { continue };
            let ratio = row.median() / other.median();
            if !ratio.is_finite() {
                continue;
            }
            let case = match ours {
                Peer::BasaltCommit => format!("{}, synced", row.case),
                Peer::BasaltLog => format!("{}, no tables", row.case),
                _ => row.case.clone(),
            };
            let bar = HELD.iter().find(|held| {
                held.case == row.case && held.metric == row.metric && held.syncs == ours.syncs()
            });
            all.row(&case, &row.metric, ratio, "×").bar = bar.map(|held| held.bar);
        }
    }
    let at_rest = of(Peer::BasaltOs).into_iter().flat_map(|report| &report.rows);
    let is_it = |row: &&Row| row.metric == "records at rest per byte";
    for row in at_rest.filter(is_it) {
        let case = format!("{}, JSON, Basalt alone", Case::Disk);
        all.held((&case, &row.metric), row.median(), "B/B", AT_REST);
    }
    all
}

/// Those of the ratios that have a bar.
pub fn held_to_bars(ratios: &Report) -> Report {
    let rows = ratios.rows.iter().filter(|row| row.bar.is_some()).cloned().collect();
    Report { name: "bars, Basalt to Kafka".to_string(), rows, ..ratios.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::case::BARS;

    #[test]
    fn figures_of_both_become_ratios_with_bars() {
        let did = |cpu: f64, at_rest: f64| {
            let mut report = Report::new("one");
            report.row("produce-1KiB", "CPU per million", cpu, "CPU-s");
            report.row("produce-1KiB", "pages dirtied per byte", 1.0, "B/B");
            report.row("disk", "records at rest per byte", at_rest, "B/B");
            report
        };
        let mut kafka = did(4.0, 1.1);
        kafka.row("produce-1KiB", "of Kafka alone", 1.0, "");
        kafka.rows[1].values = vec![0.0];
        let all = ratios(&[(Peer::Kafka, kafka), (Peer::BasaltOs, did(1.0, 0.3))]);
        let cells: Vec<(&str, f64, Option<bool>)> =
            all.rows.iter().map(|row| (row.case.as_str(), row.median(), row.holds())).collect();
        let at_rest = 0.3 / 1.1;
        assert_eq!(
            cells,
            [
                ("produce-1KiB", 0.25, Some(false)),
                ("disk", at_rest, None),
                ("disk, JSON, Basalt alone", 0.3, Some(true)),
            ]
        );
        assert_eq!(held_to_bars(&all).rows.len(), 2);
    }

    #[test]
    fn brokers_that_sync_are_held_to_each_other() {
        let did = |rate: f64| {
            let mut report = Report::new("one");
            report.row("produce-1KiB-1000p-all", "rate", rate, "k msg/s");
            report
        };
        let round = [(Peer::KafkaFlush, did(2.0)), (Peer::BasaltCommit, did(30.0))];
        let all = ratios(&round);
        assert_eq!(all.rows[0].case, "produce-1KiB-1000p-all, synced");
        assert_eq!((all.rows[0].median(), all.rows[0].holds()), (15.0, Some(true)));
        // Without the same policy there is nothing to compare.
        let other = [(Peer::Kafka, did(2.0)), (Peer::BasaltCommit, did(30.0))];
        assert!(ratios(&other).rows.is_empty());
    }

    #[test]
    fn every_bar_is_about_a_case_of_those_that_are_run_for_it() {
        for held in HELD {
            let name = held.case.split(", ").next().unwrap();
            assert!(BARS.contains(&name), "{name}");
        }
    }
}
