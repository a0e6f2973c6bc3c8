//! Memory-mapped segment files as two safe types split at the published length.
//!
//! `MapWriter` stores above the published length and is owned by one log; `SharedBytes` are slices
//! below it, which are never written again, and may be held by any number of readers. The map is
//! never read by this process except through `SharedBytes::parts` by the kernel in `sendmsg`:
//! reading it here could fault on a bad sector and kill the process. Other readers (TLS, tests)
//! read the file at `SharedBytes::place`; the page cache keeps both views the same.

use super::sim::Pages;
use memmap2::MmapRaw;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// From this size on a store is a `write` to the file. The kernel then makes pages as large as the
/// write, in one go: of all ways to 1 GB of new pages this took a third of the CPU time of faulting
/// them in one by one and storing through the map, syncs included.
pub const LARGE_STORE_BYTES: usize = 32 << 10;

/// What keeps the bytes of a map when it is gone.
#[derive(Debug)]
enum Backing {
    /// A file. The map alone would keep it; large stores go through the descriptor.
    File(File),
    /// Plain memory of the simulated disk and which pages were stored to since their last sync.
    /// The lock orders the writer's stores and the simulation's reads of unpublished bytes.
    Simulated(Mutex<Pages>),
}

/// A mapped file. The map goes away with the last reference, which for a large file takes up to
/// 100 ms: drop it on a worker.
#[derive(Debug)]
pub struct MapFile {
    region: MmapRaw,
    path: PathBuf,
    backing: Backing,
}

impl MapFile {
    /// `region` maps `file` at `path`, shared and writable, and nothing else stores to it.
    pub(super) fn real(region: MmapRaw, path: PathBuf, file: File) -> MapFile {
        MapFile { region, path, backing: Backing::File(file) }
    }

    /// `region` is anonymous memory that nothing else stores to.
    pub(super) fn simulated(region: MmapRaw, path: PathBuf) -> MapFile {
        let pages = Mutex::new(Pages::default());
        MapFile { region, path, backing: Backing::Simulated(pages) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// The map itself, for advice and syncs; none when simulated.
    pub(super) fn region(&self) -> Option<&MmapRaw> {
        match &self.backing {
            Backing::File(_) => Some(&self.region),
            Backing::Simulated(_) => None,
        }
    }

    /// The memory of a simulated map, with its writer kept out while the value lives.
    pub(super) fn memory(&self) -> io::Result<Memory<'_>> {
        match &self.backing {
            Backing::File(_) => Err(io::ErrorKind::InvalidInput.into()),
            Backing::Simulated(pages) => {
                let dirty = pages.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Memory { map: self, dirty })
            }
        }
    }
}

/// The memory of a simulated map while its writer is kept out.
pub(super) struct Memory<'a> {
    map: &'a MapFile,
    /// The pages stored to since they were last taken from here.
    pub(super) dirty: MutexGuard<'a, Pages>,
}

impl Memory<'_> {
    /// Copies the bytes at `at` into `into`.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        let end = at.checked_add(into.len()).expect("no overflow");
        assert!(end <= self.map.bytes(), "read to {end} past map of {}", self.map.bytes());
        // SAFETY: [at, end) lies inside the region (asserted above), which is anonymous memory
        // (only `MapFile::simulated` makes this value possible). The one writer takes the lock
        // held in `dirty` around each store (`MapWriter::store`), so nothing stores meanwhile.
        unsafe {
            let from = self.map.region.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
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
        MapWriter { map: Arc::new(map), published: 0 }
    }

    pub fn map(&self) -> &Arc<MapFile> {
        &self.map
    }

    pub fn published(&self) -> usize {
        self.published
    }

    /// Copies `bytes` to `at`: small ones through the map, large ones through the file, which is
    /// the same page cache.
    ///
    /// # Panics
    /// When the bytes would touch what is published or run past the end of the map.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        assert!(at >= self.published, "store at {at} below published {}", self.published);
        let end = at.checked_add(bytes.len()).expect("no overflow");
        assert!(end <= self.map.bytes(), "store to {end} past map of {}", self.map.bytes());
        match &self.map.backing {
            Backing::File(file) if bytes.len() >= LARGE_STORE_BYTES => {
                let written = write_large(file, at as u64, bytes);
                self.copy(at + written, bytes.get(written..).unwrap_or_default());
            }
            Backing::File(_) => self.copy(at, bytes),
            Backing::Simulated(pages) => {
                let mut dirty = pages.lock().unwrap_or_else(PoisonError::into_inner);
                dirty.insert_range(at, end);
                self.copy(at, bytes);
            }
        }
    }

    fn copy(&self, at: usize, bytes: &[u8]) {
        // SAFETY: [at, at + len) lies inside the region and above `published` (both asserted by
        // `store`, the only caller), so no `SharedBytes` covers it; `store` holds `&mut self` of
        // the only writer (see `new`), so no other store runs. Of a real map only the kernel reads
        // these bytes (writeback); of a simulated one `Memory::read` does, under the lock `store`
        // holds. `bytes` cannot overlap the region, which is never lent out as a slice.
        unsafe {
            let to = self.map.region.as_mut_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Gives up the right to write below `to`.
    ///
    /// # Panics
    /// When `to` is below what is published or past the end of the map.
    pub fn publish(&mut self, to: usize) {
        assert!(to >= self.published && to <= self.map.bytes(), "publish {to}");
        self.published = to;
    }

    /// A slice of published bytes.
    ///
    /// # Panics
    /// When the slice reaches past what is published.
    pub fn share(&self, from: usize, bytes: usize) -> SharedBytes {
        let end = from.checked_add(bytes).expect("no overflow");
        assert!(end <= self.published, "share to {end} above published {}", self.published);
        SharedBytes { map: self.map.clone(), from, bytes }
    }
}

/// How many bytes the kernel took. The rest is stored through the map, as small stores are.
fn write_large(file: &File, at: u64, bytes: &[u8]) -> usize {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
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
        // SAFETY: `from` lies inside the region or at its end: `MapWriter::share` asserted it, and
        // `advance` never moves it further.
        (unsafe { self.map.region.as_ptr().add(self.from) }, self.bytes)
    }

    /// The file and the offset in it where the bytes are, for those who read them with
    /// `Disk::open`. The name may be gone when the segment has been removed since.
    pub fn place(&self) -> (&Path, u64) {
        (&self.map.path, self.from as u64)
    }

    /// Drops the first `count` bytes, which have been sent.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "advance {count} of {}", self.bytes);
        self.from += count;
        self.bytes -= count;
    }
}

const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<MapFile>();
    is_shareable::<MapWriter>();
    is_shareable::<SharedBytes>();
};
