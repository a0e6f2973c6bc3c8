//! The disk as the engine sees it: one trait, a real and a simulated implementation.
//!
//! Everything the engine keeps passes through here: mapped segment files, whole small files that
//! appear at once or not at all, and reads into buffers. Calls block; the engine makes them only
//! inside jobs and while opening, never on a core. Failures are `io::Error`s as the system gave
//! them; the callers decide what a failure poisons. `unsafe` lives in this folder alone.

mod check;
pub(crate) mod cursor;
mod map;
mod real;
pub mod sim;

pub use check::{check_allocation, check_folio, AllocationCheck, FolioCheck};
pub use map::{MapFile, MapWriter, SharedBytes, LARGE_STORE_BYTES};
pub use real::RealDisk;

use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file opened for reading into buffers.
// A length that may change or fail makes no `is_empty` worth having.
#[allow(clippy::len_without_is_empty)]
pub trait ReadFile: Send + Sync {
    /// The length in bytes at the time of the call.
    fn len(&self) -> io::Result<u64>;
    /// Fills `into` with the bytes at `offset`. Fewer than asked for means the end of the file or
    /// that the next byte cannot be read (a call that starts there returns the error).
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A file being written from front to back, not yet durable.
pub trait WriteFile: Send {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns once all bytes appended so far are on stable storage; the name is durable only
    /// after a `rename`, or another call that syncs the directory. Not to be retried.
    fn sync(&mut self) -> io::Result<()>;
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: String,
    pub bytes: u64,
}

/// What the engine asks of a disk. All paths are absolute or relative to the working directory.
pub trait Disk: Send + Sync + 'static {
    /// Creates `dir` and its parents; existing ones are fine. Durable when it returns.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The plain files of `dir`, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;
    /// The names of the directories in `dir`, sorted.
    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes the names in `dir` as they are at the call durable: what an earlier process left may
    /// never have been synced.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes a directory, which must be empty. Durable no earlier than a removed file is.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates a new segment file with all its blocks allocated and maps it. The name is durable
    /// when it returns; the contents read as zeros. `ErrorKind::AlreadyExists` if it exists,
    /// `StorageFull` when the blocks cannot be had (no file is left behind then).
    fn create_map(&self, path: &Path, bytes: u64) -> io::Result<MapWriter>;
    /// Makes the pages of `[from, to)` present, so that the first stores into them do not fault.
    /// After an error a store there may be a SIGBUS.
    fn prefault(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()>;
    /// Returns once the bytes `[from, to)` of the map as they were at the call are on stable
    /// storage. After an error the state of these bytes is unknown and stays so: the caller must
    /// not retry.
    fn sync_map(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()>;
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;
    /// Creates a file (replacing one of that name) to be written in order.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// Renames within one directory and makes the new name durable.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; not durable until the directory is synced by a later call. Those who have
    /// it open or mapped keep it.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Cuts a file that is not mapped to `bytes`, which it must have. Durable when it returns.
    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()>;
    /// Bytes an unprivileged writer can still allocate on the file system of `dir`, and its size.
    fn space(&self, dir: &Path) -> io::Result<Space>;

    /// Writes a whole file so that after a crash either the old or the new one is there.
    fn publish(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        let mut file = self.create(&temporary)?;
        file.append(bytes)?;
        file.sync()?;
        drop(file);
        self.rename(&temporary, path)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub free_bytes: u64,
    pub total_bytes: u64,
}
