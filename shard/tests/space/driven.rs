//! A log with a clock of its own, whose jobs are run where they are taken.

use shard::batch::{BatchBuilder, BatchHeader, NewRecord, Valid};
use shard::disk::{Disk, RealDisk};
use shard::ids::{DenseId, LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
use shard::log::{
    AppendError, Failure, Flush, Log, LogSettings, LogSpec, Now, PartitionSettings, ReadAsk,
    Recovered, Until,
};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

pub const START_MS: i64 = 1_700_000_000_000;

pub struct Driven {
    pub log: Log,
    pub disk: Arc<dyn Disk>,
    pub now: Now,
    pub appended_bytes: u64,
    pub recovered: Recovered,
    /// How often there was no room for a segment.
    pub full: usize,
}

pub fn key(topic: u128) -> PartitionKey {
    PartitionKey { view: 0, topic: Uuid::from_u128(topic), partition: 0 }
}

pub fn kept_for_ever() -> PartitionSettings {
    PartitionSettings {
        flush: Flush::Os,
        retention_ms: None,
        retention_bytes: None,
        internal: false,
        compaction: None,
    }
}

/// A batch of one record.
pub fn batch(key: Option<&[u8]>, value: Option<&[u8]>, time: Timestamp) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord { timestamp: time, key, value, headers: &[] });
    builder.build()
}

impl Driven {
    pub fn open(dir: &Path, run: i32, settings: LogSettings, now: Now) -> Driven {
        Driven::open_on(Arc::new(RealDisk), dir, run, settings, now)
    }

    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        run: i32,
        settings: LogSettings,
        now: Now,
    ) -> Driven {
        let spec = LogSpec {
            dir: dir.to_path_buf(),
            id: LogId(0),
            cluster: Uuid::from_u128(1),
            run: LeaderEpoch(run),
            settings,
            salvage: false,
        };
        let (log, recovered) = Log::open(disk.clone(), spec, run as u64 + 17, now).unwrap();
        Driven { log, disk, now, appended_bytes: 0, recovered, full: 0 }
    }

    pub fn append(&mut self, id: DenseId, batch: &[u8]) {
        let valid = Valid::built(batch).unwrap();
        for _ in 0..1000 {
            match self.log.append(id, &valid, self.now) {
                Err(AppendError::Busy | AppendError::Full) => self.turn(),
                other => {
                    other.unwrap();
                    self.appended_bytes += batch.len() as u64 + 64;
                    return;
                }
            }
        }
        panic!("the log stays busy");
    }

    fn wait(&mut self, ms: i64) {
        self.now.mono_us += ms.unsigned_abs() * 1_000;
        self.now.wall = Timestamp(self.now.wall.0 + ms);
    }

    /// A few milliseconds go by; what is due is done.
    pub fn turn(&mut self) {
        self.wait(2);
        self.log.tick(self.now);
        for job in self.log.take_jobs() {
            let progress = self.log.finish(job.run(), self.now);
            match progress.failure {
                Some(Failure::Prepare(_)) => self.full += 1,
                failure => assert!(failure.is_none(), "{failure:?}"),
            }
        }
    }

    pub fn pass(&mut self, ms: i64) {
        const TURNS: i64 = 40;
        for _ in 0..TURNS {
            self.wait(ms.min(6_000) / TURNS);
            self.turn();
        }
        self.wait((ms - 6_000).max(0));
    }

    /// The batches a consumer sees, from the log start on.
    pub fn read(&self, id: DenseId) -> Vec<(BatchHeader, Vec<u8>)> {
        let mut all = Vec::new();
        let mut at = self.log.offsets(id).unwrap().log_start;
        loop {
            let (bytes_max, until) = (1 << 20, Until::HighWatermark);
            let ask = ReadAsk { from: at, bytes_max, whole_first: true, until };
            let bytes = self.log.plan_read(id, &ask).unwrap().copy(&*self.disk).unwrap();
            if bytes.is_empty() {
                return all;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (header, body, behind) = BatchHeader::split(rest).unwrap();
                assert_eq!(header.crc_with(body), header.crc);
                at = header.end_offset();
                all.push((header, body.to_vec()));
                rest = behind;
            }
        }
    }

    /// Holds that each offset from the log start to the end is there once and in order.
    pub fn check_whole(&self, id: DenseId) -> Offset {
        let offsets = self.log.offsets(id).unwrap();
        let mut at = offsets.log_start;
        for (header, _) in self.read(id) {
            assert!(header.base_offset == at || at == offsets.log_start, "{id:?} at {at}");
            at = header.end_offset();
        }
        assert_eq!(at, offsets.log_end, "{id:?}");
        at
    }
}
