//! Batches of every kind for tests, and the records that are to come out of them.

use crate::batch::{
    expand, place, BatchBuilder, BatchHeader, Codec, Expander, Header, Limits, NewRecord, Records,
};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::table::Part;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub offset: i64,
    pub timestamp: i64,
    pub is_append_time: bool,
    pub epoch: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A record to be sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Offsets left out before it.
    gap: i32,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A batch to be sent.
#[derive(Clone, Debug)]
pub struct SentBatch {
    /// Offsets left out before it.
    gap: i64,
    codec: Codec,
    epoch: i32,
    append_time: Option<i64>,
    is_control: bool,
    records: Vec<Sent>,
}

pub fn sent_batches(most: usize) -> impl Strategy<Value = Vec<SentBatch>> {
    vec(sent_batch(), 0..most)
}

fn sent_batch() -> impl Strategy<Value = SentBatch> {
    let codec = prop_oneof![
        3 => Just(Codec::None),
        1 => Just(Codec::Gzip),
        1 => Just(Codec::Snappy),
        1 => Just(Codec::Lz4),
        1 => Just(Codec::Zstd),
    ];
    let gap = prop_oneof![6 => Just(0), 2 => 1i64..100, 1 => Just(3 << 31)];
    let time = option::weighted(0.2, timestamp());
    let control = prop::bool::weighted(0.1);
    (gap, codec, 0i32..3, time, control, vec(sent(), 0..20)).prop_map(
        |(gap, codec, epoch, append_time, is_control, records)| SentBatch {
            gap,
            codec,
            epoch,
            append_time,
            is_control,
            records,
        },
    )
}

fn timestamp() -> impl Strategy<Value = i64> {
    let extremes = [i64::MIN, i64::MAX, -1, 0, -62_135_596_800_001, 253_402_300_800_000];
    let extreme = prop::sample::select(extremes.to_vec());
    prop_oneof![4 => 1_700_000_000_000i64..1_700_000_100_000, 1 => extreme]
}

fn sent() -> impl Strategy<Value = Sent> {
    let gap = prop_oneof![8 => Just(0), 1 => 1i32..1000];
    let blob = || option::weighted(0.8, vec(any::<u8>(), 0..40));
    let header_key = prop_oneof![Just(b"trace".to_vec()), vec(any::<u8>(), 0..4)];
    let header = (header_key, option::weighted(0.7, vec(any::<u8>(), 0..6)));
    let headers = prop_oneof![2 => Just(Vec::new()), 1 => vec(header, 0..5)];
    (gap, timestamp(), blob(), blob(), headers).prop_map(|(gap, timestamp, key, value, headers)| {
        Sent { gap, timestamp, key, value, headers }
    })
}

/// The batches as the log holds them, what consumers see of them, and the log's end.
pub fn built(batches: &[SentBatch], start: i64) -> (Vec<Vec<u8>>, Vec<Seen>, i64) {
    let mut next = start;
    let mut bytes = Vec::new();
    let mut seen = Vec::new();
    for sent in batches {
        next += sent.gap;
        let (batch, end) = sent.build(next, &mut seen);
        bytes.push(batch);
        next = end;
    }
    (bytes, seen, next)
}

impl SentBatch {
    fn build(&self, base: i64, seen: &mut Vec<Seen>) -> (Vec<u8>, i64) {
        let mut builder = BatchBuilder::new().codec(self.codec);
        if let Some(time) = self.append_time {
            builder = builder.appended_at(Timestamp(time));
        }
        if self.is_control {
            builder = builder.producer(ProducerId(9), ProducerEpoch(0), -1);
        }
        let mut next = base;
        for sent in &self.records {
            builder.skip(sent.gap);
            next += i64::from(sent.gap);
            let headers: Vec<Header<'_>> = sent
                .headers
                .iter()
                .map(|(key, value)| Header { key, value: value.as_deref() })
                .collect();
            builder.push(&NewRecord {
                timestamp: Timestamp(sent.timestamp),
                key: sent.key.as_deref(),
                value: sent.value.as_deref(),
                headers: &headers,
            });
            if !self.is_control {
                seen.push(Seen {
                    offset: next,
                    timestamp: self.append_time.unwrap_or(sent.timestamp),
                    is_append_time: self.append_time.is_some(),
                    epoch: self.epoch,
                    key: sent.key.clone(),
                    value: sent.value.clone(),
                    headers: sent.headers.clone(),
                });
            }
            next += 1;
        }
        // A batch covers at least one offset.
        if next == base {
            builder.skip(1);
            next += 1;
        }
        let mut batch = builder.build();
        if self.is_control {
            let (mut header, body, _) = BatchHeader::split(&batch).unwrap();
            header.attributes.0 |= 1 << 5;
            header.crc = header.crc_with(body);
            batch = [&header.encode()[..], body].concat();
        }
        place(&mut batch, Offset(base), LeaderEpoch(self.epoch));
        (batch, next)
    }
}

/// What a consumer sees in these batches, and the offset it goes on from.
pub fn consumed(mut bytes: &[u8]) -> (Vec<Seen>, Option<i64>) {
    let mut seen = Vec::new();
    let mut next = None;
    while !bytes.is_empty() {
        let (header, body, rest) = BatchHeader::split(bytes).unwrap();
        assert_eq!(header.crc, header.crc_with(body));
        assert!(next.is_none_or(|next| header.base_offset.0 >= next), "batches overlap");
        assert!(header.last_offset_delta >= 0);
        let mut expander = Expander::default();
        let codec = header.attributes.codec().unwrap();
        let records = expand(codec, body, &Limits::default(), &mut expander).unwrap();
        let mut times = Vec::new();
        for record in Records::new(records, header.record_count) {
            let record = record.unwrap();
            assert!(record.offset_delta <= header.last_offset_delta);
            let own = header.base_timestamp.0.wrapping_add(record.timestamp_delta);
            times.push(own);
            if header.attributes.is_control() {
                continue;
            }
            let is_append_time = header.attributes.is_append_time();
            seen.push(Seen {
                offset: header.base_offset.0 + i64::from(record.offset_delta),
                timestamp: if is_append_time { header.max_timestamp.0 } else { own },
                is_append_time,
                epoch: header.leader_epoch.0,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers()
                    .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                    .collect(),
            });
        }
        if !header.attributes.is_append_time() {
            assert_eq!(header.max_timestamp.0, times.iter().copied().max().unwrap_or(-1).max(-1));
        }
        next = Some(header.end_offset().0);
        bytes = rest;
    }
    (seen, next)
}

/// A part whose numbers follow from its offsets.
pub fn part(partition: i32, first: i64, end: i64) -> Part {
    Part {
        partition,
        first: Offset(first),
        end: Offset(end),
        rows: (end - first) as u64,
        raw_bytes: 100,
        min_timestamp: Timestamp(first),
        max_timestamp: Timestamp(end),
        max_append_time: Timestamp(end),
    }
}
