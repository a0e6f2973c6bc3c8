//! The shell over a toy machine and a log the test commits, refuses and fails by hand.

use super::*;
use bytes::Bytes;
use futures_channel::oneshot;
use shard::batch::{place, BatchHeader};
use shard::ids::{LeaderEpoch, Offset, Timestamp};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use uuid::Uuid;

/// Sums numbers; answers `Wait` when its timer fires.
#[derive(Debug, Default)]
struct Sum {
    sum: i64,
    waiting: Vec<ReplyTo>,
    unpublished: Option<i64>,
    was_loaded: bool,
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Add(i64),
    /// Like `Add`, but soft state counts on it.
    Commit(i64),
    Get,
    Wait(u64),
    Id,
    Panic,
    Poison(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Added(i64);

/// Panics when it is replayed, but a version that reads it again passes it over.
const PASSED_OVER: i64 = 666;
/// A machine with this sum panics when it is loaded.
const UNSTARTED: i64 = 1_000;
/// Panics whenever it is replayed.
const POISON: i64 = 667;

impl Durable for Added {
    type Error = Infallible;

    fn to_pair(&self) -> Pair {
        Pair { key: None, value: Some(Bytes::copy_from_slice(&self.0.to_be_bytes())) }
    }

    fn from_pair(_: Option<&[u8]>, value: Option<&[u8]>) -> Result<Option<Added>, Infallible> {
        let number = value.and_then(|value| value.try_into().ok()).map(i64::from_be_bytes);
        Ok(number.filter(|number| *number != PASSED_OVER).map(Added))
    }
}

impl Machine for Sum {
    type Input = Ask;
    type Output = i64;
    type Record = Added;
    type Timer = u8;
    type Effect = i64;

    fn fresh_ids(input: &Ask) -> usize {
        usize::from(matches!(input, Ask::Id))
    }

    fn step(&mut self, cause: Cause<Sum>, at: Moment<'_>) -> Step<Sum> {
        let mut step = Step { if_refused: IfRefused::Stay, ..Step::default() };
        let (input, reply_to) = match cause {
            Cause::Request { input, reply_to } => (input, reply_to),
            Cause::Timer(_) => {
                let waiting = std::mem::take(&mut self.waiting);
                step.replies = waiting.into_iter().map(|who| (who, self.sum)).collect();
                return step;
            }
        };
        match input {
            Ask::Add(number) | Ask::Commit(number) => {
                step.records = vec![Added(number)];
                step.replies = vec![(reply_to, self.sum + number)];
                if matches!(input, Ask::Commit(_)) {
                    step.if_refused = IfRefused::Reload;
                }
            }
            Ask::Get => step.replies = vec![(reply_to, self.sum)],
            Ask::Wait(ms) => {
                self.waiting.push(reply_to);
                step.timers = vec![(1, Some(at.mono_ms + ms))];
            }
            Ask::Id => step.replies = vec![(reply_to, at.ids[0].as_u128() as i64)],
            Ask::Panic => panic!("planted"),
            Ask::Poison(number) => {
                step.records = vec![Added(number)];
                step.replies = vec![(reply_to, 0)];
            }
        }
        step
    }

    fn replay(&mut self, record: Added) {
        assert!(record.0 != POISON && record.0 != PASSED_OVER, "planted");
        self.sum += record.0;
        self.unpublished = Some(self.sum);
    }

    fn loaded(&mut self, _: Moment<'_>) -> Step<Sum> {
        assert!(self.sum != UNSTARTED, "planted");
        self.was_loaded = true;
        Step::default()
    }

    fn take_effect(&mut self) -> Option<i64> {
        self.unpublished.take()
    }
}

/// A partition, a clock and tasks in the hands of the test.
#[derive(Default)]
struct Bench {
    /// Batches in the log, and who is told of their fate.
    log: RefCell<Vec<Bytes>>,
    open: RefCell<VecDeque<oneshot::Sender<Fate>>>,
    refuses: Cell<bool>,
    unreadable: Cell<bool>,
    /// Where the partition starts, and where it will when it has been read from once more.
    log_start: Cell<i64>,
    next_log_start: Cell<i64>,
    loads: Cell<usize>,
    pauses: Cell<usize>,
    now_ms: Cell<u64>,
    ids: Cell<u128>,
    wakes: RefCell<Vec<u64>>,
    published: RefCell<Vec<i64>>,
    tasks: RefCell<Vec<Later<()>>>,
}

impl Host<Sum> for Bench {
    fn wall(&self) -> Timestamp {
        Timestamp(self.now_ms.get() as i64)
    }

    fn mono_ms(&self) -> u64 {
        self.now_ms.get()
    }

    fn fresh_id(&self) -> Uuid {
        self.ids.set(self.ids.get() + 1);
        Uuid::from_u128(self.ids.get())
    }

    fn append(&self, batch: Bytes) -> Handed {
        if self.refuses.get() {
            return Handed { refused: true, fate: Box::pin(async { Fate::Refused }) };
        }
        let mut batch = batch.to_vec();
        place(&mut batch, Offset(self.end()), LeaderEpoch(1));
        self.log.borrow_mut().push(batch.into());
        let (fate, told) = oneshot::channel();
        self.open.borrow_mut().push_back(fate);
        Handed { refused: false, fate: Box::pin(async move { told.await.unwrap() }) }
    }

    fn read(&self, from: Option<Offset>) -> Later<Result<Chunk, Unloaded>> {
        let log_start = self.log_start.replace(self.next_log_start.get());
        let from = from.map_or(0, |from| from.0).max(log_start);
        let log = self.log.borrow();
        let behind = |batch: &&Bytes| BatchHeader::parse(batch).unwrap().end_offset().0 > from;
        let bytes = log.iter().find(behind).cloned().unwrap_or_default();
        let chunk = match self.unreadable.get() {
            true => Err(Unloaded::Read),
            false => Ok(Chunk { log_start: Offset(log_start), bytes }),
        };
        Box::pin(async move { chunk })
    }

    fn perform(&self, effect: i64) -> Later<()> {
        self.published.borrow_mut().push(effect);
        Box::pin(async {})
    }

    fn pause(&self) -> Later<()> {
        self.pauses.set(self.pauses.get() + 1);
        Box::pin(futures_lite::future::yield_now())
    }

    fn spawn(&self, task: Later<()>) {
        self.tasks.borrow_mut().push(task);
    }

    fn loaded(&self, _: &Rc<Shell<Sum>>) {
        self.loads.set(self.loads.get() + 1);
    }

    fn wake_at(&self, mono_ms: u64) {
        self.wakes.borrow_mut().push(mono_ms);
    }

    fn empty(&self) -> Sum {
        Sum::default()
    }

    fn name(&self) -> String {
        "sum".to_string()
    }
}

impl Bench {
    fn end(&self) -> i64 {
        let log = self.log.borrow();
        log.last().map_or(0, |batch| BatchHeader::parse(batch).unwrap().end_offset().0)
    }

    /// Lets all tasks run until none gets any further.
    fn run(&self) {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
            let left: Vec<_> = tasks
                .into_iter()
                .filter_map(|mut task| task.as_mut().poll(&mut cx).is_pending().then_some(task))
                .collect();
            self.tasks.borrow_mut().extend(left);
        }
    }

    fn settle(&self, fate: Fate) {
        let first = self.open.borrow_mut().pop_front();
        first.expect("an append is open").send(fate).expect("awaited");
        self.run();
    }
}

fn shell() -> (Rc<Bench>, Rc<Shell<Sum>>) {
    let bench = Rc::new(Bench::default());
    (bench.clone(), Shell::active(bench, Sum::default()))
}

/// What a request was answered so far.
fn seen(answer: &mut Submitted<Sum>) -> Option<Result<i64, Unavailable>> {
    let mut cx = Context::from_waker(Waker::noop());
    match std::pin::Pin::new(answer).poll(&mut cx) {
        Poll::Ready(answer) => Some(answer.expect("every request is answered")),
        Poll::Pending => None,
    }
}

#[test]
fn nobody_is_answered_before_what_they_saw_has_committed() {
    let (bench, shell) = shell();
    let mut idle = shell.submit(Ask::Get);
    assert_eq!(seen(&mut idle), Some(Ok(0)), "nothing is on its way");
    let mut first = shell.submit(Ask::Add(1));
    let mut read = shell.submit(Ask::Get);
    let mut second = shell.submit(Ask::Add(2));
    bench.run();
    assert!([&mut first, &mut read, &mut second].into_iter().all(|answer| seen(answer).is_none()));
    bench.settle(Fate::Committed);
    assert_eq!((seen(&mut first), seen(&mut read)), (Some(Ok(1)), Some(Ok(1))));
    assert_eq!(seen(&mut second), None);
    assert_eq!(*bench.published.borrow(), [1], "the second is not committed");
    bench.settle(Fate::Committed);
    assert_eq!(seen(&mut second), Some(Ok(3)));
    assert_eq!(*bench.published.borrow(), [1, 3]);
}

#[test]
fn timers_come_back_when_they_are_due() {
    let (bench, shell) = shell();
    let mut waits = shell.submit(Ask::Wait(10));
    assert_eq!(*bench.wakes.borrow(), [10]);
    bench.now_ms.set(9);
    shell.fire();
    assert_eq!(seen(&mut waits), None);
    assert_eq!(*bench.wakes.borrow(), [10, 10], "still to come");
    bench.now_ms.set(10);
    shell.fire();
    assert_eq!(seen(&mut waits), Some(Ok(0)));
}

#[test]
fn ids_are_fresh() {
    let (_, shell) = shell();
    let ids = [(); 2].map(|()| seen(&mut shell.submit(Ask::Id)));
    assert_eq!(ids, [Some(Ok(1)), Some(Ok(2))]);
}

#[test]
fn a_refused_append_is_as_if_it_had_not_been() {
    let (bench, shell) = shell();
    bench.refuses.set(true);
    let mut lost = shell.submit(Ask::Add(5));
    bench.run();
    assert_eq!(seen(&mut lost), Some(Err(Unavailable::NotKept)));
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(0)));
    assert!(bench.published.borrow().is_empty());
}

#[test]
fn soft_state_that_counted_on_a_refused_append_is_loaded_anew() {
    let (bench, shell) = shell();
    let mut kept = shell.submit(Ask::Add(1));
    bench.settle(Fate::Committed);
    assert_eq!(seen(&mut kept), Some(Ok(1)));
    let mut waits = shell.submit(Ask::Wait(10));
    bench.refuses.set(true);
    let mut lost = shell.submit(Ask::Commit(5));
    bench.run();
    assert_eq!(seen(&mut lost), Some(Err(Unavailable::NotKept)));
    assert_eq!(seen(&mut waits), Some(Err(Unavailable::Loading)));
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(1)));
    assert_eq!(shell.look(|sum| sum.was_loaded), Some(true));
    bench.now_ms.set(10);
    shell.fire();
}

#[test]
fn what_was_seen_of_an_append_that_is_lost_later_is_not_told() {
    let (bench, shell) = shell();
    let mut lost = shell.submit(Ask::Add(1));
    let mut read = shell.submit(Ask::Get);
    bench.run();
    bench.log.borrow_mut().clear();
    bench.settle(Fate::Refused);
    assert_eq!(seen(&mut lost), Some(Err(Unavailable::NotKept)));
    assert_eq!(seen(&mut read), Some(Err(Unavailable::NotKept)));
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(0)));
}

#[test]
fn a_failed_log_ends_the_machine_and_answers_all() {
    let (bench, shell) = shell();
    let mut waits = shell.submit(Ask::Wait(10));
    let mut adds = shell.submit(Ask::Add(1));
    bench.run();
    bench.settle(Fate::LogFailed);
    for answer in [&mut waits, &mut adds, &mut shell.submit(Ask::Get)] {
        assert_eq!(seen(answer), Some(Err(Unavailable::Down)));
    }
}

#[test]
fn what_was_seen_of_an_append_whose_log_failed_is_not_told() {
    let (bench, shell) = shell();
    let mut adds = shell.submit(Ask::Add(1));
    let mut read = shell.submit(Ask::Get);
    bench.run();
    bench.settle(Fate::LogFailed);
    assert_eq!(seen(&mut adds), Some(Err(Unavailable::Down)));
    assert_eq!(seen(&mut read), Some(Err(Unavailable::Down)));
}

#[test]
fn a_machine_loads_what_its_partition_holds() {
    let (bench, before) = shell();
    for number in 1..=4 {
        drop(before.submit(Ask::Add(number)));
        bench.settle(Fate::Committed);
    }
    let shell = Shell::loading(bench.clone() as Rc<dyn Host<Sum>>);
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Err(Unavailable::Loading)));
    assert_eq!(bench.loads.get(), 0);
    bench.run();
    assert_eq!(bench.loads.get(), 1);
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(10)));
    bench.unreadable.set(true);
    let shell = Shell::loading(bench.clone() as Rc<dyn Host<Sum>>);
    bench.run();
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Err(Unavailable::Down)));
}

#[test]
fn a_load_starts_again_when_the_partition_no_longer_starts_where_it_did() {
    let (bench, before) = shell();
    for number in [1, 2, 4, 8] {
        assert!(before.is_settled());
        drop(before.submit(Ask::Add(number)));
        assert!(!before.is_settled());
        bench.settle(Fate::Committed);
    }
    // The first is read and the second is not: it may have taken the first back.
    bench.next_log_start.set(2);
    let shell = Shell::loading(bench.clone() as Rc<dyn Host<Sum>>);
    bench.run();
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(12)));
}

#[test]
fn a_load_sleeps_until_what_is_on_its_way_has_come_to_its_end() {
    let (bench, shell) = shell();
    let mut adds = shell.submit(Ask::Add(7));
    drop(shell.submit(Ask::Panic));
    bench.run();
    assert_eq!((bench.loads.get(), bench.pauses.get()), (0, 0), "it keeps the core awake");
    bench.settle(Fate::Committed);
    assert_eq!(seen(&mut adds), Some(Ok(7)));
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(7)));
}

#[test]
fn a_machine_that_does_not_start_is_not_loaded_for_ever() {
    let (bench, shell) = shell();
    drop(shell.submit(Ask::Add(UNSTARTED)));
    bench.settle(Fate::Committed);
    drop(shell.submit(Ask::Panic));
    bench.run();
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Err(Unavailable::Down)));
    assert_eq!((bench.loads.get(), bench.tasks.borrow().len()), (0, 0));
}

#[test]
fn a_panic_costs_the_soft_state_and_nothing_that_was_kept() {
    let (bench, shell) = shell();
    drop(shell.submit(Ask::Add(7)));
    bench.settle(Fate::Committed);
    let mut waits = shell.submit(Ask::Wait(10));
    let mut panics = shell.submit(Ask::Panic);
    assert_eq!(seen(&mut panics), Some(Err(Unavailable::Loading)));
    assert_eq!(seen(&mut waits), Some(Err(Unavailable::Loading)));
    bench.run();
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(7)));
    assert_eq!(bench.loads.get(), 1, "its host is told");
    drop(shell.submit(Ask::Poison(PASSED_OVER)));
    bench.settle(Fate::Committed);
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(7)));
    // What panics at every load ends this machine and no other.
    drop(shell.submit(Ask::Poison(POISON)));
    bench.settle(Fate::Committed);
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Err(Unavailable::Down)));
}

#[test]
fn a_stop_answers_those_who_wait_and_serves_the_others() {
    let (_, shell) = shell();
    let mut waits = shell.submit(Ask::Wait(10));
    shell.release();
    assert_eq!(seen(&mut waits), Some(Err(Unavailable::Down)));
    // Sent by a core that did not know of the stop yet.
    assert_eq!(seen(&mut shell.submit(Ask::Wait(10))), Some(Err(Unavailable::Down)));
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Ok(0)));
    shell.close();
    assert_eq!(seen(&mut shell.submit(Ask::Get)), Some(Err(Unavailable::Down)));
}
