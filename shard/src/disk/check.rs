//! What a data directory's file system does with mapped segments, measured once at start-up.
//!
//! The broker prints the answers; nothing here is on the data path. Two facts decide whether the
//! engine's assumptions hold: that one stored byte dirties one page and not a folio of up to 2 MiB
//! (which multiplies the device writes by ten), and that `fallocate` keeps its promise (without it
//! a store on a full disk is a SIGBUS).

use super::real::reserve;
use super::{Disk, RealDisk};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What one stored byte makes the device write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioCheck {
    /// A page or less: as the engine wants it.
    Page { dirty_bytes: u64 },
    /// A large folio: device writes are multiplied. Warn.
    Large { dirty_bytes: u64 },
    /// The file system (tmpfs, say) or the kernel does not account for what it writes.
    Unknown,
}

/// What a promise of blocks is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationCheck {
    /// Blocks given by `fallocate` take stores when the disk is full.
    Kept,
    /// No `fallocate`: segments are filled with zeros first, at twice the device writes. Warn.
    Unsupported,
    /// Copy on write: every store may need new blocks, promised or not. Warn.
    CopyOnWrite,
}

/// A file of a check, removed when the check ends, however it ends.
struct Probe(PathBuf);

impl Probe {
    fn new(dir: &Path, kind: &str) -> Probe {
        let path = dir.join(format!("{kind}.{}.probe", std::process::id()));
        // Left by a run that was killed and had the same process id.
        let _ = fs::remove_file(&path);
        Probe(path)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Fills a fresh map in `dir` as a log does, stores single bytes here and there, syncs each and
/// asks the kernel how much that was. Writes 16 MiB.
pub fn check_folio(dir: &Path) -> io::Result<FolioCheck> {
    // Folios grow with readahead: measured without the advice, one byte made 4 KiB dirty at 4 MiB
    // of the file, 16 KiB at 8 MiB and 64 KiB at 20 MiB.
    const FILE_BYTES: u64 = 24 << 20;
    const FILLED_BYTES: u64 = 16 << 20;
    let page = page_bytes();
    let probe = Probe::new(dir, "folio");
    let mut writer = RealDisk.create_map(&probe.0, FILE_BYTES)?;
    for at in (0..FILLED_BYTES).step_by(page as usize) {
        writer.store(at as usize, &[1]);
    }
    RealDisk.sync_map(writer.map(), 0, FILLED_BYTES)?;
    let mut dirty_bytes = 0;
    for at in [4 << 20, 8 << 20, 12 << 20, FILLED_BYTES - page, 20 << 20] {
        let Some(before) = written_by_this_thread() else {
            return Ok(FolioCheck::Unknown);
        };
        writer.store(at as usize, &[2]);
        RealDisk.sync_map(writer.map(), at, at + 1)?;
        let Some(after) = written_by_this_thread() else {
            return Ok(FolioCheck::Unknown);
        };
        dirty_bytes = dirty_bytes.max(after.saturating_sub(before));
    }
    Ok(judge(dirty_bytes, page))
}

fn judge(dirty_bytes: u64, page_bytes: u64) -> FolioCheck {
    match dirty_bytes {
        0 => FolioCheck::Unknown,
        // A page of the file and, on some file systems, one of metadata.
        _ if dirty_bytes <= 2 * page_bytes => FolioCheck::Page { dirty_bytes },
        _ => FolioCheck::Large { dirty_bytes },
    }
}

/// The `write_bytes` of this thread: bytes it has made dirty on a file system with a device.
fn written_by_this_thread() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes:"))?;
    line.trim().parse().ok()
}

fn page_bytes() -> u64 {
    // SAFETY: no memory is passed.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4_096)
}

/// Tries `fallocate` in `dir` and names the file systems that accept it and promise nothing.
pub fn check_allocation(dir: &Path) -> io::Result<AllocationCheck> {
    let probe = Probe::new(dir, "allocation");
    let file = File::create_new(&probe.0)?;
    match reserve(&file, 1 << 16) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok(AllocationCheck::Unsupported)
        }
        Err(error) => Err(error),
        Ok(()) if is_copy_on_write(file_system_magic(dir)?) => Ok(AllocationCheck::CopyOnWrite),
        Ok(()) => Ok(AllocationCheck::Kept),
    }
}

fn is_copy_on_write(magic: u64) -> bool {
    const BTRFS: u64 = 0x9123_683e;
    const ZFS: u64 = 0x2fc1_2fc1;
    const BCACHEFS: u64 = 0xca45_1a4e;
    const NILFS: u64 = 0x3434;
    const F2FS: u64 = 0xf2f5_2010;
    [BTRFS, ZFS, BCACHEFS, NILFS, F2FS].contains(&magic)
}

fn file_system_magic(dir: &Path) -> io::Result<u64> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut status = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` ends in a zero byte and `status` has room for what the call writes.
    let result = unsafe { libc::statfs(path.as_ptr(), status.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded and has filled the whole structure.
    let kind = unsafe { status.assume_init() }.f_type;
    // The field is signed on some machines and 32 bits wide on others; magics are 32 bits.
    Ok(kind as u64 & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_bytes_are_judged_by_the_page() {
        let page = |dirty_bytes| FolioCheck::Page { dirty_bytes };
        assert_eq!(judge(0, 4_096), FolioCheck::Unknown);
        assert_eq!(judge(4_096, 4_096), page(4_096));
        assert_eq!(judge(8_192, 4_096), page(8_192));
        assert_eq!(judge(12_288, 4_096), FolioCheck::Large { dirty_bytes: 12_288 });
        assert_eq!(judge(2 << 20, 16_384), FolioCheck::Large { dirty_bytes: 2 << 20 });
        assert_eq!(judge(16_384, 16_384), page(16_384));
    }

    #[test]
    fn the_checks_answer_and_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        check_folio(dir.path()).unwrap();
        check_allocation(dir.path()).unwrap();
        assert_eq!(RealDisk.list(dir.path()).unwrap(), []);
        let none = dir.path().join("none");
        assert_eq!(check_folio(&none).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(check_allocation(&none).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_stored_byte_of_a_segment_does_not_dirty_a_large_folio() {
        let dir = tempfile::tempdir().unwrap();
        if let FolioCheck::Large { dirty_bytes } = check_folio(dir.path()).unwrap() {
            panic!("one byte made {dirty_bytes} bytes dirty");
        }
    }
}
