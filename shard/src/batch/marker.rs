//! Transaction markers: the control batches that end a transaction in a partition.
//!
//! Written by the broker alone (clients' control batches are refused), read back in recovery. A
//! marker is a batch of one record whose key is (version i16, kind i16) and whose value is
//! (version i16, coordinator epoch i32). Kinds other than abort and commit are none of ours.

use super::builder::{place, BatchBuilder, NewRecord};
use super::header::BatchHeader;
use super::records::Records;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerKind {
    Abort,
    Commit,
}

/// What a marker says, beside the producer in the header of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pub kind: MarkerKind,
    pub coordinator_epoch: i32,
}

impl Marker {
    /// The whole control batch, to be placed like any other.
    pub fn build(&self, id: ProducerId, epoch: ProducerEpoch, now: Timestamp) -> Vec<u8> {
        let mut batch = BatchBuilder::new().producer(id, epoch, -1).transactional().control();
        self.push(&mut batch, now);
        batch.build()
    }

    fn push(&self, batch: &mut BatchBuilder, now: Timestamp) {
        let kind = match self.kind {
            MarkerKind::Abort => 0,
            MarkerKind::Commit => 1,
        };
        let key = [0, 0, 0, kind];
        let mut value = [0; 6];
        value[2..].copy_from_slice(&self.coordinator_epoch.to_be_bytes());
        batch.push(&NewRecord {
            timestamp: now,
            key: Some(&key),
            value: Some(&value),
            headers: &[],
        });
    }

    /// The marker in a control batch with this header and body; `None` if it holds none.
    pub fn read(header: &BatchHeader, body: &[u8]) -> Option<Marker> {
        if !header.attributes.is_control() {
            return None;
        }
        let record = Records::new(body, header.record_count).next()?.ok()?;
        let kind = match *record.key? {
            [_, _, 0, 0, ..] => MarkerKind::Abort,
            [_, _, 0, 1, ..] => MarkerKind::Commit,
            _ => return None,
        };
        let epoch = record.value?.get(2..6)?.first_chunk::<4>()?;
        Some(Marker { kind, coordinator_epoch: i32::from_be_bytes(*epoch) })
    }
}

/// A batch for consumers to move on over the offsets from `base` to `last`, where there is nothing.
///
/// Some clients count records and not offsets (kafkajs; kafka-go goes on by one offset): over a
/// batch without records they never get. So it holds a marker, at `last`, which all of them pass
/// over without showing it; the transaction it commits is that of no producer.
pub fn gap_batch(base: Offset, last: Offset, epoch: LeaderEpoch) -> Vec<u8> {
    let covers = last.0 - base.0;
    assert!((0..i64::from(i32::MAX)).contains(&covers), "a batch cannot cover {base} to {last}");
    let mut builder = BatchBuilder::new().control();
    builder.skip(covers as i32);
    let marker = Marker { kind: MarkerKind::Commit, coordinator_epoch: 0 };
    marker.push(&mut builder, Timestamp(-1));
    let mut batch = builder.build();
    place(&mut batch, base, epoch);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_a_marker_at_its_last_offset() {
        let check = |base: i64, last: i64| {
            let batch = gap_batch(Offset(base), Offset(last), LeaderEpoch(3));
            let (header, body, rest) = BatchHeader::split(&batch).unwrap();
            assert!(rest.is_empty() && header.attributes.is_control() && !header.has_producer());
            assert_eq!((header.base_offset.0, header.last_offset().0), (base, last));
            assert_eq!((header.crc, header.leader_epoch.0), (header.crc_with(body), 3));
            let records: Vec<_> = Records::new(body, header.record_count).collect();
            let [Ok(record)] = records[..] else { panic!("{records:?}") };
            assert_eq!(base + i64::from(record.offset_delta), last);
            let committed = Marker { kind: MarkerKind::Commit, coordinator_epoch: 0 };
            assert_eq!(Marker::read(&header, body), Some(committed));
        };
        check(0, 0);
        check(7, 12);
        check(1 << 40, (1 << 40) + i64::from(i32::MAX) - 1);
    }

    #[test]
    fn markers_are_read_back() {
        for kind in [MarkerKind::Abort, MarkerKind::Commit] {
            let marker = Marker { kind, coordinator_epoch: 0x01020304 };
            let batch = marker.build(ProducerId(7), ProducerEpoch(3), Timestamp(1000));
            let (header, body, rest) = BatchHeader::split(&batch).unwrap();
            assert!(rest.is_empty());
            assert!(header.attributes.is_control() && header.attributes.is_transactional());
            assert_eq!(
                (header.producer_id, header.producer_epoch),
                (ProducerId(7), ProducerEpoch(3))
            );
            assert_eq!((header.base_sequence, header.max_timestamp), (-1, Timestamp(1000)));
            assert_eq!(Marker::read(&header, body), Some(marker));
        }
    }

    #[test]
    fn a_marker_has_the_bytes_consumers_expect() {
        let marker = Marker { kind: MarkerKind::Commit, coordinator_epoch: 5 };
        let batch = marker.build(ProducerId(1), ProducerEpoch(0), Timestamp(9));
        let record = [32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 5, 0];
        assert_eq!(batch[61..], record);
    }

    #[test]
    fn what_is_no_marker_is_none() {
        let mut data = BatchBuilder::new();
        data.push(&NewRecord {
            key: Some(&[0, 0, 0, 1]),
            value: Some(&[0; 6]),
            ..Default::default()
        });
        let check = |batch: &[u8]| {
            let (header, body, _) = BatchHeader::split(batch).unwrap();
            assert_eq!(Marker::read(&header, body), None);
        };
        check(&data.clone().build());
        for (key, value) in
            [(&[0, 0, 0, 2][..], &[0; 6][..]), (&[0, 0, 0], &[0; 6]), (&[0; 4], &[0; 5])]
        {
            let mut batch = BatchBuilder::new().control();
            batch.push(&NewRecord { key: Some(key), value: Some(value), ..Default::default() });
            check(&batch.build());
        }
        check(&BatchBuilder::new().control().build());
    }
}
