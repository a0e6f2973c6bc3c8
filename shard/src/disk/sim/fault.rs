//! What goes wrong on the simulated disk, and when.
//!
//! Every change of the disk is a counted step, so that a test can stop the world before each one
//! in turn: `create_map` is the three steps create, sync and directory sync, `publish` five.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The steps calls are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    CreateDir,
    RemoveDir,
    CreateMap,
    SyncMap,
    Create,
    Append,
    Truncate,
    /// The sync of a whole file.
    Sync,
    /// The sync of a directory.
    SyncDir,
    Rename,
    Remove,
    Prefault,
    Open,
    Read,
    List,
    Space,
}

impl Op {
    /// Whether the step may change what is on the disk; only these are counted.
    pub fn changes(self) -> bool {
        match self {
            Op::CreateDir
            | Op::RemoveDir
            | Op::CreateMap
            | Op::SyncMap
            | Op::Create
            | Op::Append
            | Op::Truncate
            | Op::Sync
            | Op::SyncDir
            | Op::Rename
            | Op::Remove => true,
            Op::Prefault | Op::Open | Op::Read | Op::List | Op::Space => false,
        }
    }
}

/// Something to go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The step of this kind after the next `after` ones fails, once, with the system's `errno`. A
    /// failed sync leaves some of its pages unwritten and all of them clean: the next sync returns
    /// without an error and without writing them.
    Fail { op: Op, after: u64, errno: i32 },
    /// From the step of this kind after the next `after` ones, syncs return without an error and
    /// write nothing: a power loss may take what they promised.
    Lie { op: Op, after: u64 },
    /// The counted step with this number (`SimDisk::ops` of them come before it) and everything
    /// after it does not happen and fails with `SimError::Stopped`.
    Stop { at: u64 },
    /// Reads of these bytes of the file of this name fail with EIO, also after a crash.
    BadSectors { path: PathBuf, from: u64, to: u64 },
}

/// Errors no real disk returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The process has stopped at a step chosen by the test.
    #[error("simulation stopped at this step")]
    Stopped,
    /// The handle belongs to a process that has crashed or was killed.
    #[error("simulated process has ended")]
    Dead,
}

impl SimError {
    /// The error inside `error`, if it is one of these.
    pub fn of(error: &io::Error) -> Option<SimError> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<SimError> for io::Error {
    fn from(error: SimError) -> io::Error {
        io::Error::other(error)
    }
}

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Happens,
    Fails { errno: i32 },
    Lies,
}

/// The faults that wait for their step, and the count of steps.
#[derive(Clone, Default)]
pub struct Plan {
    ops: u64,
    stop_at: Option<u64>,
    stopped: bool,
    /// Calls of each kind so far.
    calls: BTreeMap<Op, u64>,
    /// By kind and call number, each used once.
    fails: BTreeMap<(Op, u64), i32>,
    /// By kind, the first call that lies.
    lies: BTreeMap<Op, u64>,
}

impl Plan {
    pub fn ops(&self) -> u64 {
        self.ops
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub fn fail(&mut self, op: Op, after: u64, errno: i32) {
        self.fails.insert((op, self.calls(op) + after), errno);
    }

    pub fn lie(&mut self, op: Op, after: u64) {
        assert!(matches!(op, Op::Sync | Op::SyncMap | Op::SyncDir), "{op:?} cannot lie");
        self.lies.insert(op, self.calls(op) + after);
    }

    pub fn stop(&mut self, at: u64) {
        self.stop_at = Some(at);
    }

    fn calls(&self, op: Op) -> u64 {
        self.calls.get(&op).copied().unwrap_or(0)
    }

    /// Counts a step and says what becomes of it.
    pub fn step(&mut self, op: Op) -> Result<Verdict, SimError> {
        self.stopped |= op.changes() && self.stop_at.is_some_and(|at| self.ops >= at);
        if self.stopped {
            return Err(SimError::Stopped);
        }
        self.ops += u64::from(op.changes());
        let call = self.calls(op);
        self.calls.insert(op, call + 1);
        if let Some(errno) = self.fails.remove(&(op, call)) {
            return Ok(Verdict::Fails { errno });
        }
        let lies = self.lies.get(&op).is_some_and(|first| call >= *first);
        Ok(if lies { Verdict::Lies } else { Verdict::Happens })
    }

    /// Forgets what waits; the counts go on.
    pub fn clear(&mut self) {
        self.stop_at = None;
        self.stopped = false;
        self.fails.clear();
        self.lies.clear();
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ops", self.ops)?;
        if self.stopped {
            write!(f, ", stopped")?;
        }
        if !self.fails.is_empty() || !self.lies.is_empty() {
            write!(f, ", fails {:?}, lies {:?}", self.fails, self.lies)?;
        }
        Ok(())
    }
}

/// A step that was taken, for the reader of a failed run.
#[derive(Clone, Debug)]
pub struct Event {
    pub op: Op,
    pub path: PathBuf,
    pub verdict: Verdict,
}

impl Event {
    pub fn new(op: Op, path: &Path, verdict: Verdict) -> Event {
        Event { op, path: path.to_path_buf(), verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_hit_the_step_they_name() {
        let mut plan = Plan::default();
        assert_eq!(plan.step(Op::Sync), Ok(Verdict::Happens));
        plan.fail(Op::Sync, 1, 5);
        plan.lie(Op::SyncDir, 1);
        assert_eq!(plan.step(Op::Sync), Ok(Verdict::Happens));
        assert_eq!(plan.step(Op::Append), Ok(Verdict::Happens));
        assert_eq!(plan.step(Op::Sync), Ok(Verdict::Fails { errno: 5 }));
        assert_eq!(plan.step(Op::Sync), Ok(Verdict::Happens));
        assert_eq!(plan.step(Op::SyncDir), Ok(Verdict::Happens));
        assert_eq!(plan.step(Op::SyncDir), Ok(Verdict::Lies));
        assert_eq!(plan.step(Op::SyncDir), Ok(Verdict::Lies));
    }

    #[test]
    fn a_stop_lets_reads_pass_until_the_next_change_and_nothing_after() {
        let mut plan = Plan::default();
        plan.stop(1);
        assert_eq!(plan.step(Op::Append), Ok(Verdict::Happens));
        assert_eq!(plan.step(Op::Read), Ok(Verdict::Happens));
        assert!(!plan.is_stopped());
        assert_eq!(plan.step(Op::Sync), Err(SimError::Stopped));
        assert_eq!(plan.step(Op::Read), Err(SimError::Stopped));
        assert_eq!(plan.ops(), 1);
        plan.clear();
        assert_eq!(plan.step(Op::Sync), Ok(Verdict::Happens));
    }
}
