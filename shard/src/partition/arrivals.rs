//! When the records of a partition that are in no table yet came in, roughly.
//!
//! Told of appends by the log, asked by whoever decides when a table is written. A few samples of
//! (offset, broker's clock), further apart the longer nothing is written: the answer is early by at
//! most the distance of two of them, never late. Not kept over a restart: what is found in the log
//! then counts from the start.
//!
//! Worked example: appends at offsets 0, 1, 2, … every second; samples at 0 (0 s), 10 (10 s), 20
//! (20 s). When the table ends at 15, what is left came since 10 s.

use crate::ids::{Offset, Timestamp};

/// Samples kept; every second one goes when there are more.
const SAMPLES_MAX: usize = 8;
/// The least distance of two samples.
const STEP_MS: i64 = 10_000;

/// By offset; the first one is not above the first record that is in no table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    samples: Vec<(Offset, Timestamp)>,
}

impl Arrivals {
    /// Records from `at` on are appended now.
    pub fn note(&mut self, at: Offset, now: Timestamp) {
        // Twice as far apart for each time half of them went.
        let step_ms = match self.samples.as_slice() {
            [] => i64::MIN,
            [(_, first), .., (_, last)] => STEP_MS.max((last.0.saturating_sub(first.0)) / 8),
            [_] => STEP_MS,
        };
        let since_ms =
            self.samples.last().map_or(i64::MAX, |(_, last)| now.0.saturating_sub(last.0));
        if since_ms < step_ms {
            return;
        }
        if self.samples.len() >= SAMPLES_MAX {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.samples.push((at, now));
    }

    /// Everything below `end` is in the table; the log ends at `log_end`.
    pub fn settle(&mut self, end: Offset, log_end: Offset) {
        if end >= log_end {
            self.samples = Vec::new();
            return;
        }
        let past = self.samples.partition_point(|(at, _)| *at <= end);
        self.samples.drain(..past.saturating_sub(1));
    }

    /// When the oldest record in no table came, or earlier.
    pub fn since(&self) -> Option<Timestamp> {
        self.samples.first().map(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_left_is_as_old_as_the_sample_before_it() {
        let mut arrivals = Arrivals::default();
        for second in 0..30 {
            arrivals.note(Offset(second), Timestamp(second * 1000));
        }
        assert_eq!(arrivals.since(), Some(Timestamp(0)));
        arrivals.settle(Offset(15), Offset(30));
        assert_eq!(arrivals.since(), Some(Timestamp(10_000)));
        arrivals.settle(Offset(30), Offset(30));
        assert_eq!(arrivals.since(), None);
        arrivals.note(Offset(30), Timestamp(99_000));
        assert_eq!(arrivals.since(), Some(Timestamp(99_000)));
    }

    proptest! {
        #[test]
        fn the_answer_is_never_late_and_not_much_early(
            steps in proptest::collection::vec(1i64..60_000, 1..300),
            share in 0usize..100,
        ) {
            let mut arrivals = Arrivals::default();
            let mut times = Vec::new();
            let mut now = 0;
            for (at, step) in steps.iter().enumerate() {
                now += step;
                times.push(now);
                arrivals.note(Offset(at as i64), Timestamp(now));
                prop_assert!(arrivals.samples.len() <= SAMPLES_MAX);
            }
            let end = times.len() * share / 100;
            arrivals.settle(Offset(end as i64), Offset(times.len() as i64));
            let since = arrivals.since().map(|since| since.0);
            prop_assert!(since.is_some_and(|since| since <= times[end]));
            let span = now - times[0];
            prop_assert!(since.is_some_and(|since| times[end] - since <= 60_000 + span / 2));
        }
    }
}
