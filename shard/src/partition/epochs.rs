//! The leader epochs of a partition: where each began.
//!
//! Set at appends and in recovery, asked by clients that fetched under an earlier epoch
//! (OffsetForLeaderEpoch). Only epochs under which something was appended have an entry, so an
//! idle partition costs nothing however often the broker restarts.
//!
//! Kept in checkpoints, little-endian; no entry is no bytes:
//!
//! | bytes         | field                                             |
//! |---------------|---------------------------------------------------|
//! | 0             | format, 1                                         |
//! | 1 + 12n (4)   | leader epoch, ascending                           |
//! | 5 + 12n (8)   | the offset of its first record, ascending         |

use super::damage::{Fields, StateDamage};
use crate::ids::{LeaderEpoch, Offset};

const FORMAT: u8 = 1;
const ENTRY_BYTES: usize = 12;

/// Epochs and their first offsets, both strictly ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochHistory {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl EpochHistory {
    /// Beyond this the oldest epoch is forgotten. That is safe: nothing below the first known
    /// epoch was ever cut off, so the answer "ends where the first known one begins" truncates no
    /// client.
    pub const ENTRIES_MAX: usize = 64;

    /// Records are appended from `log_end` on under `epoch`. An epoch that is not newer than the
    /// latest changes nothing.
    pub fn assign(&mut self, epoch: LeaderEpoch, log_end: Offset) {
        if self.latest().is_some_and(|latest| epoch <= latest) {
            return;
        }
        while self.entries.last().is_some_and(|&(_, start)| start >= log_end) {
            self.entries.pop();
        }
        if self.entries.len() >= Self::ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.reserve_exact(1);
        self.entries.push((epoch, log_end));
    }

    /// The latest epoch under which something was appended.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// The largest epoch not above `requested`, and the offset where it ended. `current` is the
    /// epoch the partition is led under now, which ends at `log_end`. `None` for an epoch that is
    /// none of ours.
    ///
    /// With entries (3 → 0), (5 → 100), current 7 and log end 150: 4 gives (3, 100), 6 gives
    /// (5, 150), 7 gives (7, 150), 8 gives none, 2 gives (2, 0).
    pub fn end_of(
        &self,
        requested: LeaderEpoch,
        current: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if requested.0 < 0 || requested > current {
            return None;
        }
        if requested == current {
            return Some((current, log_end));
        }
        let next = self.entries.partition_point(|&(epoch, _)| epoch <= requested);
        let end = self.entries.get(next).map_or(log_end, |&(_, start)| start);
        let found = next.checked_sub(1).and_then(|at| self.entries.get(at));
        Some((found.map_or(requested, |&(epoch, _)| epoch), end))
    }

    /// The log now starts at `log_start`: epochs that ended before it are forgotten.
    pub fn truncate_start(&mut self, log_start: Offset) {
        let below = self.entries.partition_point(|&(_, start)| start <= log_start);
        if below == 0 {
            return;
        }
        self.entries.drain(..below - 1);
        if let Some(first) = self.entries.first_mut() {
            first.1 = log_start;
        }
        self.entries.shrink_to_fit();
    }

    pub fn encode(&self) -> Vec<u8> {
        if self.entries.is_empty() {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(1 + ENTRY_BYTES * self.entries.len());
        out.push(FORMAT);
        for (epoch, start) in &self.entries {
            out.extend(epoch.0.to_le_bytes());
            out.extend(start.0.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<EpochHistory, StateDamage> {
        let mut fields = Fields(bytes);
        let mut entries = Vec::new();
        if bytes.is_empty() {
            return Ok(EpochHistory { entries });
        }
        match fields.u8()? {
            FORMAT => {}
            other => return Err(StateDamage::Version(other)),
        }
        let count = fields.0.len() / ENTRY_BYTES;
        if count > Self::ENTRIES_MAX {
            return Err(StateDamage::Length);
        }
        entries.reserve_exact(count);
        let mut before = (LeaderEpoch(-1), Offset(-1));
        while !fields.0.is_empty() {
            let entry = (LeaderEpoch(fields.i32()?), Offset(fields.i64()?));
            if entry.0 <= before.0 || entry.1 <= before.1 {
                return Err(StateDamage::Field);
            }
            entries.push(entry);
            before = entry;
        }
        Ok(EpochHistory { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn history(entries: &[(i32, i64)]) -> EpochHistory {
        let mut history = EpochHistory::default();
        for &(epoch, start) in entries {
            history.assign(LeaderEpoch(epoch), Offset(start));
        }
        history
    }

    fn entries(history: &EpochHistory) -> Vec<(i32, i64)> {
        history.entries.iter().map(|(epoch, start)| (epoch.0, start.0)).collect()
    }

    #[test]
    fn only_newer_epochs_are_added() {
        let check = |assigned: &[(i32, i64)], expect: &[(i32, i64)]| {
            assert_eq!(entries(&history(assigned)), expect);
        };
        check(&[(1, 0), (1, 5), (1, 9)], &[(1, 0)]);
        check(&[(1, 0), (3, 5)], &[(1, 0), (3, 5)]);
        check(&[(3, 0), (1, 5)], &[(3, 0)]);
        // Nothing was appended under 2.
        check(&[(1, 0), (2, 5), (3, 5)], &[(1, 0), (3, 5)]);
        check(&[(1, 0), (2, 0)], &[(2, 0)]);
    }

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next() {
        let check = |entries: &[(i32, i64)], requested, expect: Option<(i32, i64)>| {
            let (requested, current) = (LeaderEpoch(requested), LeaderEpoch(7));
            let got = history(entries).end_of(requested, current, Offset(150));
            let expect = expect.map(|(epoch, end)| (LeaderEpoch(epoch), Offset(end)));
            assert_eq!(got, expect, "{entries:?} {requested}");
        };
        let two = [(3, 0), (5, 100)];
        check(&two, -1, None);
        check(&two, 2, Some((2, 0)));
        check(&two, 3, Some((3, 100)));
        check(&two, 4, Some((3, 100)));
        check(&two, 5, Some((5, 150)));
        check(&two, 6, Some((5, 150)));
        check(&two, 7, Some((7, 150)));
        check(&two, 8, None);
        check(&[], 7, Some((7, 150)));
        check(&[], 0, Some((0, 150)));
        check(&[(7, 10)], 6, Some((6, 10)));
        check(&[(7, 10)], 7, Some((7, 150)));
    }

    #[test]
    fn a_raised_log_start_forgets_what_ended_before_it() {
        let check = |log_start, expect: &[(i32, i64)]| {
            let mut history = history(&[(3, 10), (5, 100), (6, 120)]);
            history.truncate_start(Offset(log_start));
            assert_eq!(entries(&history), expect, "{log_start}");
        };
        check(0, &[(3, 10), (5, 100), (6, 120)]);
        check(9, &[(3, 10), (5, 100), (6, 120)]);
        check(10, &[(3, 10), (5, 100), (6, 120)]);
        check(50, &[(3, 50), (5, 100), (6, 120)]);
        check(100, &[(5, 100), (6, 120)]);
        check(119, &[(5, 119), (6, 120)]);
        check(500, &[(6, 500)]);
        EpochHistory::default().truncate_start(Offset(5));
    }

    #[test]
    fn the_oldest_of_many_epochs_is_forgotten() {
        let mut history = EpochHistory::default();
        for epoch in 0..100 {
            history.assign(LeaderEpoch(epoch), Offset(i64::from(epoch) * 10));
        }
        assert_eq!(history.entries.len(), EpochHistory::ENTRIES_MAX);
        assert_eq!(entries(&history)[0], (36, 360));
        assert_eq!(history.latest(), Some(LeaderEpoch(99)));
    }

    #[test]
    fn bytes_stand_as_documented() {
        let bytes = history(&[(3, 0x0102), (5, 0x0304)]).encode();
        let mut expect = vec![1, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        expect.extend([5, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, expect);
        assert!(EpochHistory::default().encode().is_empty());

        let check = |bytes: &[u8], expect| {
            assert_eq!(EpochHistory::decode(bytes), Err(expect), "{bytes:?}");
        };
        check(&[2], StateDamage::Version(2));
        check(&bytes[..24], StateDamage::Length);
        check(&[&bytes[..], &bytes[1..]].concat(), StateDamage::Field);
        check(&[1; 1 + 12 * 65], StateDamage::Length);
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(
            steps in proptest::collection::vec((0i32..100, 0i64..20, any::<bool>()), 0..100),
        ) {
            let (mut history, mut end) = (EpochHistory::default(), 0);
            for (epoch, more, truncate) in steps {
                history.assign(LeaderEpoch(epoch), Offset(end));
                end += more;
                if truncate {
                    history.truncate_start(Offset(end));
                }
                prop_assert_eq!(EpochHistory::decode(&history.encode()), Ok(history.clone()));
            }
        }

        #[test]
        fn any_bytes_decode_without_a_panic(bytes in proptest::collection::vec(0u8..3, 0..60)) {
            if let Ok(history) = EpochHistory::decode(&bytes) {
                prop_assert!(bytes.len() < 2 || history.encode() == bytes);
            }
        }
    }
}
