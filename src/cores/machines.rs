//! Where state machines live: the shell's host on a core.
//!
//! Gives a shell its partition (appends through the core's own path, reads by a worker), the core's
//! clocks and tasks, and its wake-up: one task of the core sleeps until the first timer of any of
//! its machines is due.

use super::append::Group;
use super::core::Core;
use super::front::{
    AppendItem, AppendRefusal, AppendWait, PartitionAt, ReadItem, ReadRequest, Until,
};
use super::groups::Coordinator;
use super::jobs::WorkError;
use super::notify::Notify;
use crate::catalog;
use crate::state_machine::{Chunk, Fate, Handed, Host, Later, Machine, Shell, Unloaded};
use bytes::Bytes;
use glommio::timer::Timer;
use shard::batch::{Limits, Rules, TimestampRule};
use shard::ids::{Offset, Timestamp};
use shard::log::ColdError;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Bytes of a partition replayed in one go: about a millisecond of the core.
const READ_BYTES: usize = 128 << 10;
/// How often a read is planned anew when segments go while it is carried out.
const PLANS_MAX: usize = 10;
/// How long a load waits when the workers are busy.
const BUSY_REST: Duration = Duration::from_millis(20);

/// The broker's own records are taken as they are.
pub(super) const INTERNAL_RULES: Rules = Rules {
    message_bytes_max: usize::MAX,
    timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
    keys_required: false,
    zstd_allowed: true,
    limits: Limits { bytes_max: usize::MAX, ratio_max: usize::MAX, ratio_free_bytes: usize::MAX },
};

/// An append waits for its commit until the log fails: what a machine decided stays decided.
const UNTIL_COMMITTED: AppendWait = AppendWait::Committed { timeout_ms: u64::MAX };

/// A machine's partition on its core.
pub(super) struct Home<M: Machine> {
    pub core: Rc<Core>,
    pub at: PartitionAt,
    pub name: String,
    /// The machine before its first record.
    pub empty: Box<dyn Fn() -> M>,
    /// Called with the machine when it has been read, at first or anew.
    pub loaded: fn(&Rc<Core>, PartitionAt, &Rc<Shell<M>>),
    /// What a committed step means to the cores.
    pub perform: fn(Rc<Core>, M::Effect) -> Later<()>,
}

impl<M: Machine> Host<M> for Home<M> {
    fn wall(&self) -> Timestamp {
        self.core.now().wall
    }

    fn mono_ms(&self) -> u64 {
        self.core.now().mono_us / 1000
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn append(&self, batch: Bytes) -> Handed {
        let group = self.core.append_internal(vec![(self.at, batch)]);
        let refused = group.is_done() && !group.all_landed();
        let fate = Box::pin(async move {
            poll_fn(|cx| group.poll(Group::is_done, cx)).await;
            match group.take().into_iter().find_map(Result::err) {
                None => Fate::Committed,
                Some(AppendRefusal::LogFailed | AppendRefusal::TimedOut) => Fate::LogFailed,
                Some(refusal) => {
                    tracing::warn!(%refusal, "records of a state machine were not appended");
                    Fate::Refused
                }
            }
        });
        Handed { refused, fate }
    }

    fn read(&self, from: Option<Offset>) -> Later<Result<Chunk, Unloaded>> {
        let (core, at) = (self.core.clone(), self.at);
        Box::pin(async move { core.read_internal(at, from).await })
    }

    fn perform(&self, effect: M::Effect) -> Later<()> {
        (self.perform)(self.core.clone(), effect)
    }

    fn pause(&self) -> Later<()> {
        Box::pin(futures_lite::future::yield_now())
    }

    fn spawn(&self, task: Later<()>) {
        self.core.spawn(task);
    }

    fn loaded(&self, shell: &Rc<Shell<M>>) {
        (self.loaded)(&self.core, self.at, shell);
    }

    fn wake_at(&self, mono_ms: u64) {
        self.core.wakes.at(mono_ms);
    }

    fn empty(&self) -> M {
        (self.empty)()
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// When the timers of a core's machines are to be looked at next.
#[derive(Debug)]
pub(super) struct Wakes {
    at_ms: Cell<u64>,
    earlier: Notify,
}

impl Default for Wakes {
    fn default() -> Self {
        Wakes { at_ms: Cell::new(u64::MAX), earlier: Notify::default() }
    }
}

impl Wakes {
    /// At this time too.
    fn at(&self, mono_ms: u64) {
        if mono_ms < self.at_ms.get() {
            self.at_ms.set(mono_ms);
            self.earlier.notify();
        }
    }

    /// Resolves when it is time; the times told so far are then over. `now_ms` reads the clock.
    pub async fn wait(&self, now_ms: impl Fn() -> u64) {
        loop {
            let left_ms = self.at_ms.get().saturating_sub(now_ms());
            if left_ms == 0 {
                self.at_ms.set(u64::MAX);
                return;
            }
            let mut timer = Timer::new(Duration::from_millis(left_ms.min(60_000)));
            poll_fn(|cx| match self.earlier.poll(cx) {
                std::task::Poll::Ready(()) => std::task::Poll::Ready(()),
                std::task::Poll::Pending => {
                    std::future::Future::poll(std::pin::Pin::new(&mut timer), cx).map(|_| ())
                }
            })
            .await;
        }
    }
}

impl Core {
    /// Appends batches of the broker's own, all in one go.
    pub(super) fn append_internal(&self, batches: Vec<(PartitionAt, Bytes)>) -> Rc<Group> {
        let item = |(at, records)| AppendItem { at, records, rules: INTERNAL_RULES }.into();
        self.append(batches.into_iter().map(item).collect(), UNTIL_COMMITTED, None)
    }

    /// Reads what is committed in a partition of this core, through the files.
    pub(super) async fn read_internal(
        &self,
        at: PartitionAt,
        from: Option<Offset>,
    ) -> Result<Chunk, Unloaded> {
        let mut plans_left = PLANS_MAX;
        loop {
            let offsets = self.offsets(&[at]).pop().and_then(Result::ok).ok_or(Unloaded::Read)?;
            let log_start = offsets.log_start;
            let from = from.unwrap_or(log_start).max(log_start);
            let item = ReadItem { at, from, bytes_max: READ_BYTES };
            let until = Until::HighWatermark;
            let ask = ReadRequest { items: vec![item], bytes_max: READ_BYTES, until };
            let plan = self.read(ask).pop().and_then(Result::ok).ok_or(Unloaded::Read)?;
            let disk = self.disk.clone();
            match self.lanes.work(move || plan.copy(&*disk)).await {
                Ok(Ok(bytes)) => return Ok(Chunk { log_start, bytes }),
                // The segment has gone since the plan was made: its records lie elsewhere now.
                Ok(Err(ColdError::Removed)) if plans_left > 0 => plans_left -= 1,
                Ok(Err(error)) => {
                    tracing::error!(partition = %at.key, %error, "an internal read failed");
                    return Err(Unloaded::Read);
                }
                Err(WorkError::Overloaded) => drop(Timer::new(BUSY_REST).await),
                Err(WorkError::Lost) => return Err(Unloaded::Read),
            }
        }
    }

    /// Runs a task of the core's machines, until it is over or the core ends.
    pub(super) fn spawn(&self, task: Later<()>) {
        glommio::spawn_local(self.tasks.wait(task)).detach();
    }

    /// Lets go of the machines and ends their tasks: one that is pending when the executor ends
    /// would keep the core for ever, and with it the threads it has work done by.
    pub(super) async fn end_machines(&self) {
        self.close_machines();
        self.tasks.ring();
        while self.tasks.has_waiting() {
            futures_lite::future::yield_now().await;
        }
    }

    pub(super) fn catalog(&self) -> Option<Rc<Shell<catalog::Machine>>> {
        self.catalog.borrow().clone()
    }

    /// Steps the timers that are due of all machines of this core.
    pub(super) fn fire_machines(&self) {
        if let Some(catalog) = self.catalog() {
            catalog.fire();
        }
        let shells: Vec<Rc<Coordinator>> = self.groups.borrow().values().cloned().collect();
        shells.iter().for_each(|shell| shell.fire());
    }

    /// Lets go of the machines.
    fn close_machines(&self) {
        if let Some(catalog) = self.catalog.take() {
            catalog.close();
        }
        let groups = std::mem::take(&mut *self.groups.borrow_mut());
        groups.values().for_each(|shell| shell.close());
    }

    /// Steps the machines of this core whose timers are due, for as long as it runs.
    pub(super) async fn keep_time(self: Rc<Self>) {
        loop {
            self.wakes.wait(|| self.now().mono_us / 1000).await;
            self.fire_machines();
        }
    }
}
