//! The rounds: each broker in turn does all that is asked for, then its figures are compared.

use super::case::Case;
use super::peer::{Peer, Products, PEERS};
use super::results::Results;
use super::standing::Standing;
use super::work::{measure, warm_up, At, Scale};
use crate::error::PerfError;
use crate::tool::Tool;
use crate::topics::Topics;
use benches::report::Report;
use std::time::Instant;

/// What is run, with what.
#[derive(Debug)]
pub struct Plan {
    pub products: Products,
    pub tool: Tool,
    pub cases: Vec<Case>,
    pub scale: Scale,
    /// For which each broker is at work before it is measured.
    pub warm_up_seconds: u64,
}

impl Plan {
    /// One round after the other, every other one backwards. `done` is told the results of each.
    /// Returns how many cases failed: a broker on which one does is left for that round, with a
    /// note.
    pub fn run(
        &self,
        rounds: usize,
        results: &mut Results,
        done: impl Fn(&Results) -> Result<(), PerfError>,
    ) -> Result<usize, PerfError> {
        let (mut failed, before) = (0, results.rounds());
        let mut standing = Standing::new(&self.products, &self.tool, self.scale);
        for round in 0..rounds {
            let started = Instant::now();
            eprintln!("round {} of {rounds}", round + 1);
            let mut order = PEERS;
            if (before + round) % 2 == 1 {
                order.reverse();
            }
            let mut did: Vec<(Peer, Report)> =
                order.iter().map(|peer| (*peer, Report::new(peer.name()))).collect();
            for (peer, report) in &mut did {
                if let Err(error) = self.at_work(*peer, report) {
                    failed += 1;
                    note(*peer, report, &error);
                }
            }
            for case in self.cases.iter().filter(|case| case.stands_alone()) {
                for (peer, report) in did.iter_mut().filter(|(peer, _)| case.is_for(*peer)) {
                    match told(*peer, *case, || standing.measure(*peer, *case)) {
                        Ok(measured) => report.merge(measured)?,
                        Err(error) => {
                            failed += 1;
                            note(*peer, report, &error);
                        }
                    }
                }
            }
            results.add(did)?;
            done(results)?;
            eprintln!("round {} took {} s", round + 1, started.elapsed().as_secs());
        }
        Ok(failed)
    }

    /// The cases of one broker that runs all the time.
    fn at_work(&self, peer: Peer, report: &mut Report) -> Result<(), PerfError> {
        let is_mine = |case: &&Case| !case.stands_alone() && case.is_for(peer);
        if !self.cases.iter().any(|case| is_mine(&case)) {
            return Ok(());
        }
        let data = self.products.data_dir()?;
        let broker = self.products.start(peer, data.path(), &[])?;
        let at = At {
            broker: &broker,
            data: data.path(),
            topics: Topics::at(&broker.address)?,
            tool: &self.tool,
            products: &self.products,
            scale: self.scale,
        };
        eprintln!("  {}: warming up", peer.name());
        warm_up(&at, self.warm_up_seconds)?;
        for case in self.cases.iter().filter(is_mine) {
            report.merge(told(peer, *case, || measure(&at, *case))?)?;
        }
        drop(at);
        broker.stop()
    }
}

fn note(peer: Peer, report: &mut Report, error: &PerfError) {
    eprintln!("  {} FAILED: {error}", peer.name());
    report.note(format!("FAILED: {error}"));
}

/// Measures, and says how it went.
fn told(
    peer: Peer,
    case: Case,
    run: impl FnOnce() -> Result<Report, PerfError>,
) -> Result<Report, PerfError> {
    let started = Instant::now();
    let failed = |error| PerfError::Case { case: case.to_string(), source: Box::new(error) };
    let report = run().map_err(failed)?;
    let figures: Vec<String> = report
        .rows
        .iter()
        .take(3)
        .map(|row| format!("{} {:.3} {}", row.metric, row.median(), row.unit))
        .collect();
    let seconds = started.elapsed().as_secs();
    eprintln!("  {}, {case}: {} ({seconds} s)", peer.name(), figures.join(", "));
    Ok(report)
}
