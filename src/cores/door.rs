//! The door handlers ask through, over a real core.
//!
//! Splits a request by owner, serves the local share at once and sends the others their message.
//! A local share takes its effect within the call; a remote one when its owner gets to it, and asks
//! arrive there in the order they were made.

use super::append::Group;
use super::ask::{AppendAnswer, Ask, Batch, Item, Lost, ReadAnswer, TimeAnswer};
use super::core::Core;
use super::front::{
    AppendItem, AppendRefusal, AppendWait, Appending, CatalogDown, Cores, Found, GroupAnswer,
    GroupItem, Later, Offsets, PartitionAt, PartitionRefusal, ReadData, ReadItem, ReadRequest,
    Slice, TimeItem, TrimItem, Until, WatchItem,
};
use super::gather::{split, Gather};
use super::jobs::Lanes;
use super::watch::Watch;
use crate::catalog::{Answer, CatalogImage, Command};
use futures_channel::oneshot;
use futures_lite::future::yield_now;
use glommio::timer::Timer;
use shard::ids::{LeaderEpoch, LogId, Offset, Timestamp};
use shard::log::{ColdError, SideError};
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a read is planned when segments go while it is carried out.
const PLANS_MAX: usize = 10;

/// A core as its handlers see it.
#[derive(Clone)]
pub struct Door(pub Rc<Core>);

impl Door {
    /// Lets each owner answer its items: this core at once, others when they get to it.
    fn gather<I, A: Lost>(
        &self,
        items: Vec<I>,
        log: impl Fn(&I) -> LogId,
        serve: impl Fn(&Core, Vec<I>) -> Vec<A>,
        ask: impl Fn(Vec<I>, oneshot::Sender<Vec<A>>) -> Ask,
    ) -> Gather<A> {
        let core = &self.0;
        let mut gather = Gather::new(items.len());
        for share in split(items, log, |log| core.owner(log)) {
            if share.core == core.id() {
                gather.fill(&share.places, serve(core, share.items));
            } else {
                let (reply, answers) = oneshot::channel();
                core.send(share.core, ask(share.items, reply));
                gather.expect(answers, share.places);
            }
        }
        gather
    }

    fn plan(&self, ask: ReadRequest) -> Gather<ReadAnswer> {
        let ReadRequest { items, bytes_max, until } = ask;
        let request = |items| ReadRequest { items, bytes_max, until };
        self.gather(
            items,
            |item| item.at.log,
            |core, items| core.read(request(items)),
            |items, reply| Ask::Read { ask: request(items), reply },
        )
    }

    fn plan_times(&self, items: Vec<TimeItem>) -> Gather<TimeAnswer> {
        self.gather(
            items,
            |item| item.at.log,
            |core, items| core.time(&items),
            |items, reply| Ask::Time { items, reply },
        )
    }
}

impl Cores for Door {
    fn image(&self) -> Arc<CatalogImage> {
        self.0.image()
    }

    fn now(&self) -> Timestamp {
        self.0.now().wall
    }

    fn timer(&self, ms: u64) -> Later<()> {
        Box::pin(self.0.alarms.wait(Timer::new(Duration::from_millis(ms))))
    }

    // The outer future is the wait for the effect, the inner one that for the answers.
    #[allow(clippy::async_yields_async)]
    fn append(&self, items: Vec<AppendItem>, wait: AppendWait) -> Appending {
        let large = |item: &AppendItem| self.0.side_of(item.at.log, item.records.len()).is_some();
        if !items.iter().any(large) {
            return self.hand_in(items.into_iter().map(Item::from).collect(), wait);
        }
        let door = self.clone();
        Appending::Blocked(Box::pin(async move {
            let mut written = Vec::with_capacity(items.len());
            for item in items {
                written.push(door.write_aside(item).await);
            }
            match door.hand_in(written, wait) {
                Appending::Taken(answers) => answers,
                Appending::Blocked(placed) => placed.await,
            }
        }))
    }

    fn throttle_ms(&self, logs: &[LogId]) -> u32 {
        let owners = logs.iter().map(|log| self.0.owner(*log));
        self.0.tables.throttle().longest_ms(owners)
    }

    fn trim(
        &self,
        items: Vec<TrimItem>,
        timeout_ms: u64,
    ) -> Later<Vec<Result<Offset, AppendRefusal>>> {
        let trim = |TrimItem { at, below }| Item { at, batch: Batch::Trim { below } };
        let items = items.into_iter().map(trim).collect();
        let handed_in = self.hand_in(items, AppendWait::Committed { timeout_ms });
        Box::pin(async move {
            let answers = match handed_in {
                Appending::Taken(answers) => answers.await,
                Appending::Blocked(placed) => placed.await.await,
            };
            answers.into_iter().map(|answer| answer.map(|trimmed| trimmed.log_start)).collect()
        })
    }

    fn read(&self, ask: ReadRequest) -> Later<Vec<Result<ReadData, PartitionRefusal>>> {
        self.0.note_touched(ask.items.iter().map(|item| self.0.owner(item.at.log)));
        let (door, items, until) = (self.clone(), ask.items.clone(), ask.until);
        let plans = self.plan(ask);
        Box::pin(async move {
            let mut data = Vec::new();
            for (item, plan) in items.into_iter().zip(plans.await) {
                data.push(door.carry_out(plan, item, until).await);
            }
            data
        })
    }

    fn watch(&self, items: Vec<WatchItem>) -> Later<()> {
        let core = &self.0;
        let mut watch = Watch { local: None, remote: Vec::new() };
        for share in split(items, |item| item.at.log, |log| core.owner(log)) {
            if share.core == core.id() {
                watch.local = Some(core.watch(&share.items, None));
            } else {
                let (reply, fired) = oneshot::channel();
                core.send(share.core, Ask::Watch { items: share.items, reply });
                watch.remote.push(fired);
            }
        }
        Box::pin(watch)
    }

    fn offsets(&self, items: Vec<PartitionAt>) -> Later<Vec<Result<Offsets, PartitionRefusal>>> {
        Box::pin(self.gather(
            items,
            |item| item.log,
            |core, items| core.offsets(&items),
            |items, reply| Ask::Offsets { items, reply },
        ))
    }

    fn find_time(
        &self,
        items: Vec<TimeItem>,
    ) -> Later<Vec<Result<Option<Found>, PartitionRefusal>>> {
        let door = self.clone();
        let plans = self.plan_times(items.clone());
        Box::pin(async move {
            let mut found = Vec::new();
            for (item, plan) in items.into_iter().zip(plans.await) {
                found.push(door.carry_out_time(plan, item).await);
            }
            found
        })
    }

    fn end_of_epoch(
        &self,
        items: Vec<(PartitionAt, LeaderEpoch)>,
    ) -> Later<Vec<Result<Option<(LeaderEpoch, Offset)>, PartitionRefusal>>> {
        Box::pin(self.gather(
            items,
            |item| item.0.log,
            |core, items| core.epoch_end(&items),
            |items, reply| Ask::EpochEnd { items, reply },
        ))
    }

    fn catalog(&self, command: Command) -> Later<Result<Answer, CatalogDown>> {
        if self.0.id() == 0 {
            return Box::pin(self.0.command(command));
        }
        let (reply, answer) = oneshot::channel();
        self.0.send(0, Ask::Catalog { command, reply });
        Box::pin(async move { answer.await.unwrap_or(Err(CatalogDown)) })
    }

    fn groups(&self, items: Vec<GroupItem>) -> Later<Vec<GroupAnswer>> {
        let core = &self.0;
        let mut gather = Gather::new(items.len());
        let mut local = None;
        for share in split(items, |item| item.at.log, |log| core.owner(log)) {
            if share.core == core.id() {
                local = Some((core.coordinate(share.items), share.places));
            } else {
                let (reply, answers) = oneshot::channel();
                core.send(share.core, Ask::Groups { items: share.items, reply });
                gather.expect(answers, share.places);
            }
        }
        Box::pin(async move {
            if let Some((answers, places)) = local {
                gather.fill(&places, answers.await);
            }
            gather.await
        })
    }
}

impl Door {
    /// Turns a plan into data. One whose segment has gone since is made again: what was in it lies
    /// elsewhere now.
    async fn carry_out(
        &self,
        mut plan: ReadAnswer,
        item: ReadItem,
        until: Until,
    ) -> Result<ReadData, PartitionRefusal> {
        for _ in 0..PLANS_MAX {
            match fetch(plan, &self.0).await {
                Ok(data) => return Ok(data),
                Err(Miss::Refused(refusal)) => return Err(refusal),
                Err(Miss::Removed) => {}
            }
            let ask = ReadRequest { items: vec![item], bytes_max: item.bytes_max, until };
            plan = self.plan(ask).await.pop().unwrap_or_else(Lost::lost);
        }
        tracing::error!(partition = %item.at.key, "a file to be fetched from is missing");
        Err(PartitionRefusal::Unreadable)
    }

    /// The same for a look-up by time.
    async fn carry_out_time(
        &self,
        mut plan: TimeAnswer,
        item: TimeItem,
    ) -> Result<Option<Found>, PartitionRefusal> {
        for _ in 0..PLANS_MAX {
            match look_up(plan, &self.0.lanes).await {
                Ok(found) => return Ok(found),
                Err(Miss::Refused(refusal)) => return Err(refusal),
                Err(Miss::Removed) => {}
            }
            plan = self.plan_times(vec![item]).await.pop().unwrap_or_else(Lost::lost);
        }
        tracing::error!(partition = %item.at.key, "a file to be looked into is missing");
        Err(PartitionRefusal::Unreadable)
    }

    /// Has a large batch written to a file of its own; others stay as they are.
    async fn write_aside(&self, item: AppendItem) -> Item {
        let Some(sides) = self.0.side_of(item.at.log, item.records.len()) else {
            return item.into();
        };
        let AppendItem { at, records, rules } = item;
        let now = self.0.now().wall;
        let written = self.0.lanes.work(move || sides.write(&records, &rules, now)).await;
        let batch = match written {
            Ok(Ok(side)) => Batch::Side(side),
            Ok(Err(SideError::Batch(error))) => Batch::Refused(AppendRefusal::Batch(error)),
            Ok(Err(SideError::Io(error))) => {
                tracing::error!(partition = %at.key, %error, "a large batch was not written");
                Batch::Refused(AppendRefusal::DiskFull)
            }
            Err(error) => {
                tracing::error!(partition = %at.key, %error, "a large batch was not written");
                Batch::Refused(AppendRefusal::LogFailed)
            }
        };
        Item { at, batch }
    }

    /// Gives each owner its share: what is for this core takes effect now.
    #[allow(clippy::async_yields_async)]
    fn hand_in(&self, items: Vec<Item>, wait: AppendWait) -> Appending {
        let core = &self.0;
        let mut appends = Appends { local: None, gather: Gather::new(items.len()) };
        let shares = split(items, |item| item.at.log, |log| core.owner(log));
        core.note_touched(shares.iter().map(|share| share.core));
        for share in shares {
            if share.core == core.id() {
                let group = core.append(share.items, wait, None);
                appends.local = Some((group, share.places));
            } else {
                let (reply, answers) = oneshot::channel();
                core.send(share.core, Ask::Append { items: share.items, wait, reply });
                appends.gather.expect(answers, share.places);
            }
        }
        match &appends.local {
            Some((group, _)) if !group.is_placed() => {
                let group = group.clone();
                Appending::Blocked(Box::pin(async move {
                    poll_fn(|cx| group.poll(Group::is_placed, cx)).await;
                    Box::pin(appends) as Later<Vec<AppendAnswer>>
                }))
            }
            _ => Appending::Taken(Box::pin(appends)),
        }
    }
}

/// The appends of a request, here and on other cores.
struct Appends {
    local: Option<(Rc<Group>, Vec<usize>)>,
    gather: Gather<AppendAnswer>,
}

impl Future for Appends {
    type Output = Vec<AppendAnswer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<AppendAnswer>> {
        let remote = self.gather.poll_remote(cx);
        if let Some((group, _)) = &self.local {
            std::task::ready!(group.poll(Group::is_done, cx));
        }
        std::task::ready!(remote);
        if let Some((group, places)) = self.local.take() {
            self.gather.fill(&places, group.take());
        }
        Poll::Ready(self.gather.take())
    }
}

/// Why a planned read came to nothing.
enum Miss {
    Refused(PartitionRefusal),
    /// A segment went between the plan and the read.
    Removed,
}

/// Has a foreground thread do a read.
async fn read_cold<T: Send + 'static>(
    lanes: &Lanes,
    read: impl FnOnce() -> Result<T, ColdError> + Send + 'static,
) -> Result<T, Miss> {
    match lanes.work(read).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(ColdError::Removed)) => Err(Miss::Removed),
        Ok(Err(error)) => {
            tracing::error!(%error, "stored records could not be read");
            Err(Miss::Refused(PartitionRefusal::Unreadable))
        }
        Err(error) => {
            tracing::warn!(%error, "stored records were not read");
            Err(Miss::Refused(PartitionRefusal::Unreadable))
        }
    }
}

/// Turns a plan into data; what is not warm is read by a foreground thread.
async fn fetch(plan: ReadAnswer, core: &Core) -> Result<ReadData, Miss> {
    let plan = plan.map_err(Miss::Refused)?;
    let mut slices: Vec<Slice> = plan.slices.into_iter().map(Slice::Warm).collect();
    if let Some(cold) = plan.cold {
        // A request behind others is polled again when it is its turn to be answered: a client that
        // is many fetches ahead has one of them read, and not all.
        yield_now().await;
        let counted = core.cold.take(cold.bytes_max());
        let cold = cold.at_most(counted.bytes());
        let ahead = cold.ahead();
        let bytes = read_cold(&core.lanes, move || cold.run()).await?;
        if let Some(ahead) = ahead {
            let bytes = bytes.clone();
            core.lanes.offer(move || ahead.run(&bytes));
        }
        if !bytes.is_empty() {
            slices.push(Slice::Cold(counted.hold(bytes)));
        }
    }
    Ok(ReadData { offsets: plan.offsets, slices, aborted: Vec::new() })
}

async fn look_up(answer: TimeAnswer, lanes: &Lanes) -> Result<Option<Found>, Miss> {
    match answer.map_err(Miss::Refused)? {
        Some(seek) => read_cold(lanes, move || seek.run()).await,
        None => Ok(None),
    }
}
