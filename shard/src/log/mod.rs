//! The log: one chain of segment files that takes the batches of many partitions.
//!
//! `engine` is the front door. On disk: `header` and `frame` are the bytes of a segment, `index` of
//! the file beside a sealed one, `checkpoint` of the state that saves a replay. `commit` knows what
//! is durable, `upkeep` and `keeping` what is due, `jobs` is the blocking work as values, `read`
//! and `seek` find batches and `cold` reads them, `chain`, `replay` and `recover` open a log after
//! any kind of stop.
//!
//! Tables: `tables` knows what of a partition is in its table, `feed` gives the rest to those who
//! write it, `cooling` lets go of what is in it, and `tabled` reads it back from there.
//!
//! Space: `relocate` and `clean` say what is worth copying to the tail, `carry` reads it on a
//! worker, `mover` stores it in slices as `meter` allows; `segments` removes and hollows out what
//! is dead, `purge` tells when nothing of a deleted topic is left. `retention` says where log
//! starts are wanted.
//!
//! Invariants: a frame below the durable mark never changes and is never lost without an error; the
//! sequence has no gaps; log start ≤ hot start ≤ table end ≤ high watermark ≤ log end; one sync is
//! in flight at a time.

mod carry;
mod chain;
mod checkpoint;
mod clean;
mod cleaner;
mod cold;
mod commit;
mod cooling;
mod directory;
mod effect;
mod engine;
mod feed;
mod frame;
mod header;
mod index;
mod jobs;
mod keeping;
mod meter;
mod mover;
mod outcome;
mod partitions;
mod purge;
mod read;
mod recover;
mod relocate;
mod replay;
mod retention;
mod scan;
mod seek;
mod segments;
mod settings;
mod side;
mod tabled;
mod tables;
mod tail;
mod upkeep;
mod whole;
mod write;

pub use carry::CarryError;
pub use chain::OpenError;
pub use cold::{ColdError, ColdRead};
pub use engine::Log;
pub use feed::{Fed, Feed, OpenFeed};
pub use frame::{Carried, FrameHeader, Kind, FRAME_HEADER_BYTES, PAGE_BYTES};
pub use header::{
    parse_segment_name, segment_name, HeaderError, Predecessor, SegmentHeader, FRAMES_START,
    SEGMENT_HEADER_BYTES,
};
pub use index::BatchEntry;
pub use jobs::{give_up_reserve, Done, Job, Lane};
pub use mover::SpaceCounts;
pub use outcome::{AppendError, Appended, Failure, Now, Progress};
pub use read::{ReadAsk, ReadError, ReadPlan, Until};
pub use recover::Recovered;
pub use replay::Cut;
pub use scan::{Frame, Scanner};
pub use seek::{Found, TimeSeek, TimeTarget};
pub use settings::{Compaction, Flush, LogSettings, LogSpec, PartitionSettings};
pub use side::{SideBatch, SideError, Sides};
pub use tabled::ReadAhead;
pub use tables::{Pending, TableEnds};
#[cfg(test)]
mod tests;
