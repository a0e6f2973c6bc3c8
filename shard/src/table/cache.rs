//! What readers of table files share: open files and blocks made again.
//!
//! One for all workers of a broker. A block is made by the first who wants it while others wait
//! for it; what was used longest ago goes when the budget is spent. Readers of old data at about
//! the same place so do the work once. Knows nothing of what a block holds.

use super::error::TableError;
use super::file::FileReader;
use super::rebatch::{make_block, Block};
use super::TableFile;
use crate::disk::Disk;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files kept open at most.
const READERS_MAX: usize = 256;

/// Open files and blocks, shared between threads.
pub struct Blocks {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

struct State {
    readers: Recent<PathBuf, FileReader>,
    blocks: Recent<Place, Arc<Block>>,
    /// Who wants one of these waits for who is making it.
    making: HashMap<Making, Arc<Mutex<()>>>,
    counts: Counts,
}

/// How often a block was there, and how often it had to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub found: u64,
    pub made: u64,
    pub opened: u64,
    pub block_bytes: usize,
}

/// A block: file, partition, first row.
type Place = (PathBuf, i32, u64);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Making {
    Reader(PathBuf),
    Block(Place),
}

impl Blocks {
    /// Blocks take up to `bytes_max`, footers of open files up to a quarter of that in addition.
    pub fn new(disk: Arc<dyn Disk>, bytes_max: usize) -> Blocks {
        let state = State {
            readers: Recent::new(bytes_max / 4, READERS_MAX),
            blocks: Recent::new(bytes_max, usize::MAX),
            making: HashMap::new(),
            counts: Counts::default(),
        };
        Blocks { disk, state: Mutex::new(state) }
    }

    /// An open reader of a file.
    pub fn reader(&self, file: &TableFile) -> Result<FileReader, TableError> {
        let path = &file.path;
        self.get(
            Making::Reader(path.clone()),
            |state| state.readers.get(path),
            || FileReader::open_as(&*self.disk, path, &file.facts),
            |state, reader| {
                state.counts.opened += 1;
                state.readers.put(path.clone(), reader.clone(), reader.memory_bytes());
            },
        )
    }

    /// The block of these rows of a file.
    pub(super) fn block(
        &self,
        reader: &FileReader,
        partition: i32,
        rows: Range<u64>,
    ) -> Result<Arc<Block>, TableError> {
        let place = (reader.path().clone(), partition, rows.start);
        self.get(
            Making::Block(place.clone()),
            |state| {
                let block = state.blocks.get(&place);
                state.counts.found += u64::from(block.is_some());
                block
            },
            || make_block(reader, partition, rows.clone()).map(Arc::new),
            |state, block| {
                state.counts.made += 1;
                state.blocks.put(place.clone(), block.clone(), block.bytes());
            },
        )
    }

    /// A file has been removed: nothing of it is kept, and it is closed.
    pub fn forget(&self, path: &Path) {
        let mut state = self.state();
        state.readers.remove(&path.to_path_buf());
        state.blocks.retain(|(of, _, _)| of != path);
    }

    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts { block_bytes: state.blocks.bytes, ..state.counts }
    }

    /// What is there, or is made by the first who asks; a failure is not kept.
    fn get<T>(
        &self,
        what: Making,
        find: impl Fn(&mut State) -> Option<T>,
        make: impl FnOnce() -> Result<T, TableError>,
        keep: impl FnOnce(&mut State, &T),
    ) -> Result<T, TableError> {
        let turn = {
            let mut state = self.state();
            if let Some(found) = find(&mut state) {
                return Ok(found);
            }
            state.making.entry(what.clone()).or_default().clone()
        };
        let _mine = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find(&mut self.state()) {
            return Ok(found);
        }
        let made = make();
        let mut state = self.state();
        state.making.remove(&what);
        if let Ok(made) = &made {
            keep(&mut state, made);
        }
        made
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Kept whole by each who holds it, whatever becomes of him.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Values up to a number of bytes and a count; those used longest ago go first.
struct Recent<K, V> {
    values: HashMap<K, Kept<V>>,
    by_age: BTreeMap<u64, K>,
    uses: u64,
    bytes: usize,
    bytes_max: usize,
    count_max: usize,
}

struct Kept<V> {
    value: V,
    used: u64,
    bytes: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    fn new(bytes_max: usize, count_max: usize) -> Recent<K, V> {
        Recent {
            values: HashMap::new(),
            by_age: BTreeMap::new(),
            uses: 0,
            bytes: 0,
            bytes_max,
            count_max,
        }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        let kept = self.values.get_mut(key)?;
        self.uses += 1;
        self.by_age.remove(&kept.used);
        kept.used = self.uses;
        self.by_age.insert(self.uses, key.clone());
        Some(kept.value.clone())
    }

    /// Keeps a value. The last one put stays, however large it is.
    fn put(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        self.uses += 1;
        self.bytes += bytes;
        self.by_age.insert(self.uses, key.clone());
        self.values.insert(key, Kept { value, used: self.uses, bytes });
        while self.values.len() > 1
            && (self.bytes > self.bytes_max || self.values.len() > self.count_max)
        {
            let Some(oldest) = self.by_age.values().next().cloned() else { break };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some(kept) = self.values.remove(key) {
            self.by_age.remove(&kept.used);
            self.bytes -= kept.bytes;
        }
    }

    fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self.values.keys().filter(|key| !keep(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut recent = Recent::new(10, 3);
        recent.put("a", 1, 4);
        recent.put("b", 2, 4);
        assert_eq!(recent.get(&"a"), Some(1));
        recent.put("c", 3, 4);
        assert_eq!((recent.get(&"b"), recent.get(&"a"), recent.bytes), (None, Some(1), 8));
        recent.put("d", 4, 1);
        recent.put("e", 5, 1);
        assert_eq!(recent.get(&"c"), None, "a count is a bound too");
        recent.put("e", 6, 2);
        assert_eq!((recent.get(&"e"), recent.bytes), (Some(6), 7));
        recent.put("large", 7, 99);
        assert_eq!((recent.get(&"large"), recent.values.len()), (Some(7), 1));
        recent.retain(|_| false);
        assert_eq!((recent.bytes, recent.by_age.len()), (0, 0));
    }
}
