//! The names of the simulated disk: what a process sees and what a power loss leaves of them.
//!
//! Names become durable when their directory is synced. Until then each change may survive a
//! power loss or not, on its own, as long as the outcome is a state some order of writes explains.

use super::rng::Rng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// A change of a directory that is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Link { path: PathBuf, node: NodeId },
    Unlink { path: PathBuf, node: NodeId },
    Rename { from: PathBuf, to: PathBuf, node: NodeId },
}

impl Change {
    fn is_in(&self, dir: &Path) -> bool {
        let (Change::Link { path, .. }
        | Change::Unlink { path, .. }
        | Change::Rename { to: path, .. }) = self;
        path.parent() == Some(dir)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Names {
    cached: BTreeMap<PathBuf, NodeId>,
    durable: BTreeMap<PathBuf, NodeId>,
    pending: Vec<Change>,
}

impl Names {
    pub fn get(&self, path: &Path) -> Option<NodeId> {
        self.cached.get(path).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Path, NodeId)> {
        self.cached.iter().map(|(path, node)| (path.as_path(), *node))
    }

    pub fn durable(&self, path: &Path) -> Option<NodeId> {
        self.durable.get(path).copied()
    }

    /// Changes no directory sync has covered.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether a process can reach the file by a name.
    pub fn is_linked(&self, node: NodeId) -> bool {
        self.cached.values().any(|other| *other == node)
    }

    /// Whether the file may have a name after a power loss.
    pub fn may_return(&self, node: NodeId) -> bool {
        self.durable.values().any(|other| *other == node)
            || self.pending.iter().any(|change| match change {
                Change::Link { node: other, .. } | Change::Rename { node: other, .. } => {
                    *other == node
                }
                Change::Unlink { .. } => false,
            })
    }

    pub fn link(&mut self, path: &Path, node: NodeId) {
        self.cached.insert(path.to_path_buf(), node);
        self.pending.push(Change::Link { path: path.to_path_buf(), node });
    }

    pub fn unlink(&mut self, path: &Path) -> Option<NodeId> {
        let node = self.cached.remove(path)?;
        self.pending.push(Change::Unlink { path: path.to_path_buf(), node });
        Some(node)
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> Option<NodeId> {
        let node = self.cached.remove(from)?;
        self.cached.insert(to.to_path_buf(), node);
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        self.pending.push(Change::Rename { from, to, node });
        Some(node)
    }

    pub fn sync(&mut self, dir: &Path) {
        for change in std::mem::take(&mut self.pending) {
            if change.is_in(dir) {
                self.apply(change);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// The directory is gone, and no name in it comes back.
    pub fn forget(&mut self, dir: &Path) {
        self.pending.retain(|change| !change.is_in(dir));
        self.durable.retain(|path, _| path.parent() != Some(dir));
    }

    /// Power is lost: of the pending changes the first few are kept (as a journal does), or any.
    pub fn crash(&mut self, rng: &mut Rng) {
        let pending = std::mem::take(&mut self.pending);
        let journal = rng.one_in(2);
        let first = rng.between(0, pending.len() as u64) as usize;
        for (index, change) in pending.into_iter().enumerate() {
            let kept = if journal { index < first } else { rng.one_in(2) };
            if kept {
                self.apply(change);
            }
        }
        self.cached = self.durable.clone();
    }

    /// A change of a name that another lost change has to explain has no effect.
    fn apply(&mut self, change: Change) {
        match change {
            Change::Link { path, node } => {
                self.durable.insert(path, node);
            }
            Change::Unlink { path, node } => {
                if self.durable.get(&path) == Some(&node) {
                    self.durable.remove(&path);
                }
            }
            Change::Rename { from, to, node } => {
                if self.durable.get(&from) == Some(&node) {
                    self.durable.remove(&from);
                    self.durable.insert(to, node);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn path(name: &str) -> PathBuf {
        Path::new("/d").join(name)
    }

    /// The states that many power losses leave of the same names.
    fn outcomes(names: &Names) -> BTreeSet<Vec<(PathBuf, u64)>> {
        (0..200)
            .map(|seed| {
                let mut names = names.clone();
                names.crash(&mut Rng::new(seed));
                names.iter().map(|(path, node)| (path.to_path_buf(), node.0)).collect()
            })
            .collect()
    }

    #[test]
    fn a_synced_name_survives_and_a_removed_one_may_return() {
        let mut names = Names::default();
        names.link(&path("a"), NodeId(1));
        names.sync(Path::new("/d"));
        assert_eq!(outcomes(&names), [vec![(path("a"), 1)]].into());
        names.unlink(&path("a"));
        assert_eq!(names.get(&path("a")), None);
        assert_eq!(outcomes(&names), [vec![], vec![(path("a"), 1)]].into());
        names.sync(Path::new("/other"));
        assert_eq!(names.pending(), 1);
        names.sync(Path::new("/d"));
        assert_eq!(outcomes(&names), [vec![]].into());
    }

    #[test]
    fn a_rename_leaves_the_old_or_the_new_file() {
        let mut names = Names::default();
        names.link(&path("a"), NodeId(1));
        names.sync(Path::new("/d"));
        names.link(&path("a.tmp"), NodeId(2));
        names.rename(&path("a.tmp"), &path("a"));
        let old = vec![(path("a"), 1)];
        let both = vec![(path("a"), 1), (path("a.tmp"), 2)];
        let new = vec![(path("a"), 2)];
        assert_eq!(outcomes(&names), [old, both, new].into());
    }

    #[test]
    fn changes_of_different_names_survive_on_their_own() {
        let mut names = Names::default();
        names.link(&path("a"), NodeId(1));
        names.link(&path("b"), NodeId(2));
        let (a, b) = ((path("a"), 1), (path("b"), 2));
        let expect = [vec![], vec![a.clone()], vec![b.clone()], vec![a, b]];
        assert_eq!(outcomes(&names), expect.into());
    }
}
