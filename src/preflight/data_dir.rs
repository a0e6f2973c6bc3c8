//! The data directory: who holds it, and what kind of file system it is on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use super::Refusal;

/// The file whose lock stands for the directory. It holds the process id of its holder.
const LOCK_FILE: &str = "lock";

/// The right to be the only broker on a data directory, until dropped or until the process ends,
/// however it ends.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
}

impl DataLock {
    /// Creates the directory if it is not there.
    pub fn take(dir: &Path) -> Result<DataLock, Refusal> {
        let unusable = |source| Refusal::DataDir { dir: dir.to_path_buf(), source };
        std::fs::create_dir_all(dir).map_err(unusable)?;
        let path = dir.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(unusable)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Refusal::Locked { dir: dir.to_path_buf(), pid: holder_pid(&mut file) });
            }
            Err(error) => return Err(unusable(error.into())),
        }
        file.set_len(0).map_err(unusable)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(unusable)?;
        Ok(DataLock { _file: file })
    }
}

/// What the holder wrote; nothing if it is just about to.
fn holder_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// A file system, and what it does not keep of what the log asks for.
struct FileSystem {
    magic: u64,
    name: &'static str,
    lack: &'static str,
}

const COPIES: &str =
    "writes every change to a new place, so that space set aside for a file is no \
                      promise and a full disk can kill the broker";
const REMOTE: &str = "is remote, and a server that does not answer stops the broker";

const LACKING: &[FileSystem] = &[
    FileSystem { magic: 0x9123_683E, name: "btrfs", lack: COPIES },
    FileSystem { magic: 0x2FC1_2FC1, name: "zfs", lack: COPIES },
    FileSystem { magic: 0xCA45_1A4E, name: "bcachefs", lack: COPIES },
    FileSystem {
        magic: 0x0102_1994,
        name: "tmpfs",
        lack: "is memory and does not survive a reboot",
    },
    FileSystem {
        magic: 0x8584_58F6,
        name: "ramfs",
        lack: "is memory and does not survive a reboot",
    },
    FileSystem {
        magic: 0x794C_7630,
        name: "overlay",
        lack: "is a container's own layer and goes away with it",
    },
    FileSystem { magic: 0x6969, name: "nfs", lack: REMOTE },
    FileSystem { magic: 0xFF53_4D42, name: "cifs", lack: REMOTE },
    FileSystem { magic: 0xFE53_4D42, name: "smb2", lack: REMOTE },
    FileSystem { magic: 0x0102_1997, name: "9p", lack: REMOTE },
    FileSystem {
        magic: 0x6573_5546,
        name: "fuse",
        lack: "is served by a program, which decides what a sync and space set aside mean",
    },
];

/// A warning for a file system known to keep less than it says; an error for one that cannot
/// allocate at all.
pub(super) fn check_file_system(dir: &Path) -> Result<Option<String>, Refusal> {
    let unusable = |source: io::Error| Refusal::DataDir { dir: dir.to_path_buf(), source };
    let stat = rustix::fs::statfs(dir).map_err(|error| unusable(error.into()))?;
    let lacking = lacking(stat.f_type as u64);
    let path = dir.join("allocate.tmp");
    let file = File::create(&path).map_err(unusable)?;
    let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096);
    drop(file);
    std::fs::remove_file(&path).map_err(unusable)?;
    // A full disk is met again, with its own words, when the log opens.
    if matches!(allocated, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
        let name = lacking.map_or("of an unknown kind", |found| found.name);
        return Err(Refusal::NoFallocate { dir: dir.to_path_buf(), name });
    }
    Ok(lacking.map(|found| {
        format!(
            "the data directory {} is on {}, which {}: ext4 or XFS is the place for it",
            dir.display(),
            found.name,
            found.lack
        )
    }))
}

fn lacking(magic: u64) -> Option<&'static FileSystem> {
    // The field is signed on some machines: only 32 bits count.
    LACKING.iter().find(|known| known.magic == magic & 0xFFFF_FFFF)
}

#[cfg(test)]
pub(super) use tests::Scratch;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A directory that goes away with the test.
    pub struct Scratch(PathBuf);

    impl Scratch {
        pub fn new(name: &str) -> Scratch {
            let unique = format!("basalt-preflight-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(unique);
            std::fs::create_dir_all(&dir).unwrap();
            Scratch(dir)
        }

        pub fn dir(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _gone = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_data_directory_has_one_holder() {
        let scratch = Scratch::new("lock");
        let dir = scratch.0.join("new/data");
        let held = DataLock::take(&dir).unwrap();
        let refused = DataLock::take(&dir).unwrap_err().to_string();
        let expect = format!(
            "the data directory {} is in use by process {}: stop it, or choose another with \
             --data-dir DIR",
            dir.display(),
            std::process::id()
        );
        assert_eq!(refused, expect);
        drop(held);
        DataLock::take(&dir).unwrap();
    }

    #[test]
    fn a_data_directory_that_is_a_file_is_refused() {
        let scratch = Scratch::new("file");
        let path = scratch.0.join("file");
        std::fs::write(&path, "x").unwrap();
        let refused = DataLock::take(&path).unwrap_err().to_string();
        assert!(
            refused.contains("cannot be used: ") && refused.contains("--data-dir"),
            "{refused}"
        );
    }

    #[test]
    fn file_systems_are_known_by_their_number() {
        for (magic, name) in [
            (0x9123_683E_u64, Some("btrfs")),
            (0xFFFF_FFFF_9123_683E, Some("btrfs")),
            (0x6969, Some("nfs")),
            (0xEF53, None),
            (0x5846_5342, None),
        ] {
            assert_eq!(lacking(magic).map(|found| found.name), name);
        }
        let shm = Path::new("/dev/shm");
        if rustix::fs::statfs(shm).is_ok_and(|stat| stat.f_type as u64 == 0x0102_1994) {
            let dir = shm.join(format!("basalt-preflight-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let warning = check_file_system(&dir);
            std::fs::remove_dir_all(&dir).unwrap();
            assert!(warning.unwrap().unwrap().contains("is on tmpfs, which is memory"));
        }
    }
}
