//! The real disk: files of a Linux file system, segments mapped shared and writable.
//!
//! Below the log and the checkpoints, above the system calls. It retries nothing but interrupted
//! calls: after a failed sync the page cache lies, and only the caller knows what that poisons.
//! It never truncates or overwrites a file that may be mapped, and never reads through a map.
//!
//! Gap: where `fallocate` is not supported, zeros are written instead, which doubles the device
//! writes; `check_allocation` tells the operator at the start.

use super::{Disk, Entry, MapFile, MapWriter, ReadFile, Space, WriteFile};
use memmap2::{Advice, MmapRaw};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        // An existing directory may itself be the work of a run that was killed before its sync:
        // each level is synced into its parent whether or not this call made it.
        let mut levels: Vec<&Path> = Vec::new();
        for level in dir.ancestors().filter(|level| !level.as_os_str().is_empty()) {
            levels.push(level);
            if level.is_dir() {
                break;
            }
        }
        for level in levels.into_iter().rev() {
            match fs::create_dir(level) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && level.is_dir() => {}
                result => result?,
            }
            sync_parent(level)?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_file() {
                continue;
            }
            // A name that is not UTF-8 is none of ours.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            match entry.metadata() {
                Ok(metadata) => entries.push(Entry { name, bytes: metadata.len() }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // A name that is not UTF-8 is none of ours.
            if let (true, Ok(name)) = (entry.file_type()?.is_dir(), entry.file_name().into_string())
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn create_map(&self, path: &Path, bytes: u64) -> io::Result<MapWriter> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let region = allocate(&file, bytes)
            .and_then(|()| map(&file, bytes))
            .and_then(|region| file.sync_all().map(|()| region))
            .and_then(|region| sync_parent(path).map(|()| region));
        match region {
            Ok(region) => Ok(MapWriter::new(MapFile::real(region, path.to_path_buf(), file))),
            Err(error) => {
                // The first error is the one worth telling.
                let _ = fs::remove_file(path);
                Err(error)
            }
        }
    }

    fn prefault(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()> {
        let (region, from, bytes) = range(map, from, to)?;
        if bytes == 0 {
            return Ok(());
        }
        loop {
            let error = match region.advise_range(Advice::PopulateWrite, from, bytes) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error.raw_os_error() {
                // A kernel before 5.14: the stores will fault one by one instead.
                Some(libc::EINVAL) => return Ok(()),
                Some(libc::EINTR) => {}
                // EFAULT means that a store would be a SIGBUS: the caller must not store there.
                _ => return Err(error),
            }
        }
    }

    fn sync_map(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()> {
        let (region, from, bytes) = range(map, from, to)?;
        if bytes == 0 {
            return Ok(());
        }
        // msync(MS_SYNC) of whole pages: on Linux the same as a range fdatasync of the file.
        region.flush_range(from, bytes)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(RealRead { file: File::open(path)? }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        // Not O_TRUNC: the old file may still be read, even through a map.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(RealWrite { file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        sync_parent(to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        if bytes > file.metadata()?.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let status = file_system(dir)?;
        // The types differ between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let (unit, free, all) =
            (status.f_frsize as u64, status.f_bavail as u64, status.f_blocks as u64);
        Ok(Space { free_bytes: free.saturating_mul(unit), total_bytes: all.saturating_mul(unit) })
    }
}

struct RealRead {
    file: File,
}

impl ReadFile for RealRead {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What was read before the bad sector is good; the next call meets the error.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

struct RealWrite {
    file: File,
}

impl WriteFile for RealWrite {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// The region of a real map with a range checked against it, as offset and length.
fn range(map: &MapFile, from: u64, to: u64) -> io::Result<(&MmapRaw, usize, usize)> {
    let region = map.region().ok_or(io::ErrorKind::InvalidInput)?;
    if from > to || to > region.len() as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((region, from as usize, (to - from) as usize))
}

/// Maps the whole file so that its pages are cached one by one: in a large folio one stored byte
/// would make 2 MiB dirty.
fn map(file: &File, bytes: u64) -> io::Result<MmapRaw> {
    let region = MmapRaw::map_raw(file)?;
    if region.len() as u64 != bytes {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    region.advise(Advice::Random)?;
    Ok(region)
}

/// Gives the file all its blocks: a store into a hole on a full disk would be a SIGBUS.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match reserve(file, bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => fill(file, bytes),
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
            Err(io::Error::new(io::ErrorKind::StorageFull, error))
        }
        result => result,
    }
}

/// `fallocate` of a whole file.
pub(super) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        // SAFETY: no memory is passed; the descriptor is open as long as `file` is borrowed.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The slow way to the same blocks.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(zeros.len() as u64) as usize;
        file.write_all(zeros.get(..count).unwrap_or_default())?;
        left -= count as u64;
    }
    Ok(())
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        // The root has no name that could be lost.
        None => return Ok(()),
    };
    File::open(parent)?.sync_all()
}

fn file_system(dir: &Path) -> io::Result<libc::statvfs> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut status = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends in a zero byte and `status` has room for what the call writes.
    let result = unsafe { libc::statvfs(path.as_ptr(), status.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded and has filled the whole structure.
    Ok(unsafe { status.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::super::LARGE_STORE_BYTES;
    use super::*;
    use std::io::ErrorKind;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn read(path: &Path) -> Vec<u8> {
        let file = RealDisk.open(path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize + 10];
        let count = file.read_at(0, &mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn directories_are_listed_and_removed_when_empty() {
        let dir = directory();
        let inner = dir.path().join("b/inner");
        RealDisk.create_dir(&inner).unwrap();
        RealDisk.create_dir(&dir.path().join("a")).unwrap();
        RealDisk.publish(&dir.path().join("file"), b"1").unwrap();
        RealDisk.sync_dir(dir.path()).unwrap();
        assert_eq!(RealDisk.list_dirs(dir.path()).unwrap(), ["a", "b"]);
        let outer = dir.path().join("b");
        let refused = RealDisk.remove_dir(&outer).unwrap_err().kind();
        assert_eq!(refused, ErrorKind::DirectoryNotEmpty);
        RealDisk.remove_dir(&inner).unwrap();
        RealDisk.remove_dir(&outer).unwrap();
        assert_eq!(RealDisk.list_dirs(dir.path()).unwrap(), ["a"]);
    }

    #[test]
    fn stored_bytes_are_read_from_the_file_before_and_after_a_sync() {
        let dir = directory();
        let path = dir.path().join("segment");
        let mut writer = RealDisk.create_map(&path, 1 << 20).unwrap();
        RealDisk.prefault(writer.map(), 0, 100_000).unwrap();
        writer.store(5_000, b"basalt");
        writer.publish(5_006);
        let file = RealDisk.open(&path).unwrap();
        assert_eq!(file.len().unwrap(), 1 << 20);
        let mut bytes = [9; 8];
        assert_eq!(file.read_at(4_999, &mut bytes).unwrap(), 8);
        assert_eq!(&bytes, b"\0basalt\0");
        RealDisk.sync_map(writer.map(), 5_000, 5_006).unwrap();
        RealDisk.sync_map(writer.map(), 1 << 20, 1 << 20).unwrap();
        assert_eq!(file.read_at(4_999, &mut bytes).unwrap(), 8);
        assert_eq!(&bytes, b"\0basalt\0");
        // Slices outlive the writer and the name.
        let shared = writer.share(5_000, 6);
        drop(writer);
        RealDisk.remove(&path).unwrap();
        assert_eq!(shared.len(), 6);
        assert_eq!(shared.place(), (path.as_path(), 5_000));
    }

    #[test]
    fn large_and_small_stores_meet_in_one_page() {
        let dir = directory();
        let path = dir.path().join("00000001.seg");
        let mut writer = RealDisk.create_map(&path, 1 << 20).unwrap();
        let large: Vec<u8> = (0..LARGE_STORE_BYTES + 77).map(|at| (at % 251) as u8 + 1).collect();
        let mut expect = vec![0; 1 << 20];
        let mut at = 100;
        for bytes in [&b"before"[..], &large, b"between", &large, b"after"] {
            writer.store(at, bytes);
            expect[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len() + 3;
            writer.publish(at);
        }
        assert!(read(&path) == expect, "what was stored is in the file");
        RealDisk.sync_map(writer.map(), 0, at as u64).unwrap();
        assert!(read(&path) == expect);
    }

    #[test]
    fn a_map_is_never_made_over_an_existing_file() {
        let dir = directory();
        let path = dir.path().join("segment");
        RealDisk.publish(&path, b"old").unwrap();
        let error = RealDisk.create_map(&path, 4_096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(read(&path), b"old");
    }

    #[test]
    fn a_map_that_does_not_fit_leaves_no_file() {
        let dir = directory();
        let path = dir.path().join("segment");
        let space = RealDisk.space(dir.path()).unwrap();
        assert!(space.free_bytes <= space.total_bytes && space.total_bytes > 0);
        // More than any file system may hold, so that nothing is filled on the way.
        RealDisk.create_map(&path, 1 << 60).unwrap_err();
        assert_eq!(RealDisk.list(dir.path()).unwrap(), []);
    }

    #[test]
    fn ranges_outside_the_map_are_refused() {
        let dir = directory();
        let writer = RealDisk.create_map(&dir.path().join("segment"), 8_192).unwrap();
        for (from, to) in [(0, 8_193), (8_193, 8_193), (5, 4), (u64::MAX, u64::MAX)] {
            let error = RealDisk.sync_map(writer.map(), from, to).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{from}..{to}");
            let error = RealDisk.prefault(writer.map(), from, to).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{from}..{to}");
        }
    }

    #[test]
    fn a_published_file_replaces_the_old_one_and_leaves_no_temporary() {
        let dir = directory();
        let path = dir.path().join("checkpoint");
        RealDisk.publish(&path, b"one").unwrap();
        let old = RealDisk.open(&path).unwrap();
        RealDisk.publish(&path, b"two more").unwrap();
        assert_eq!(read(&path), b"two more");
        assert_eq!(old.len().unwrap(), 3);
        let entry = Entry { name: "checkpoint".into(), bytes: 8 };
        assert_eq!(RealDisk.list(dir.path()).unwrap(), [entry]);
    }

    #[test]
    fn directories_are_made_with_their_parents_and_listed_without() {
        let dir = directory();
        let deep = dir.path().join("a/b/c");
        RealDisk.create_dir(&deep).unwrap();
        RealDisk.create_dir(&deep).unwrap();
        for name in ["b", "a", "c"] {
            RealDisk.create(&deep.join(name)).unwrap().append(name.as_bytes()).unwrap();
        }
        RealDisk.create_dir(&deep.join("d")).unwrap();
        let names: Vec<_> = RealDisk.list(&deep).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let error = RealDisk.create_dir(&deep.join("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(RealDisk.list(&deep.join("e")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn truncation_cuts_and_never_grows() {
        let dir = directory();
        let path = dir.path().join("manifest");
        let mut file = RealDisk.create(&path).unwrap();
        file.append(b"12345").unwrap();
        file.append(b"678").unwrap();
        file.sync().unwrap();
        RealDisk.truncate(&path, 6).unwrap();
        assert_eq!(read(&path), b"123456");
        assert_eq!(RealDisk.truncate(&path, 7).unwrap_err().kind(), ErrorKind::InvalidInput);
        let error = RealDisk.truncate(&dir.path().join("none"), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_read_past_the_end_is_short_and_then_empty() {
        let dir = directory();
        let path = dir.path().join("file");
        RealDisk.publish(&path, b"0123456789").unwrap();
        let file = RealDisk.open(&path).unwrap();
        let mut bytes = [0; 8];
        assert_eq!(file.read_at(6, &mut bytes).unwrap(), 4);
        assert_eq!(file.read_at(10, &mut bytes).unwrap(), 0);
        assert_eq!(file.read_at(99, &mut bytes).unwrap(), 0);
    }
}
