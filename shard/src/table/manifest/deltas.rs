//! The files of a manifest in their directory: which are in force, which can go.
//!
//! A base makes all earlier files stale; they are removed when it is durable, and whatever of them
//! a power loss brings back is removed again.

use super::format::Name;
use super::ManifestError;
use crate::disk::Disk;
use std::io;
use std::path::{Path, PathBuf};

/// Deltas may come to this many, or to as many bytes as the base (or the least), before a new
/// base is written.
const DELTAS_MAX: usize = 32;
const DELTAS_BYTES_MIN: u64 = 64 << 10;

/// The files of the manifest.
#[derive(Debug, Default)]
pub struct Deltas {
    count: usize,
    bytes: u64,
    base_bytes: u64,
    /// Covered by the base, to be removed.
    stale: Vec<Name>,
    /// Those in force.
    live: Vec<Name>,
}

impl Deltas {
    /// None in force, but for files that are to be removed.
    pub fn beside(stale: Vec<Name>) -> Deltas {
        Deltas { stale, ..Deltas::default() }
    }

    pub fn is_outgrown(&self) -> bool {
        self.count >= DELTAS_MAX || self.bytes >= self.base_bytes.max(DELTAS_BYTES_MIN)
    }

    pub fn wrote(&mut self, name: Name, bytes: u64) {
        match name {
            Name::Base(_) => {
                self.stale.append(&mut self.live);
                (self.count, self.bytes, self.base_bytes) = (0, 0, bytes);
            }
            Name::Delta(_) => {
                self.count += 1;
                self.bytes += bytes;
            }
        }
        self.live.push(name);
    }

    /// What cannot be removed now is tried again at the next commit.
    pub fn remove_stale(&mut self, disk: &dyn Disk, dir: &Path) {
        let manifest = manifest_dir(dir);
        self.stale.retain(|name| {
            let path = manifest.join(name.to_string());
            match disk.remove(&path) {
                Ok(()) => false,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "an old manifest stays");
                    true
                }
            }
        });
    }
}

/// The files that add up to the newest state, in order, and those it no longer needs.
pub fn in_force(dir: &Path, names: Vec<Name>) -> Result<(Vec<Name>, Vec<Name>), ManifestError> {
    let bases = names.iter().filter(|name| matches!(name, Name::Base(_)));
    let base = bases.copied().max_by_key(|name| name.number());
    let from = base.map_or(0, Name::number);
    let is_delta = |name: &Name| matches!(name, Name::Delta(number) if *number > from);
    let (mut live, stale): (Vec<Name>, Vec<Name>) =
        names.into_iter().partition(|name| is_delta(name) || Some(*name) == base);
    live.sort_by_key(|name| name.number());
    let first = if base.is_some() { from } else { 1 };
    for (name, number) in live.iter().zip(first..) {
        if name.number() != number {
            let path = dir.join(Name::Delta(number).to_string());
            return Err(ManifestError::Missing { path });
        }
    }
    Ok((live, stale))
}

pub fn manifest_dir(table: &Path) -> PathBuf {
    table.join("manifest")
}

pub fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(done as u64, rest)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(bytes)
}
