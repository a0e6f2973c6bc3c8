//! The one shell that drives state machines: step, append, replay, wait for the commit, reply.
//!
//! A request is stepped the moment it is submitted; its records are appended and replayed within
//! that call, so no two steps see the same state. Replies, of reads too, are sent in the order of
//! the steps, when all that was appended so far has committed: what a client has heard is never
//! taken back. A machine that is loading refuses, one whose log has failed is dropped and answers
//! those who wait. Knows no runtime: time, appends and tasks come from its host.
//!
//! ```text
//! submit ── step ── append ── replay ── entry ──▶ [ queue ] ──▶ committed ── effect ── replies
//!    ▲                                                             │ refused: load anew
//!    └── timers ◀── set                                            │ log failed: down
//! ```

use super::contract::{Cause, Durable, IfRefused, Machine, Moment, ReplyTo, Step};
use super::pairs::{batch_of, read_batches, Unreadable};
use super::timers::Timers;
use bytes::Bytes;
use futures_channel::oneshot;
use shard::ids::{Offset, Timestamp};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use uuid::Uuid;

/// Work of the shell on its core.
pub type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// Where a machine lives: its partition, its clock, its core.
pub trait Host<M: Machine>: 'static {
    fn wall(&self) -> Timestamp;

    /// A clock that never jumps.
    fn mono_ms(&self) -> u64;

    fn fresh_id(&self) -> Uuid;

    /// Appends a batch behind all earlier ones.
    fn append(&self, batch: Bytes) -> Handed;

    /// Reads committed batches from an offset on, at the log start when there is none; no bytes at
    /// the end.
    fn read(&self, from: Option<Offset>) -> Later<Result<Chunk, Unloaded>>;

    /// Does what a committed step means outside.
    fn perform(&self, effect: M::Effect) -> Later<()>;

    /// Lets the other tasks of the core run for a moment.
    fn pause(&self) -> Later<()>;

    /// Runs a task on this core.
    fn spawn(&self, task: Later<()>);

    /// A machine has read its partition, at first or anew. Called before it takes a request.
    fn loaded(&self, shell: &Rc<Shell<M>>);

    /// A timer is due then, earlier than those before: `Shell::fire` is to be called.
    fn wake_at(&self, mono_ms: u64);

    /// The machine before its first record.
    fn empty(&self) -> M;

    /// The name of the machine in the broker's log.
    fn name(&self) -> String;
}

/// A batch on its way into the log.
pub struct Handed {
    /// It was refused and is not in the log.
    pub refused: bool,
    /// Resolves when its fate is known.
    pub fate: Later<Fate>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    /// It is not in the log, which goes on.
    Refused,
    /// The log takes nothing more.
    LogFailed,
}

/// Batches of the partition of a machine that is loaded.
#[derive(Debug)]
pub struct Chunk {
    /// Where the partition starts.
    pub log_start: Offset,
    pub bytes: Bytes,
}

/// Why a machine was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum Unloaded {
    #[error("its partition cannot be read")]
    Read,
    #[error(transparent)]
    Records(#[from] Unreadable),
    #[error("a record made the machine panic")]
    Panicked,
}

/// Why a request got no answer of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    Loading,
    /// The machine is gone for as long as the broker runs.
    Down,
    /// What was decided could not be kept and has no effect.
    NotKept,
}

/// The answer to a request that was submitted.
pub type Submitted<M> = oneshot::Receiver<Result<<M as Machine>::Output, Unavailable>>;
type Respond<M> = oneshot::Sender<Result<<M as Machine>::Output, Unavailable>>;

pub struct Shell<M: Machine> {
    host: Rc<dyn Host<M>>,
    state: RefCell<State<M>>,
    timers: RefCell<Timers<M::Timer>>,
    /// Those who have no reply yet.
    asking: RefCell<HashMap<ReplyTo, Respond<M>>>,
    next_reply: Cell<u64>,
    queue: RefCell<VecDeque<Entry<M>>>,
    is_draining: Cell<bool>,
    /// A load that waits for the queue to be empty.
    drained: RefCell<Option<oneshot::Sender<()>>>,
    load_begun: Cell<bool>,
    /// Nobody is kept waiting for anything but a commit.
    is_released: Cell<bool>,
}

enum State<M> {
    Loading,
    Active(M),
    Down,
}

/// A step that waits for its commit.
struct Entry<M: Machine> {
    fate: Option<Later<Fate>>,
    effect: Option<M::Effect>,
    replies: Vec<(Respond<M>, M::Output)>,
    /// The state has the records already: if they are refused after all, it is loaded anew.
    is_ahead: bool,
}

impl<M: Machine> Shell<M> {
    /// A machine that has its state: its partition is empty, or was read before.
    pub fn active(host: Rc<dyn Host<M>>, machine: M) -> Rc<Shell<M>> {
        let shell = Shell::new(host);
        shell.activate(machine);
        shell
    }

    /// A machine that reads its partition first.
    pub fn loading(host: Rc<dyn Host<M>>) -> Rc<Shell<M>> {
        let shell = Shell::new(host);
        shell.load();
        shell
    }

    fn new(host: Rc<dyn Host<M>>) -> Rc<Shell<M>> {
        Rc::new(Shell {
            host,
            state: RefCell::new(State::Loading),
            timers: RefCell::default(),
            asking: RefCell::default(),
            next_reply: Cell::new(0),
            queue: RefCell::default(),
            is_draining: Cell::new(false),
            drained: RefCell::default(),
            load_begun: Cell::new(false),
            is_released: Cell::new(false),
        })
    }

    /// Takes a request; it is decided within the call.
    pub fn submit(self: &Rc<Self>, input: M::Input) -> Submitted<M> {
        let (respond, answer) = oneshot::channel();
        let refusal = match &*self.state.borrow() {
            State::Loading => Some(Unavailable::Loading),
            State::Down => Some(Unavailable::Down),
            State::Active(_) => None,
        };
        if let Some(refusal) = refusal {
            // An asker that is gone needs no answer.
            let _ = respond.send(Err(refusal));
            return answer;
        }
        let reply_to = ReplyTo(self.next_reply.get());
        self.next_reply.set(reply_to.0 + 1);
        self.asking.borrow_mut().insert(reply_to, respond);
        let ids = M::fresh_ids(&input);
        self.turn(ids, |machine, at| machine.step(Cause::Request { input, reply_to }, at));
        if self.is_released.get() {
            self.refuse_asking(Unavailable::Down);
        }
        answer
    }

    /// Steps the timers that are due.
    pub fn fire(self: &Rc<Self>) {
        let now_ms = self.host.mono_ms();
        loop {
            let due = self.timers.borrow_mut().take_due(now_ms);
            let Some(timer) = due else { break };
            self.turn(0, |machine, at| machine.step(Cause::Timer(timer), at));
        }
        if let Some(at_ms) = self.timers.borrow().next() {
            self.host.wake_at(at_ms);
        }
    }

    /// Whether all that was decided has committed and been told.
    pub fn is_settled(&self) -> bool {
        !self.is_draining.get()
    }

    /// Looks at the machine, if there is one.
    pub fn look<T>(&self, look: impl FnOnce(&M) -> T) -> Option<T> {
        match &*self.state.borrow() {
            State::Active(machine) => Some(look(machine)),
            State::Loading | State::Down => None,
        }
    }

    /// Answers those the machine would answer some time later, also those who have yet to ask: the
    /// broker stops.
    pub fn release(&self) {
        self.is_released.set(true);
        self.refuse_asking(Unavailable::Down);
    }

    /// Ends the machine: its partition is gone, or its log.
    pub fn close(&self) {
        *self.state.borrow_mut() = State::Down;
        self.timers.borrow_mut().clear();
        self.refuse_asking(Unavailable::Down);
    }

    fn refuse_asking(&self, why: Unavailable) {
        let asking = std::mem::take(&mut *self.asking.borrow_mut());
        for respond in asking.into_values() {
            let _ = respond.send(Err(why));
        }
    }

    /// Lets the machine take one step and sees to what comes of it.
    fn turn(self: &Rc<Self>, fresh_ids: usize, step: impl FnOnce(&mut M, Moment<'_>) -> Step<M>) {
        let ids: Vec<Uuid> = (0..fresh_ids).map(|_| self.host.fresh_id()).collect();
        let wall = self.host.wall();
        let at = Moment { wall, mono_ms: self.host.mono_ms(), ids: &ids };
        let step = match &mut *self.state.borrow_mut() {
            State::Active(machine) => catch_unwind(AssertUnwindSafe(|| step(machine, at))),
            State::Loading | State::Down => return,
        };
        let Ok(step) = step else { return self.panicked() };
        self.set_timers(step.timers);
        let mut entry = Entry {
            fate: None,
            effect: None,
            replies: self.responds(step.replies),
            is_ahead: false,
        };
        if !step.records.is_empty() {
            let pairs: Vec<_> = step.records.iter().map(Durable::to_pair).collect();
            let handed = self.host.append(batch_of(&pairs, wall));
            entry.fate = Some(handed.fate);
            entry.is_ahead = step.if_refused == IfRefused::Reload;
            if !handed.refused {
                entry.is_ahead = true;
                match self.replay(step.records) {
                    Ok(effect) => entry.effect = effect,
                    Err(()) => {
                        self.enqueue(entry);
                        return self.panicked();
                    }
                }
            }
        }
        self.enqueue(entry);
    }

    fn responds(&self, replies: Vec<(ReplyTo, M::Output)>) -> Vec<(Respond<M>, M::Output)> {
        let mut asking = self.asking.borrow_mut();
        let one = |(reply_to, output)| Some((asking.remove(&reply_to)?, output));
        replies.into_iter().filter_map(one).collect()
    }

    fn set_timers(&self, set: Vec<(M::Timer, Option<u64>)>) {
        if set.is_empty() {
            return;
        }
        let mut timers = self.timers.borrow_mut();
        let before = timers.next();
        set.into_iter().for_each(|(timer, at_ms)| timers.set(timer, at_ms));
        if let Some(next) = timers.next().filter(|next| before.is_none_or(|was| *next < was)) {
            self.host.wake_at(next);
        }
    }

    fn replay(&self, records: Vec<M::Record>) -> Result<Option<M::Effect>, ()> {
        let State::Active(machine) = &mut *self.state.borrow_mut() else { return Ok(None) };
        let replay = AssertUnwindSafe(|| {
            records.into_iter().for_each(|record| machine.replay(record));
            machine.take_effect()
        });
        catch_unwind(replay).map_err(|_| ())
    }

    /// A machine that broke one of its own rules cannot be trusted: what it has in memory goes,
    /// what is kept is read anew.
    fn panicked(self: &Rc<Self>) {
        tracing::error!(machine = self.host.name(), "a state machine panicked and is loaded anew");
        self.load();
    }

    fn enqueue(self: &Rc<Self>, entry: Entry<M>) {
        let is_first = self.queue.borrow().is_empty() && !self.is_draining.get();
        if is_first && entry.fate.is_none() {
            return reply(entry.replies);
        }
        if entry.fate.is_none() && entry.replies.is_empty() {
            return;
        }
        self.queue.borrow_mut().push_back(entry);
        if !self.is_draining.replace(true) {
            let shell = self.clone();
            self.host.spawn(Box::pin(async move { shell.drain().await }));
        }
    }

    /// Answers what is in the queue, in order, until it is empty.
    async fn drain(self: Rc<Self>) {
        // Steps behind a lost one were decided on a state that never came to be: those who asked
        // hear the same as the one that was lost.
        let mut astray = None;
        loop {
            let next = self.queue.borrow_mut().pop_front();
            let Some(entry) = next else { break };
            let Entry { fate, effect, replies, is_ahead } = entry;
            let fate = match fate {
                Some(fate) => fate.await,
                None => Fate::Committed,
            };
            match (fate, astray) {
                (Fate::Committed, Some(why)) => refuse(replies, why),
                (Fate::Committed, None) => {
                    if let Some(effect) = effect {
                        self.host.perform(effect).await;
                    }
                    reply(replies);
                }
                (Fate::Refused, _) => {
                    refuse(replies, Unavailable::NotKept);
                    if is_ahead {
                        astray = Some(Unavailable::NotKept);
                        self.load();
                    }
                }
                (Fate::LogFailed, _) => {
                    refuse(replies, Unavailable::Down);
                    astray = Some(Unavailable::Down);
                    self.log_failed();
                }
            }
        }
        self.is_draining.set(false);
        drop(self.drained.take());
    }

    fn log_failed(&self) {
        if !matches!(*self.state.borrow(), State::Down) {
            tracing::error!(machine = self.host.name(), "the log of a state machine has failed");
            self.close();
        }
    }

    /// Drops what the machine has in memory and reads its partition, in a task.
    fn load(self: &Rc<Self>) {
        if matches!(*self.state.borrow(), State::Down) {
            return;
        }
        *self.state.borrow_mut() = State::Loading;
        self.timers.borrow_mut().clear();
        self.refuse_asking(Unavailable::Loading);
        if self.load_begun.replace(true) {
            return;
        }
        let shell = self.clone();
        self.host.spawn(Box::pin(async move {
            let outcome = shell.read_all().await;
            shell.load_begun.set(false);
            if matches!(*shell.state.borrow(), State::Down) {
                return;
            }
            match outcome {
                Ok(machine) => shell.go_on(machine),
                Err(error) => {
                    let machine = shell.host.name();
                    tracing::error!(machine, %error, "a state machine was not loaded");
                    shell.close();
                }
            }
        }));
    }

    async fn read_all(&self) -> Result<M, Unloaded> {
        // What is on its way into the log has to be there, or nowhere, before it is read.
        if self.is_draining.get() {
            let (drained, emptied) = oneshot::channel();
            self.drained.replace(Some(drained));
            // Dropped with the last entry.
            let _ = emptied.await;
        }
        let mut machine = self.host.empty();
        let mut from = None;
        loop {
            let chunk = self.host.read(from).await?;
            if from.is_some_and(|from| from < chunk.log_start) {
                // What was read says nothing of what was dropped unread.
                machine = self.host.empty();
                from = None;
            }
            let start = chunk.log_start.max(from.unwrap_or(chunk.log_start));
            let replay = || read_batches(&chunk.bytes, start, |record| machine.replay(record));
            let replayed = catch_unwind(AssertUnwindSafe(replay));
            let Some(end) = replayed.map_err(|_| Unloaded::Panicked)?? else { break };
            from = Some(end);
            self.host.pause().await;
        }
        if let Some(effect) = machine.take_effect() {
            self.host.perform(effect).await;
        }
        Ok(machine)
    }

    fn activate(self: &Rc<Self>, machine: M) {
        *self.state.borrow_mut() = State::Active(machine);
        self.turn(0, |machine, at| machine.loaded(at));
    }

    fn go_on(self: &Rc<Self>, machine: M) {
        self.activate(machine);
        if matches!(*self.state.borrow(), State::Active(_)) {
            return self.host.loaded(self);
        }
        // It would panic again after every load.
        tracing::error!(machine = self.host.name(), "a state machine does not start");
        self.close();
    }
}

fn reply<R, O>(replies: Vec<(oneshot::Sender<Result<O, R>>, O)>) {
    for (respond, output) in replies {
        // An asker that is gone needs no answer.
        let _ = respond.send(Ok(output));
    }
}

fn refuse<O>(replies: Vec<(oneshot::Sender<Result<O, Unavailable>>, O)>, why: Unavailable) {
    for (respond, _) in replies {
        let _ = respond.send(Err(why));
    }
}
