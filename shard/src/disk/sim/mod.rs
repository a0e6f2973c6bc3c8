//! The simulated disk: what a kernel, its page cache and a device may do, decided by a seed.
//!
//! It stands where the real disk stands, under a whole log in one thread. Each file has a cached
//! and a durable content, each directory cached and durable names. `kill` ends the process and
//! keeps the cache; `crash` is a power loss: every dirty page is lost, written or torn between
//! sectors, unsynced lengths and names may or may not survive. Both return the disk of the next
//! process and leave the old handles dead.
//!
//! Gaps: directories themselves are durable at once; a failed directory sync may be retried; a
//! device that writes a whole sector wrongly is only simulated by `damage`.

mod content;
mod fault;
mod names;
mod node;
mod pages;
mod rng;
#[cfg(test)]
mod tests;
mod world;

pub use fault::{Event, Fault, Op, SimError, Verdict};
pub(super) use pages::Pages;
pub use pages::{PAGE_BYTES, SECTOR_BYTES};
pub use rng::Rng;

use super::{Disk, Entry, MapFile, MapWriter, ReadFile, Space, WriteFile};
use names::NodeId;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use world::World;

/// A handle of one process on the simulated disk.
#[derive(Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
    life: u64,
}

impl SimDisk {
    /// An empty disk; the seed decides what failing syncs and the kernel's own writes do.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk { world: Arc::new(Mutex::new(World::new(seed))), life: 0 }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Power is lost now. What survives is decided by `rng`.
    pub fn crash(&self, rng: &mut Rng) -> SimDisk {
        let mut world = self.world();
        world.crash(rng);
        SimDisk { world: self.world.clone(), life: world.life }
    }

    /// The process is killed now; the kernel keeps what it had cached, still not durable.
    pub fn kill(&self) -> SimDisk {
        let mut world = self.world();
        world.kill();
        SimDisk { world: self.world.clone(), life: world.life }
    }

    /// A disk of its own as `kill` would leave it; this one goes on undisturbed but for its rng.
    pub fn fork(&self) -> SimDisk {
        let world = self.world().copy();
        SimDisk { life: world.life, world: Arc::new(Mutex::new(world)) }
    }

    /// Counted steps so far: those that may change the disk.
    pub fn ops(&self) -> u64 {
        self.world().plan.ops()
    }

    /// Whether `Fault::Stop` has stopped the process.
    pub fn is_stopped(&self) -> bool {
        self.world().plan.is_stopped()
    }

    /// Makes something go wrong.
    ///
    /// # Panics
    /// When bad sectors are to be in a file that does not exist.
    pub fn inject(&self, fault: Fault) {
        let mut world = self.world();
        match fault {
            Fault::Fail { op, after, errno } => world.plan.fail(op, after, errno),
            Fault::Lie { op, after } => world.plan.lie(op, after),
            Fault::Stop { at } => world.plan.stop(at),
            Fault::BadSectors { path, from, to } => {
                let (id, _) = world.node(&path).expect("bad sectors are in an existing file");
                world.by_id(id).make_bad(from..to);
            }
        }
    }

    /// Takes back all faults that have not happened, and repairs bad sectors.
    pub fn heal(&self) {
        self.world().heal();
    }

    /// Limits what all files together may allocate.
    pub fn set_capacity(&self, bytes: u64) {
        self.world().capacity = bytes;
    }

    /// Lets the kernel write some dirty pages on its own once in `times` counted steps; 0: never.
    pub fn set_write_back(&self, one_in: u64) {
        self.world().write_back_one_in = one_in;
    }

    /// The kernel drops clean cached pages of files that are not mapped.
    pub fn evict(&self) {
        self.world().evict();
    }

    /// Overwrites bytes in the cache and on the device, as a faulty device or person would.
    ///
    /// # Panics
    /// When the file does not exist or is mapped.
    pub fn damage(&self, path: &Path, at: u64, bytes: &[u8]) {
        let mut world = self.world();
        let (id, _) = world.node(path).expect("an existing file is damaged");
        world.by_id(id).damage(at as usize, bytes);
    }

    /// The content of a file as a process sees it.
    pub fn cached(&self, path: &Path) -> Option<Vec<u8>> {
        self.world().node(path).ok().map(|(_, node)| node.cached())
    }

    /// The content the device holds of a file.
    pub fn durable(&self, path: &Path) -> Option<Vec<u8>> {
        self.world().node(path).ok().map(|(_, node)| node.durable().to_vec())
    }

    /// All files a process sees, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        self.world().names.iter().map(|(path, _)| path.to_path_buf()).collect()
    }

    /// The last steps, oldest first.
    pub fn trace(&self) -> Vec<Event> {
        self.world().trace.iter().cloned().collect()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world();
        let state = if self.life == world.life { "alive" } else { "dead" };
        write!(f, "SimDisk {state}, {world:?}")
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.plain_step(self.life, Op::CreateDir, dir)?;
        world.add_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut world = self.world();
        world.plain_step(self.life, Op::List, dir)?;
        if !world.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(world.list(dir))
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut world = self.world();
        world.plain_step(self.life, Op::List, dir)?;
        if !world.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(world.list_dirs(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world();
        if !world.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.sync_dir(self.life, dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.plain_step(self.life, Op::RemoveDir, dir)?;
        world.remove_dir(dir)
    }

    fn create_map(&self, path: &Path, bytes: u64) -> io::Result<MapWriter> {
        let mut world = self.world();
        world.plain_step(self.life, Op::CreateMap, path)?;
        let writer = MapWriter::new(world.new_map(path, bytes)?);
        let id = world.add_mapped(path, writer.map().clone());
        let dir = world.parent(path)?;
        let synced =
            world.sync_file(self.life, id, path).and_then(|()| world.sync_dir(self.life, dir));
        if let Err(error) = synced {
            // What the real disk does: but a process that has ended cleans nothing up.
            if SimError::of(&error).is_none() {
                world.remove(path);
            }
            return Err(error);
        }
        Ok(writer)
    }

    fn prefault(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()> {
        let mut world = self.world();
        world.plain_step(self.life, Op::Prefault, map.path())?;
        range(map, from, to).map(|_| ())
    }

    fn sync_map(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()> {
        let mut world = self.world();
        let (from, to) = range(map, from, to)?;
        let verdict = world.step(self.life, Op::SyncMap, map.path())?;
        let mut rng = world.rng.split();
        let node = world.by_map(map)?;
        match verdict {
            Verdict::Happens => node.sync_range(from, to),
            Verdict::Lies => {}
            Verdict::Fails { errno } => {
                node.fail_sync(from, to, &mut rng);
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let mut world = self.world();
        world.plain_step(self.life, Op::Open, path)?;
        let (id, node) = world.node(path)?;
        let (disk, path) = (self.clone(), path.to_path_buf());
        Ok(Arc::new(SimRead { file: SimFile { disk, path, id, _hold: node.hold() } }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut world = self.world();
        world.plain_step(self.life, Op::Create, path)?;
        let id = world.add_empty(path)?;
        let hold = world.by_id(id).hold();
        let (disk, path) = (self.clone(), path.to_path_buf());
        Ok(Box::new(SimWrite { file: SimFile { disk, path, id, _hold: hold } }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.plain_step(self.life, Op::Rename, from)?;
        let dir = world.parent(to)?;
        if from.parent() != Some(dir) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        world.names.rename(from, to).ok_or(io::ErrorKind::NotFound)?;
        world.sync_dir(self.life, dir)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.plain_step(self.life, Op::Remove, path)?;
        world.remove(path).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let mut world = self.world();
        world.plain_step(self.life, Op::Truncate, path)?;
        let (id, node) = world.node(path)?;
        if bytes > node.len() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        world.by_id(id).truncate(bytes as usize);
        world.sync_file(self.life, id, path)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let mut world = self.world();
        world.plain_step(self.life, Op::Space, dir)?;
        if !world.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Space { free_bytes: world.free(), total_bytes: world.capacity })
    }
}

fn range(map: &MapFile, from: u64, to: u64) -> io::Result<(usize, usize)> {
    if from > to || to > map.bytes() as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((from as usize, to as usize))
}

/// An open file of a process.
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    id: NodeId,
    /// Keeps the file when its name goes.
    _hold: Arc<()>,
}

struct SimRead {
    file: SimFile,
}

impl ReadFile for SimRead {
    fn len(&self) -> io::Result<u64> {
        let mut world = self.file.disk.world();
        world.alive(self.file.disk.life)?;
        Ok(world.by_id(self.file.id).len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut world = self.file.disk.world();
        world.plain_step(self.file.disk.life, Op::Read, &self.file.path)?;
        world.by_id(self.file.id).read(offset, into)
    }
}

struct SimWrite {
    file: SimFile,
}

impl WriteFile for SimWrite {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.file.disk.world();
        let verdict = world.step(self.file.disk.life, Op::Append, &self.file.path)?;
        let (error, fits) = match verdict {
            Verdict::Fails { errno } => {
                let fits = world.rng.below(bytes.len() as u64 + 1);
                (Some(io::Error::from_raw_os_error(errno)), fits)
            }
            Verdict::Happens | Verdict::Lies => match world.free() {
                free if free < bytes.len() as u64 => {
                    (Some(io::ErrorKind::StorageFull.into()), free)
                }
                _ => (None, bytes.len() as u64),
            },
        };
        let written = bytes.get(..fits as usize).unwrap_or(bytes);
        world.by_id(self.file.id).append(written);
        error.map_or(Ok(()), Err)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.file.disk.world();
        world.sync_file(self.file.disk.life, self.file.id, &self.file.path)
    }
}
