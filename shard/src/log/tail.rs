//! Copying what lies beyond the last mark into a segment of its own, durable before it is seen.
//!
//! A step of opening a log: the frames were found whole, but the page cache may hold what the disk
//! has lost, so they count only in their copies. Bind frames are made anew, marks are left out.

use super::chain::{io_error, open_link, read_whole, Chain, OpenError};
use super::effect::{Effect, Found};
use super::frame::{encode_bind, next_page, next_slot, FrameHeader, Kind, BATCH_PREFIX_BYTES};
use super::frame::{BIND_BYTES, FRAME_HEADER_BYTES, GAP_BYTES, SIDE_BYTES};
use super::header::{segment_name, Predecessor, FRAMES_START};
use super::index::{IndexStamp, SegmentIndex};
use super::outcome::Now;
use super::recover::Opening;
use super::replay::{Replay, Walked};
use crate::disk::ReadFile;
use crate::ids::{DenseId, LeaderEpoch, Offset, Position, SegmentNumber, Sequence};
use std::path::Path;
use std::sync::Arc;

impl Opening<'_> {
    /// Copies what lies beyond the last mark into a segment of its own, durable before it is seen.
    pub(super) fn copy_tail(
        &mut self,
        chain: &Chain,
        replay: &mut Replay<'_>,
    ) -> Result<(), OpenError> {
        let tail: Vec<Found> = replay.tail.drain(..).collect();
        if tail.iter().all(|found| matches!(found.effect, Effect::Mark | Effect::Bind(_))) {
            return Ok(());
        }
        let (number, epoch) = self.fresh();
        let header = self.header(number, epoch, replay.settled_sequence);
        let path = self.spec.dir.join(segment_name(number));
        let temporary = path.with_extension("seg.tmp");
        let mut copy = Copy {
            bytes: Vec::new(),
            number,
            epoch,
            sequence: replay.settled_sequence,
            mark: replay.settled,
            index: SegmentIndex::default(),
        };
        copy.bytes.resize(FRAMES_START as usize, 0);
        copy.bytes[..super::header::SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        let write = |bytes: &[u8], file: &mut dyn crate::disk::WriteFile| {
            file.append(bytes).map_err(io_error("writing", &temporary))
        };
        let mut file = self.disk.create(&temporary).map_err(io_error("creating", &temporary))?;
        let mut open: Option<(usize, Arc<dyn ReadFile>)> = None;
        let mut flushed = 0;
        for found in &tail {
            if open.as_ref().is_none_or(|(link, _)| *link != found.link) {
                let link = &chain.links[found.link];
                open = Some((found.link, open_link(&*self.disk, link)?));
            }
            let (_, source) = open.as_ref().expect("opened above");
            copy.add(found, &**source, &chain.links[found.link].path, replay, flushed)?;
            if copy.bytes.len() >= 8 << 20 {
                write(&copy.bytes, &mut *file)?;
                flushed += copy.bytes.len();
                copy.bytes.clear();
            }
        }
        let data_end = (flushed + copy.bytes.len()) as u32;
        let end = copy.finish(flushed, self.now);
        write(&copy.bytes, &mut *file)?;
        file.sync().map_err(io_error("syncing", &temporary))?;
        drop(file);
        self.disk.rename(&temporary, &path).map_err(io_error("renaming", &temporary))?;
        self.recovered.copied_frames = copy.sequence.0 - replay.settled_sequence.0;
        self.recovered.copied_bytes = u64::from(data_end - FRAMES_START);
        replay.settled = Position { segment: number, offset: end };
        replay.settled_sequence = copy.sequence;
        let stamp = IndexStamp { number, epoch, end, next_sequence: copy.sequence };
        let index = Some(copy.index);
        replay.walked.push(Walked { header, stamp, from_file: Vec::new(), index });
        self.last = Some(Predecessor { number, epoch, end });
        Ok(())
    }
}

/// The new segment as it grows in memory.
struct Copy {
    bytes: Vec<u8>,
    number: SegmentNumber,
    epoch: u64,
    sequence: Sequence,
    mark: Position,
    index: SegmentIndex,
}

impl Copy {
    fn add(
        &mut self,
        found: &Found,
        source: &dyn ReadFile,
        path: &Path,
        replay: &mut Replay<'_>,
        flushed: usize,
    ) -> Result<(), OpenError> {
        if let Effect::Bind(key) = found.effect {
            // The state learns of the partition; the frame is made anew at its first use.
            replay.apply(found, &mut SegmentIndex::default());
            self.bind(found, key, flushed);
            return Ok(());
        }
        if matches!(found.effect, Effect::Mark) {
            return Ok(());
        }
        if !self.index.is_bound(found.partition) {
            let key = replay.key_of(found.partition);
            let Some(key) = key else { return Ok(()) };
            self.bind(found, key, flushed);
        }
        let mut payload = vec![0; found.payload_bytes as usize];
        let at = u64::from(found.at) + FRAME_HEADER_BYTES as u64;
        let whole = read_whole(source, at, &mut payload);
        if !whole.map_err(io_error("reading", path))? {
            let (path, at) = (path.to_path_buf(), found.at);
            return Err(OpenError::Damaged { path, at, mark: self.mark });
        }
        let (kind, base_offset, covered) = match &found.effect {
            Effect::Data { header, side: None, .. } => {
                (Kind::Data, header.base_offset, BATCH_PREFIX_BYTES)
            }
            Effect::Data { header, side: Some(_), .. } => {
                (Kind::Side, header.base_offset, SIDE_BYTES)
            }
            Effect::LogStart(to) => (Kind::LogStart, *to, 0),
            Effect::Gap { from, .. } => (Kind::Gap, *from, GAP_BYTES),
            Effect::Bind(_) | Effect::Mark => return Ok(()),
        };
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            kind,
            sequence: self.sequence,
            partition: found.partition,
            leader_epoch: found.leader_epoch,
            base_offset,
            append_time: found.append_time,
            mark: self.mark,
            carried: match found.effect {
                Effect::Data { carried, .. } => carried,
                _ => None,
            },
        };
        let at = self.put(&header, &payload, covered, flushed);
        let end = Position { segment: self.number, offset: at + header.frame_bytes() as u32 };
        let moved = Found { at, end, sequence: header.sequence, ..found.clone() };
        replay.apply(&moved, &mut self.index);
        Ok(())
    }

    fn bind(&mut self, found: &Found, key: crate::ids::PartitionKey, flushed: usize) {
        if self.index.is_bound(found.partition) {
            return;
        }
        let header = FrameHeader {
            payload_bytes: BIND_BYTES as u32,
            kind: Kind::Bind,
            sequence: self.sequence,
            partition: found.partition,
            leader_epoch: found.leader_epoch,
            base_offset: Offset(0),
            append_time: found.append_time,
            mark: self.mark,
            carried: None,
        };
        self.put(&header, &encode_bind(&key), BIND_BYTES, flushed);
        self.index.bind(found.partition, key);
    }

    fn put(&mut self, header: &FrameHeader, payload: &[u8], covered: usize, flushed: usize) -> u32 {
        let at = next_slot((flushed + self.bytes.len()) as u32);
        self.bytes.resize(at as usize - flushed, 0);
        self.bytes.extend(header.encode(self.epoch, &payload[..covered]));
        self.bytes.extend(payload);
        self.sequence = Sequence(self.sequence.0 + 1);
        at
    }

    /// The mark that says all of this is durable, on a page of its own. Returns the end.
    fn finish(&mut self, flushed: usize, now: Now) -> u32 {
        let end = (flushed + self.bytes.len()) as u32;
        self.mark = Position { segment: self.number, offset: end };
        let page = next_page(end);
        self.bytes.resize(page as usize - flushed, 0);
        let header = FrameHeader {
            payload_bytes: 0,
            kind: Kind::Mark,
            sequence: self.sequence,
            partition: DenseId(0),
            leader_epoch: LeaderEpoch(0),
            base_offset: Offset(0),
            append_time: now.wall,
            mark: self.mark,
            carried: None,
        };
        let at = self.put(&header, &[], 0, flushed);
        let end = at + FRAME_HEADER_BYTES as u32;
        self.bytes.resize(next_page(end) as usize - flushed, 0);
        end
    }
}
