//! A log at home on its core, and all who wait for it.
//!
//! Appends that a busy log does not take wait here in the order they came, and everything that
//! comes after them waits too: the order of a partition never depends on luck. Placed batches wait
//! for the commit in log order. A panic inside the log counts as its failure: it takes nothing
//! more, and all who wait are told. Knows no sockets and no other cores.

use super::append::Group;
use super::ask::Batch;
use super::front::{AppendRefusal, Appended};
use super::watch::Watchers;
use shard::batch::{validate, Scratch};
use shard::ids::{DenseId, LogId, Offset, Position, Timestamp};
use shard::log::{self, AppendError, Done, Job, Log, Now, Progress};
use shard::partition::producers::ProducerError;
use shard::table::Version;
use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// One batch on its way into the log.
pub(super) struct Request {
    pub group: Rc<Group>,
    pub index: usize,
    pub id: DenseId,
    pub batch: Batch,
}

/// A placed batch whose group waits for the commit.
struct Committing {
    position: Position,
    group: Rc<Group>,
    index: usize,
}

pub(super) struct Host {
    pub id: LogId,
    pub log: Log,
    pub watchers: Watchers,
    blocked: VecDeque<Request>,
    committing: VecDeque<Committing>,
    /// The log panicked; what it holds may be inconsistent.
    broken: bool,
}

impl Host {
    pub fn new(id: LogId, log: Log) -> Host {
        Host {
            id,
            log,
            watchers: Watchers::default(),
            blocked: VecDeque::new(),
            committing: VecDeque::new(),
            broken: false,
        }
    }

    /// Whether appends wait for their place or their commit.
    pub fn has_waiting(&self) -> bool {
        !self.blocked.is_empty() || !self.committing.is_empty()
    }

    pub fn is_failed(&self) -> bool {
        self.broken || self.log.is_poisoned()
    }

    /// Appends a batch, now or when those before it have been.
    pub fn append(&mut self, request: Request, scratch: &mut Scratch, now: Now) {
        if !self.blocked.is_empty() && !self.is_failed() {
            self.blocked.push_back(request);
            return;
        }
        if let Err(request) = self.place(request, scratch, now) {
            self.blocked.push_back(request);
        }
    }

    /// Tries the blocked appends again, in order.
    fn retry(&mut self, scratch: &mut Scratch, now: Now) {
        // Their checks would be for nothing.
        if self.log.is_busy(now) && !self.is_failed() {
            return;
        }
        while let Some(request) = self.blocked.pop_front() {
            if let Err(request) = self.place(request, scratch, now) {
                self.blocked.push_front(request);
                return;
            }
        }
    }

    /// Answers the request, or gives it back when the log is busy.
    fn place(&mut self, request: Request, scratch: &mut Scratch, now: Now) -> Result<(), Request> {
        let (group, index, id) = (request.group.clone(), request.index, request.id);
        if self.is_failed() {
            group.place(index, Err(AppendRefusal::LogFailed), false);
            return Ok(());
        }
        let log = &mut self.log;
        let append = AssertUnwindSafe(|| append(log, id, &request.batch, scratch, now));
        let answer = match catch_unwind(append) {
            Ok(Ok((appended, append_time))) => {
                let waits = !appended.committed && group.waits_for_commit();
                if waits {
                    self.wait_for_commit(appended.position, &group, index);
                }
                if appended.committed {
                    self.tell_watchers(id);
                }
                let answer = Appended {
                    base_offset: appended.base_offset,
                    log_start: appended.log_start,
                    append_time,
                };
                group.place(index, Ok(answer), !waits);
                return Ok(());
            }
            Ok(Err(NotAppended::Busy)) => return Err(request),
            Ok(Err(NotAppended::Refused(refusal))) => refusal,
            Err(_) => {
                self.break_down("an append");
                AppendRefusal::LogFailed
            }
        };
        group.place(index, Err(answer), false);
        Ok(())
    }

    /// Moves a partition's log start up; what cannot be done now may be tried again.
    pub fn raise_log_start(&mut self, id: DenseId, to: Offset, now: Now) {
        if self.is_failed() {
            return;
        }
        let raise = AssertUnwindSafe(|| self.log.raise_log_start(id, to, now));
        match catch_unwind(raise) {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(log = %self.id, %error, "a log start stays"),
            Err(_) => self.break_down("a log start"),
        }
    }

    fn wait_for_commit(&mut self, position: Position, group: &Rc<Group>, index: usize) {
        // A repeated batch's position may lie before those of others that wait already.
        let last = self.committing.back().map_or(position, |last| last.position.max(position));
        self.committing.push_back(Committing { position: last, group: group.clone(), index });
    }

    fn tell_watchers(&mut self, id: DenseId) {
        if self.watchers.is_empty() {
            return;
        }
        if let Some(offsets) = self.log.offsets(id) {
            self.watchers.grown(id, offsets.high_watermark);
        }
    }

    /// Takes the outcome of a job of this log and tells all whom it concerns.
    /// Returns the deleted topics of which the log holds nothing any more.
    pub fn finish(&mut self, done: Done, scratch: &mut Scratch, now: Now) -> Vec<Uuid> {
        if self.broken {
            return Vec::new();
        }
        let finish = AssertUnwindSafe(|| self.log.finish(done, now));
        let Ok(progress) = catch_unwind(finish) else {
            self.break_down("the outcome of a job");
            return Vec::new();
        };
        let Progress { moved, unblocked, poisoned, purged, failure } = progress;
        if let Some(failure) = failure {
            tracing::error!(log = %self.id, %failure, "a job of a log failed");
        }
        self.release_committed();
        moved.into_iter().for_each(|id| self.tell_watchers(id));
        if poisoned {
            self.fail_all();
        }
        if unblocked {
            self.retry(scratch, now);
        }
        purged
    }

    fn release_committed(&mut self) {
        let committed = self.log.committed();
        while self.committing.front().is_some_and(|first| first.position <= committed) {
            if let Some(first) = self.committing.pop_front() {
                first.group.commit();
            }
        }
    }

    /// Looks at what is due and hands out the work. None when the log has panicked.
    pub fn tick(&mut self, now: Now) -> Vec<Job> {
        if self.broken {
            return Vec::new();
        }
        let log = &mut self.log;
        let tick = AssertUnwindSafe(|| {
            log.tick(now);
            log.take_jobs()
        });
        catch_unwind(tick).unwrap_or_else(|_| {
            self.break_down("its upkeep");
            Vec::new()
        })
    }

    /// When `tick` should be called for the sake of those who wait. µs.
    pub fn due_us(&self) -> Option<u64> {
        self.log.sync_due_us().filter(|_| !self.broken)
    }

    /// One step towards a clean stop; true when nothing is left to do.
    pub fn stop_step(&mut self, now: Now) -> bool {
        if self.broken {
            return true;
        }
        let step = AssertUnwindSafe(|| self.log.stop_step(now));
        catch_unwind(step).unwrap_or_else(|_| {
            self.break_down("its stop");
            true
        })
    }

    /// Ends the waiting of groups whose time is up.
    pub fn expire(&mut self, now_us: u64) {
        self.committing.retain(|waiting| {
            let stays = waiting.group.deadline_us > now_us;
            if !stays {
                waiting.group.fail(waiting.index, AppendRefusal::TimedOut);
            }
            stays
        });
    }

    /// Forgets a partition whose topic is gone.
    pub fn detach(&mut self, id: DenseId) {
        let (gone, stay): (Vec<_>, Vec<_>) =
            self.blocked.drain(..).partition(|request| request.id == id);
        self.blocked = stay.into();
        for request in gone {
            request.group.place(request.index, Err(AppendRefusal::Unknown), false);
        }
        self.watchers.gone(id);
        if !self.broken {
            self.log.detach(id);
        }
    }

    /// Says what the table of a partition consists of.
    pub fn set_table(&mut self, id: DenseId, version: Arc<Version>) {
        if self.broken {
            return;
        }
        let set = AssertUnwindSafe(|| self.log.set_table(id, version));
        if catch_unwind(set).is_err() {
            self.break_down("a new version of a table");
        }
    }

    /// Asks for a report when nothing of a deleted topic is left.
    pub fn report_purged(&mut self, topic: Uuid) {
        if !self.broken {
            self.log.report_purged(topic);
        }
    }

    fn break_down(&mut self, during: &'static str) {
        tracing::error!(log = %self.id, during, "a log panicked and takes nothing more");
        self.broken = true;
        self.fail_all();
    }

    fn fail_all(&mut self) {
        for waiting in self.committing.drain(..) {
            waiting.group.fail(waiting.index, AppendRefusal::LogFailed);
        }
        for request in self.blocked.drain(..) {
            request.group.place(request.index, Err(AppendRefusal::LogFailed), false);
        }
    }
}

/// Why `append` did not append.
enum NotAppended {
    Busy,
    Refused(AppendRefusal),
}

/// Checks a batch and appends it. Returns its place and the broker's time when that replaced the
/// producer's.
fn append(
    log: &mut Log,
    id: DenseId,
    batch: &Batch,
    scratch: &mut Scratch,
    now: Now,
) -> Result<(log::Appended, Option<Timestamp>), NotAppended> {
    match batch {
        Batch::Inline { records, rules } => {
            let valid = validate(records, rules, now.wall, scratch)
                .map_err(|error| NotAppended::Refused(AppendRefusal::Batch(error)))?;
            let appended = log.append(id, &valid, now).map_err(refusal)?;
            Ok((appended, valid.append_time().map(|_| appended.append_time)))
        }
        Batch::Side(side) => {
            let appended = log.append_side(id, side, now).map_err(refusal)?;
            Ok((appended, side.append_time().map(|_| appended.append_time)))
        }
        Batch::Refused(refusal) => Err(NotAppended::Refused(refusal.clone())),
        Batch::Trim { below } => Ok((trim(log, id, *below, now)?, None)),
    }
}

/// Moves a partition's log start up, and has that made durable. It counts as an append of nothing.
fn trim(
    log: &mut Log,
    id: DenseId,
    below: Option<Offset>,
    now: Now,
) -> Result<log::Appended, NotAppended> {
    let offsets = log.offsets(id).ok_or(NotAppended::Refused(AppendRefusal::Unknown))?;
    let to = below.unwrap_or(offsets.high_watermark);
    if to > offsets.high_watermark {
        let refused = AppendRefusal::AboveHighWatermark(offsets.high_watermark);
        return Err(NotAppended::Refused(refused));
    }
    let (log_start, position) = log.raise_log_start(id, to, now).map_err(refusal)?;
    let committed = position <= log.committed();
    if !committed {
        log.hurry(id);
    }
    Ok(log::Appended {
        base_offset: log_start,
        last_offset: log_start,
        log_start,
        position,
        committed,
        duplicate: false,
        append_time: now.wall,
    })
}

fn refusal(error: AppendError) -> NotAppended {
    NotAppended::Refused(match error {
        AppendError::Busy => return NotAppended::Busy,
        AppendError::Producer(ProducerError::StaleEpoch { .. }) => {
            AppendRefusal::StaleProducerEpoch
        }
        AppendError::Producer(_) => AppendRefusal::OutOfOrderSequence,
        AppendError::Poisoned => AppendRefusal::LogFailed,
        AppendError::Full => AppendRefusal::DiskFull,
        AppendError::TooLarge { bytes, bytes_max } => {
            AppendRefusal::TooLargeForSegment { bytes, bytes_max: bytes_max as usize }
        }
    })
}
