//! One file of the simulated disk: what the kernel's cache shows and what the device holds.
//!
//! Names are kept elsewhere (`names.rs`); faults are decided elsewhere (`fault.rs`). The device's
//! content changes only in `sync`, `write_back`, `crash` and `damage`.

use super::content::Content;
use super::pages::{Pages, PAGE_BYTES, SECTOR_BYTES};
use super::rng::Rng;
use crate::disk::MapFile;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What the cache holds.
#[derive(Debug)]
enum Cache {
    /// Nothing that differs from the device.
    Clean,
    Bytes {
        bytes: Content,
        dirty: Pages,
    },
    Map(Arc<MapFile>),
}

#[derive(Debug)]
pub struct Node {
    durable: Content,
    cache: Cache,
    /// Cloned by each open handle.
    open: Arc<()>,
    /// Reads that touch one of these ranges fail.
    bad: Vec<Range<u64>>,
}

impl Node {
    /// An empty file.
    pub fn empty() -> Node {
        Node::with(Cache::Clean)
    }

    /// A mapped file, of which not even the length is durable.
    pub fn mapped(map: Arc<MapFile>) -> Node {
        Node::with(Cache::Map(map))
    }

    fn with(cache: Cache) -> Node {
        Node { durable: Content::default(), cache, open: Arc::new(()), bad: Vec::new() }
    }

    pub fn is_map(&self, map: &MapFile) -> bool {
        matches!(&self.cache, Cache::Map(own) if std::ptr::eq(Arc::as_ptr(own), map))
    }

    /// A token that keeps the file alive without a name.
    pub fn hold(&self) -> Arc<()> {
        self.open.clone()
    }

    /// Whether anybody outside has the file open or mapped.
    pub fn is_held(&self) -> bool {
        let mapped = matches!(&self.cache, Cache::Map(map) if Arc::strong_count(map) > 1);
        mapped || Arc::strong_count(&self.open) > 1
    }

    pub fn len(&self) -> usize {
        match &self.cache {
            Cache::Clean => self.durable.len(),
            Cache::Bytes { bytes, .. } => bytes.len(),
            Cache::Map(map) => map.bytes(),
        }
    }

    pub fn dirty_pages(&self) -> usize {
        match &self.cache {
            Cache::Clean => 0,
            Cache::Bytes { dirty, .. } => dirty.len(),
            Cache::Map(map) => map.memory().map_or(0, |memory| memory.dirty.len()),
        }
    }

    pub fn durable(&self) -> &Content {
        &self.durable
    }

    /// Fills `into` as far as the file and its good sectors go.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(at).map_or(self.len(), |at| at.min(self.len()));
        let mut count = into.len().min(self.len() - start);
        for bad in &self.bad {
            let (from, to) = (start as u64, (start + count) as u64);
            if bad.contains(&from) && count > 0 {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            if (from..to).contains(&bad.start) {
                count = (bad.start - from) as usize;
            }
        }
        self.copy_cached(start, &mut into[..count]);
        Ok(count)
    }

    fn copy_cached(&self, at: usize, into: &mut [u8]) {
        match &self.cache {
            Cache::Clean => self.durable.read(at, into),
            Cache::Bytes { bytes, .. } => bytes.read(at, into),
            Cache::Map(map) => {
                map.memory().expect("maps of this disk are simulated").read(at, into);
            }
        }
    }

    pub fn cached(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_cached(0, &mut bytes);
        bytes
    }

    pub fn append(&mut self, more: &[u8]) {
        let (bytes, dirty) = self.unmapped();
        let from = bytes.len();
        bytes.append(more);
        dirty.insert_range(from, bytes.len());
    }

    pub fn truncate(&mut self, to: usize) {
        let (bytes, dirty) = self.unmapped();
        bytes.resize(to);
        dirty.take_range(to.next_multiple_of(PAGE_BYTES), usize::MAX);
    }

    /// The cache of a file that is not mapped, as a copy of its own.
    fn unmapped(&mut self) -> (&mut Content, &mut Pages) {
        assert!(!matches!(self.cache, Cache::Map(_)), "a mapped file is only stored to");
        if matches!(self.cache, Cache::Clean) {
            self.cache = Cache::Bytes { bytes: self.durable.clone(), dirty: Pages::default() };
        }
        match &mut self.cache {
            Cache::Bytes { bytes, dirty } => (bytes, dirty),
            Cache::Clean | Cache::Map(_) => unreachable!("made into bytes above"),
        }
    }

    /// Takes the dirty pages of `[from, to)`: the kernel believes them written from here on.
    fn take_dirty(&mut self, from: usize, to: usize) -> Vec<usize> {
        match &mut self.cache {
            Cache::Clean => Vec::new(),
            Cache::Bytes { dirty, .. } => dirty.take_range(from, to),
            Cache::Map(map) => {
                let memory = map.memory();
                memory.expect("maps of this disk are simulated").dirty.take_range(from, to)
            }
        }
    }

    /// Makes the pages of `[from, to)` durable.
    pub fn sync_range(&mut self, from: usize, to: usize) {
        for page in self.take_dirty(from, to) {
            self.persist(page);
        }
    }

    /// Makes the whole file durable, its length too.
    pub fn sync(&mut self) {
        self.durable.resize(self.len());
        self.sync_range(0, usize::MAX);
    }

    /// A sync that fails: some pages are written, at least one is not, and all count as clean.
    pub fn fail_sync(&mut self, from: usize, to: usize, rng: &mut Rng) {
        let pages = self.take_dirty(from, to);
        let lost = rng.below(pages.len() as u64) as usize;
        for (index, page) in pages.into_iter().enumerate() {
            if index != lost && rng.one_in(2) {
                self.write_page(page, |_| true);
            }
        }
    }

    /// The kernel writes some dirty pages on its own.
    pub fn write_back(&mut self, rng: &mut Rng) {
        for page in self.take_dirty(0, usize::MAX) {
            if rng.one_in(2) {
                self.persist(page);
            } else {
                self.mark_dirty(page);
            }
        }
    }

    /// Makes a page durable, and with it the length it needs.
    fn persist(&mut self, page: usize) {
        let end = ((page + 1) * PAGE_BYTES).min(self.len());
        if self.durable.len() < end {
            self.durable.resize(end);
        }
        self.write_page(page, |_| true);
    }

    fn mark_dirty(&mut self, page: usize) {
        let (from, to) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
        match &mut self.cache {
            Cache::Clean => {}
            Cache::Bytes { dirty, .. } => dirty.insert_range(from, to),
            Cache::Map(map) => {
                let memory = map.memory();
                memory.expect("maps of this disk are simulated").dirty.insert_range(from, to);
            }
        }
    }

    /// Copies the sectors of a page that `keep` chooses from the cache to the device, as far as
    /// the device's file goes.
    fn write_page(&mut self, page: usize, mut keep: impl FnMut(usize) -> bool) {
        let from = page * PAGE_BYTES;
        let to = (from + PAGE_BYTES).min(self.len()).min(self.durable.len());
        for at in (from..to).step_by(SECTOR_BYTES) {
            if keep((at - from) / SECTOR_BYTES) {
                let mut sector = [0; SECTOR_BYTES];
                let count = SECTOR_BYTES.min(to - at);
                self.copy_cached(at, &mut sector[..count]);
                self.durable.write(at, &sector[..count]);
            }
        }
    }

    /// Power is lost: each dirty page is lost, written or torn, and the cache is gone.
    pub fn crash(&mut self, rng: &mut Rng) {
        let length = self.length_after_crash(rng);
        self.durable.resize(length);
        for page in self.take_dirty(0, usize::MAX) {
            match rng.below(3) {
                0 => {}
                1 => self.write_page(page, |_| true),
                _ => self.write_page(page, |_| rng.one_in(2)),
            }
        }
        self.cache = Cache::Clean;
        self.open = Arc::new(());
    }

    /// The length is metadata of its own: the old one, the new one or any between when it grew.
    fn length_after_crash(&self, rng: &mut Rng) -> usize {
        let (old, new) = (self.durable.len(), self.len());
        match rng.below(3) {
            0 => old,
            1 if new > old => rng.between(old as u64, new as u64) as usize,
            _ => new,
        }
    }

    /// The process ends and the machine goes on: the cache stays, dirty as it was.
    pub fn kill(&mut self) {
        let left = self.left_in_cache();
        self.cache = left;
        self.open = Arc::new(());
    }

    /// What a process killed now would leave.
    pub fn copy(&self) -> Node {
        Node {
            durable: self.durable.clone(),
            cache: self.left_in_cache(),
            open: Arc::new(()),
            bad: self.bad.clone(),
        }
    }

    fn left_in_cache(&self) -> Cache {
        match &self.cache {
            Cache::Clean => Cache::Clean,
            Cache::Bytes { bytes, dirty } => {
                Cache::Bytes { bytes: bytes.clone(), dirty: dirty.clone() }
            }
            Cache::Map(map) => {
                let memory = map.memory().expect("maps of this disk are simulated");
                let mut stored = vec![0; memory.dirty.end_byte().min(map.bytes())];
                memory.read(0, &mut stored);
                let mut bytes = Content::default();
                bytes.append(&stored);
                bytes.resize(map.bytes());
                Cache::Bytes { bytes, dirty: memory.dirty.clone() }
            }
        }
    }

    /// The cache of a file that is not mapped forgets its clean pages: they are read from the
    /// device next time, which after a failed sync holds other bytes.
    pub fn evict(&mut self) {
        let Cache::Bytes { bytes, dirty } = &mut self.cache else { return };
        let mut device = self.durable.clone();
        device.resize(bytes.len());
        for page in dirty.clone().take_range(0, usize::MAX) {
            let from = page * PAGE_BYTES;
            let mut kept = [0; PAGE_BYTES];
            let count = PAGE_BYTES.min(bytes.len() - from);
            bytes.read(from, &mut kept[..count]);
            device.write(from, &kept[..count]);
        }
        *bytes = device;
    }

    pub fn make_bad(&mut self, range: Range<u64>) {
        self.bad.push(range);
    }

    pub fn heal(&mut self) {
        self.bad.clear();
    }

    /// Changes bytes behind everybody's back, in the cache and on the device. Not of a map.
    pub fn damage(&mut self, at: usize, bytes: &[u8]) {
        if at + bytes.len() <= self.durable.len() {
            self.durable.write(at, bytes);
        }
        match &mut self.cache {
            Cache::Clean => {}
            Cache::Bytes { bytes: cached, .. } => cached.write(at, bytes),
            Cache::Map(_) => panic!("a mapped file is damaged after a crash or kill"),
        }
    }
}
