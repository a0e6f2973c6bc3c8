//! Memory-mapped segment files as two safe types split at the published length.
//!
//! `MapWriter` stores above the published length and is owned by one log; `SharedBytes` are slices
//! below it, which are never written again, and may be held by any number of readers. The map is
//! never read by this process except through `SharedBytes::parts` by the kernel in `sendmsg`:
//! reading it here could fault on a bad sector and kill the process.

use memmap2::MmapRaw;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mapped file. The map goes away with the last reference.
#[derive(Debug)]
pub struct MapFile {
    region: MmapRaw,
    path: PathBuf,
    /// The file behind the map; none when the disk is simulated.
    file: Option<File>,
}

impl MapFile {
    pub(super) fn new(region: MmapRaw, path: PathBuf, file: Option<File>) -> MapFile {
        MapFile { region, path, file }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.region.as_mut_ptr()
    }
}

/// The one writer of a mapped file.
#[derive(Debug)]
pub struct MapWriter {
    map: Arc<MapFile>,
    published: usize,
}

impl MapWriter {
    /// Called once per `MapFile`, by the disk that made it: there is never a second writer.
    pub(super) fn new(map: MapFile) -> MapWriter {
        MapWriter {
            map: Arc::new(map),
            published: 0,
        }
    }

    pub fn map(&self) -> &Arc<MapFile> {
        &self.map
    }

    pub fn published(&self) -> usize {
        self.published
    }

    /// Copies `bytes` to `at`.
    ///
    /// # Panics
    /// When the bytes would touch what is published or run past the end of the map.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        assert!(
            at >= self.published,
            "store at {at} below published {}",
            self.published
        );
        let end = at.checked_add(bytes.len()).expect("no overflow");
        assert!(
            end <= self.map.bytes(),
            "store to {end} past map of {}",
            self.map.bytes()
        );
        // SAFETY: [at, end) lies inside the region (asserted above). It is above `published`, so
        // no `SharedBytes` covers it, and `&mut self` on the only writer keeps others out.
        // `bytes` is a borrowed slice of ordinary memory and cannot overlap the region, which is
        // never lent out as a slice.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.address().add(at), bytes.len());
        }
    }

    /// Gives up the right to write below `to`.
    pub fn publish(&mut self, to: usize) {
        assert!(to >= self.published && to <= self.map.bytes());
        self.published = to;
    }

    /// A slice of published bytes.
    pub fn share(&self, from: usize, bytes: usize) -> SharedBytes {
        assert!(
            from + bytes <= self.published,
            "only published bytes are shared"
        );
        SharedBytes {
            map: self.map.clone(),
            from,
            bytes,
        }
    }
}

/// Published bytes of a mapped file, never written again, alive as long as this value.
#[derive(Clone, Debug)]
pub struct SharedBytes {
    map: Arc<MapFile>,
    from: usize,
    bytes: usize,
}

impl SharedBytes {
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Address and length, for the kernel to read in `sendmsg`. A bad sector then fails the call
    /// with EFAULT. Do not dereference: here it would be a signal that ends the process.
    pub fn parts(&self) -> (*const u8, usize) {
        // SAFETY: `from` lies inside the region: `MapWriter::share` asserted it, and `advance`
        // never moves it past the end.
        (
            unsafe { self.map.address().add(self.from) }.cast_const(),
            self.bytes,
        )
    }

    /// Drops the first `count` bytes, which have been sent.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes);
        self.from += count;
        self.bytes -= count;
    }
}
