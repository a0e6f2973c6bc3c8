//! The state behind all handles of one simulated disk: files, names, faults, the life of the
//! process that uses it.
//!
//! `mod.rs` turns calls into the steps here; each step is one entry in the trace.

use super::fault::{Event, Op, Plan, SimError, Verdict};
use super::names::{Names, NodeId};
use super::node::Node;
use super::rng::Rng;
use crate::disk::{Entry, MapFile};
use memmap2::{MmapMut, MmapRaw};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Steps kept in the trace.
const TRACE_MAX: usize = 200;

pub struct World {
    /// Counts processes; a handle of an earlier one is dead.
    pub life: u64,
    pub plan: Plan,
    pub rng: Rng,
    pub trace: VecDeque<Event>,
    pub capacity: u64,
    /// The kernel writes some dirty pages on its own once in this many counted steps.
    pub write_back_one_in: u64,
    pub names: Names,
    dirs: BTreeSet<PathBuf>,
    nodes: BTreeMap<NodeId, Node>,
    next: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            life: 0,
            plan: Plan::default(),
            rng: Rng::new(seed),
            trace: VecDeque::new(),
            capacity: 1 << 40,
            write_back_one_in: 0,
            names: Names::default(),
            dirs: [PathBuf::from("/")].into(),
            nodes: BTreeMap::new(),
            next: 0,
        }
    }

    /// A world of its own, as if the process had been killed.
    pub fn copy(&mut self) -> World {
        World {
            life: 0,
            plan: Plan::default(),
            rng: self.rng.split(),
            trace: self.trace.clone(),
            capacity: self.capacity,
            write_back_one_in: self.write_back_one_in,
            names: self.names.clone(),
            dirs: self.dirs.clone(),
            nodes: self.nodes.iter().map(|(id, node)| (*id, node.copy())).collect(),
            next: self.next,
        }
    }

    pub fn alive(&self, life: u64) -> io::Result<()> {
        if life == self.life {
            Ok(())
        } else {
            Err(SimError::Dead.into())
        }
    }

    /// Every call passes here, step by step.
    pub fn step(&mut self, life: u64, op: Op, path: &Path) -> io::Result<Verdict> {
        self.alive(life)?;
        let verdict = self.plan.step(op)?;
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(Event::new(op, path, verdict));
        if op.changes() && self.rng.one_in(self.write_back_one_in) {
            for node in self.nodes.values_mut() {
                node.write_back(&mut self.rng);
            }
        }
        Ok(verdict)
    }

    /// A step that has no way to fail but the plain one.
    pub fn plain_step(&mut self, life: u64, op: Op, path: &Path) -> io::Result<()> {
        match self.step(life, op, path)? {
            Verdict::Happens | Verdict::Lies => Ok(()),
            Verdict::Fails { errno } => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    pub fn node(&self, path: &Path) -> io::Result<(NodeId, &Node)> {
        let id = self.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok((id, self.nodes.get(&id).expect("a named file exists")))
    }

    pub fn by_id(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a held file exists")
    }

    pub fn by_map(&mut self, map: &MapFile) -> io::Result<&mut Node> {
        let mut nodes = self.nodes.values_mut();
        nodes.find(|node| node.is_map(map)).ok_or(io::ErrorKind::InvalidInput.into())
    }

    fn insert(&mut self, path: &Path, node: Node) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        self.nodes.insert(id, node);
        self.names.link(path, id);
        id
    }

    pub fn add_dir(&mut self, dir: &Path) -> io::Result<()> {
        if self.names.get(dir).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.dirs.extend(dir.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    pub fn parent<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        self.has_dir(parent).then_some(parent).ok_or(io::ErrorKind::NotFound.into())
    }

    pub fn has_dir(&self, dir: &Path) -> bool {
        self.dirs.contains(dir)
    }

    pub fn list_dirs(&self, dir: &Path) -> Vec<String> {
        let inside = self.dirs.iter().filter(|other| other.parent() == Some(dir));
        inside.filter_map(|dir| Some(dir.file_name()?.to_str()?.to_owned())).collect()
    }

    /// With the directory goes what a power loss might bring back in it.
    pub fn remove_dir(&mut self, dir: &Path) -> io::Result<()> {
        if !self.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !self.list_dirs(dir).is_empty() || !self.list(dir).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.names.forget(dir);
        self.dirs.remove(dir);
        self.sweep();
        Ok(())
    }

    pub fn list(&self, dir: &Path) -> Vec<Entry> {
        let files = self.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        let mut entries: Vec<Entry> = files
            .filter_map(|(path, id)| {
                let name = path.file_name()?.to_str()?.to_owned();
                Some(Entry { name, bytes: self.nodes.get(&id)?.len() as u64 })
            })
            .collect();
        entries.sort();
        entries
    }

    /// The memory of a mapped file to be.
    pub fn new_map(&mut self, path: &Path, bytes: u64) -> io::Result<MapFile> {
        if self.names.get(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.parent(path)?;
        if bytes > self.free() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::StorageFull)?;
        let region = MmapRaw::from(MmapMut::map_anon(bytes)?);
        Ok(MapFile::simulated(region, path.to_path_buf()))
    }

    pub fn add_mapped(&mut self, path: &Path, map: Arc<MapFile>) -> NodeId {
        self.insert(path, Node::mapped(map))
    }

    pub fn add_empty(&mut self, path: &Path) -> io::Result<NodeId> {
        self.parent(path)?;
        if self.has_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.remove(path);
        Ok(self.insert(path, Node::empty()))
    }

    pub fn remove(&mut self, path: &Path) -> Option<NodeId> {
        let id = self.names.unlink(path);
        self.sweep();
        id
    }

    /// Bytes that can still be allocated.
    pub fn free(&mut self) -> u64 {
        self.sweep();
        let counted = self.nodes.iter().filter(|(id, node)| {
            // A removed file gives its blocks back at the last close, whatever a crash would do.
            self.names.is_linked(**id) || node.is_held()
        });
        let used: u64 = counted.map(|(_, node)| node.len() as u64).sum();
        self.capacity.saturating_sub(used)
    }

    /// Forgets files nobody can reach any more.
    fn sweep(&mut self) {
        let names = &self.names;
        self.nodes
            .retain(|id, node| names.is_linked(*id) || node.is_held() || names.may_return(*id));
    }

    /// The step and effect of syncing a directory.
    pub fn sync_dir(&mut self, life: u64, dir: &Path) -> io::Result<()> {
        match self.step(life, Op::SyncDir, dir)? {
            Verdict::Happens => self.names.sync(dir),
            Verdict::Lies => {}
            Verdict::Fails { errno } => return Err(io::Error::from_raw_os_error(errno)),
        }
        self.sweep();
        Ok(())
    }

    /// The step and effect of syncing a whole file.
    pub fn sync_file(&mut self, life: u64, id: NodeId, path: &Path) -> io::Result<()> {
        let verdict = self.step(life, Op::Sync, path)?;
        let mut rng = self.rng.split();
        let node = self.by_id(id);
        match verdict {
            Verdict::Happens => node.sync(),
            Verdict::Lies => {}
            Verdict::Fails { errno } => {
                node.fail_sync(0, usize::MAX, &mut rng);
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        Ok(())
    }

    pub fn crash(&mut self, rng: &mut Rng) {
        for node in self.nodes.values_mut() {
            node.crash(rng);
        }
        self.names.crash(rng);
        self.begin_life();
    }

    pub fn kill(&mut self) {
        for node in self.nodes.values_mut() {
            node.kill();
        }
        self.begin_life();
    }

    fn begin_life(&mut self) {
        self.life += 1;
        self.plan.clear();
        self.sweep();
    }

    pub fn evict(&mut self) {
        self.nodes.values_mut().for_each(Node::evict);
    }

    pub fn heal(&mut self) {
        self.plan.clear();
        self.nodes.values_mut().for_each(Node::heal);
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "life {}, {:?}, {} names pending", self.life, self.plan, self.names.pending())?;
        for (path, id) in self.names.iter() {
            let Some(node) = self.nodes.get(&id) else {
                continue;
            };
            let name = if self.names.durable(path) == Some(id) { "" } else { ", name pending" };
            let (cached, durable) = (node.len(), node.durable().len());
            let dirty = node.dirty_pages();
            writeln!(
                f,
                "  {}: {cached} bytes, {durable} durable, {dirty} dirty pages{name}",
                path.display()
            )?;
        }
        Ok(())
    }
}
