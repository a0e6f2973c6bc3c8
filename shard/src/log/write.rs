//! Storing one frame at the log's end: the only place where a segment grows.
//!
//! The caller has made room. The frame gets the next sequence and the durable mark of the moment;
//! one copy takes the body into the map.

use super::engine::Log;
use super::frame::SIDE_BYTES;
use super::frame::{next_page, Carried, FrameHeader, Kind, BIND_BYTES, FRAME_HEADER_BYTES};
use super::outcome::Now;
use crate::batch::HEADER_BYTES;
use crate::ids::{DenseId, LeaderEpoch, Offset, Sequence, Timestamp};

/// The longest head `Log::write` puts beside a frame header.
const HEAD_BYTES_MAX: usize = SIDE_BYTES;
const _: () = assert!(HEAD_BYTES_MAX >= HEADER_BYTES && HEAD_BYTES_MAX >= BIND_BYTES);

/// What goes into a frame besides its place.
pub(super) struct FrameParts<'a> {
    pub kind: Kind,
    pub partition: DenseId,
    pub base_offset: Offset,
    /// Stored right behind the frame header; the frame's sum covers its first `covered` bytes.
    pub head: &'a [u8],
    pub covered: usize,
    pub body: &'a [u8],
    /// Of a copy: what it has from the frame it copies.
    pub origin: Option<Origin>,
}

/// What a copy keeps of the frame it copies, and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub leader_epoch: LeaderEpoch,
    pub append_time: Timestamp,
    pub carried: Carried,
}

impl Log {
    /// Stores a frame at the log's end. There is room: the caller made it. Returns where it starts.
    pub(super) fn write(&mut self, parts: FrameParts<'_>, now: Now) -> u32 {
        let at = self.open.next_at();
        let header = FrameHeader {
            payload_bytes: (parts.head.len() + parts.body.len()) as u32,
            kind: parts.kind,
            sequence: self.next_sequence,
            partition: parts.partition,
            leader_epoch: parts.origin.map_or(self.spec.run, |origin| origin.leader_epoch),
            base_offset: parts.base_offset,
            append_time: parts.origin.map_or(now.wall, |origin| origin.append_time),
            mark: self.commit.durable(),
            carried: parts.origin.map(|origin| origin.carried),
        };
        // Header and head in one store, then the body: the only copy of the records.
        let mut front = [0; FRAME_HEADER_BYTES + HEAD_BYTES_MAX];
        let front_bytes = FRAME_HEADER_BYTES + parts.head.len();
        front[..FRAME_HEADER_BYTES]
            .copy_from_slice(&header.encode(self.open.epoch, &parts.head[..parts.covered]));
        front[FRAME_HEADER_BYTES..front_bytes].copy_from_slice(parts.head);
        let start = at as usize;
        self.open.writer.store(start, &front[..front_bytes]);
        self.open.writer.store(start + front_bytes, parts.body);
        self.prefault.stored(parts.body.len());
        let end = start + front_bytes + parts.body.len();
        self.open.writer.publish(end);
        let bytes = (end - self.open.end as usize) as u64;
        self.open.end = end as u32;
        self.open.align_next = false;
        self.next_sequence = Sequence(self.next_sequence.0 + 1);
        let is_mark = parts.kind == Kind::Mark;
        let to_sync = if is_mark { 0 } else { bytes };
        self.commit.appended(self.open.position(), to_sync, now.mono_us);
        at
    }

    /// Writes down how far the log is durable, on a page of its own.
    pub(super) fn write_mark(&mut self, now: Now) {
        self.open.align_next = true;
        let end = next_page(self.open.end) + FRAME_HEADER_BYTES as u32;
        if end > self.open.capacity() {
            return;
        }
        self.write(
            FrameParts {
                kind: Kind::Mark,
                partition: DenseId(0),
                base_offset: Offset(0),
                head: &[],
                covered: 0,
                body: &[],
                origin: None,
            },
            now,
        );
        self.open.align_next = true;
    }
}
