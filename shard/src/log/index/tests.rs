//! What an index file gives back, and that damage to it is seen.

use super::super::directory::Directory;
use super::*;
use crate::disk::ReadFile;
use std::io;
use uuid::Uuid;

struct Memory(Vec<u8>);

impl ReadFile for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let from = &self.0[(offset as usize).min(self.0.len())..];
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }
}

fn entry(base: i64, frame_at: u32) -> BatchEntry {
    BatchEntry {
        base: Offset(base),
        max_timestamp: Timestamp(1000 - base),
        frame_at,
        batch_bytes: 100,
        last_delta: 4,
        leader_epoch: LeaderEpoch(1),
    }
}

fn sample() -> (SegmentIndex, IndexStamp) {
    let mut index = SegmentIndex::default();
    for dense in [3, 1, 2] {
        let key = PartitionKey { view: 0, topic: Uuid::from_u128(9), partition: dense as i32 };
        index.bind(DenseId(dense), key);
    }
    index.push(DenseId(3), entry(20, 4096));
    index.push(DenseId(3), entry(25, 4300));
    index.push(DenseId(1), entry(0, 4504).in_side_file());
    index.push_side(77);
    index.carry(DenseId(3), Offset(2), entry(3, 4704), RunKind::Carried);
    index.carry(DenseId(3), Offset(8), entry(8, 4904), RunKind::Cleaned);
    index.gap(DenseId(3), Offset(0), Offset(2));
    let (number, next_sequence) = (SegmentNumber(4), Sequence(11));
    (index, IndexStamp { number, epoch: 8, end: 9000, next_sequence })
}

#[test]
fn a_file_gives_back_what_was_put_in() {
    let (index, stamp) = sample();
    let file = Memory(index.encode(&stamp));
    let directory = Directory::read(&file).unwrap();
    assert_eq!((directory.stamp, &directory.sides[..]), (stamp, &[77][..]));
    assert_eq!(directory.summaries().copied().collect::<Vec<_>>(), index.summaries());
    let kinds: Vec<_> = index.summaries().iter().map(|s| (s.dense.0, s.kind)).collect();
    let three = [RunKind::Gap, RunKind::Carried, RunKind::Cleaned, RunKind::Appended];
    let three = three.map(|kind| (3, Some(kind)));
    assert_eq!(kinds[..2], [(1, Some(RunKind::Appended)), (2, None)]);
    assert_eq!(kinds[2..], three);
    for (offset, bases) in [(1, &[][..]), (2, &[3]), (8, &[8]), (13, &[]), (20, &[20, 25])] {
        let got = directory.entries(&file, DenseId(3), Offset(offset)).unwrap();
        assert_eq!(got.iter().map(|entry| entry.base.0).collect::<Vec<_>>(), bases, "{offset}");
        assert_eq!(got, index.entries(DenseId(3), Offset(offset)));
    }
    assert_eq!(index.summaries()[5].max_timestamp, Timestamp(980));
    assert!(directory.entries(&file, DenseId(2), Offset(0)).unwrap().is_empty());
}

#[test]
fn damage_and_cuts_are_refused() {
    let (index, stamp) = sample();
    let whole = index.encode(&stamp);
    for at in 0..whole.len() {
        let mut bent = whole.clone();
        bent[at] ^= 1;
        assert!(!reads_clean(&Memory(bent)), "byte {at}");
        assert!(!reads_clean(&Memory(whole[..at].to_vec())), "cut at {at}");
    }
}

fn reads_clean(file: &Memory) -> bool {
    let Ok(directory) = Directory::read(file) else {
        return false;
    };
    [(1, 0), (3, 2), (3, 8), (3, 20)]
        .iter()
        .all(|&(dense, offset)| directory.entries(file, DenseId(dense), Offset(offset)).is_ok())
}
