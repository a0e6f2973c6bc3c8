//! The records that tables are measured with: JSON of about 300 bytes, as services send it.
//!
//! Names, words and times repeat as they do in real topics; ids, amounts and numbers of users do
//! not. The same seed gives the same batches.

use crate::drive::RECORD_TIME;
use shard::batch::{place, BatchBuilder, NewRecord};
use shard::ids::{LeaderEpoch, Offset, Timestamp};
use std::fmt::Write;

const EVENTS: [&str; 8] = [
    "order.created",
    "order.paid",
    "order.shipped",
    "cart.updated",
    "session.started",
    "page.viewed",
    "invoice.sent",
    "payment.failed",
];
const COUNTRIES: [&str; 8] = ["DE", "FR", "US", "JP", "BR", "IN", "SE", "KE"];
const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64)",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_2 like Mac OS X)",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64)",
    "okhttp/4.12.0",
];
/// What a producer gathers at a linger of some milliseconds.
const BATCH_BYTES: usize = 64 << 10;

/// Batches as the log holds them, one after the other from offset 0.
pub struct Events {
    pub batches: Vec<Vec<u8>>,
    pub bytes: u64,
    pub records: i64,
}

impl Events {
    /// Batches of so many bytes in all.
    pub fn new(bytes: u64) -> Events {
        let mut all = Events { batches: Vec::new(), bytes: 0, records: 0 };
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        while all.bytes < bytes {
            let base = Offset(all.records);
            let batch = all.batch(&mut random, base);
            all.bytes += batch.len() as u64;
            all.batches.push(batch);
        }
        all
    }

    fn batch(&mut self, random: &mut Random, base: Offset) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        let mut value = String::new();
        while builder.bytes() < BATCH_BYTES {
            let timestamp = Timestamp(RECORD_TIME.0 + self.records / 50);
            value.clear();
            write_event(&mut value, random, timestamp.0);
            let key = random.below(100_000).to_string();
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            builder.push(&NewRecord { timestamp, key, value, headers: &[] });
            self.records += 1;
        }
        let mut batch = builder.build();
        place(&mut batch, base, LeaderEpoch(1));
        batch
    }
}

/// Values of exactly so many bytes, for clients that make batches themselves: events in a row, the
/// last one cut off.
pub fn values(bytes: usize, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut time_ms = RECORD_TIME.0;
    let mut value = || {
        let mut text = String::new();
        while text.len() < bytes {
            write_event(&mut text, &mut random, time_ms);
            time_ms += 1;
        }
        text.truncate(bytes);
        text.into_bytes()
    };
    (0..count).map(|_| value()).collect()
}

fn write_event(out: &mut String, random: &mut Random, time_ms: i64) {
    let event = EVENTS[random.below(EVENTS.len() as u64) as usize];
    let country = COUNTRIES[random.below(COUNTRIES.len() as u64) as usize];
    let agent = AGENTS[random.below(AGENTS.len() as u64) as usize];
    let (id, user) = (random.next() >> 8, random.below(1_000_000));
    let (session, host) = (random.next(), random.next().to_be_bytes());
    let [a, b, c, ..] = host;
    let (cents, quantity, sku) = (random.below(100_000), random.below(5) + 1, random.below(9000));
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "{{\"event\":\"{event}\",\"id\":\"{id:014x}\",\"time_ms\":{time_ms},\
         \"session\":\"{session:016x}\",\"ip\":\"10.{a}.{b}.{c}\",\
         \"user\":{{\"id\":{user},\"country\":\"{country}\"}},\"amount\":{}.{:02},\
         \"currency\":\"EUR\",\"items\":[{{\"sku\":\"SKU-{sku:05}\",\"quantity\":{quantity}}}],\
         \"agent\":\"{agent}\",\"test\":false}}",
        cents / 100,
        cents % 100,
    );
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_of_the_size_they_are_said_to_be() {
        let events = Events::new(1 << 20);
        let per_record = events.bytes as i64 / events.records;
        assert!((280..=320).contains(&per_record), "{per_record}");
        assert_eq!(Events::new(1 << 20).batches, events.batches);
        assert!(values(1024, 3).iter().all(|value| value.len() == 1024));
    }
}
