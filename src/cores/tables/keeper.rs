//! The tables a core keeps: what waits for each, who asks, and which is next. Pure.
//!
//! A table is in one round at a time; its manifest is away then. What cannot be written is tried
//! again after a second, and after twice as long each time it fails, up to five minutes.
//!
//! Worked example: 3 MB wait for table a since 10 min, 70 MB for b since a moment, somebody asks
//! for c. `next` says c, b, and then nothing: a is due in 5 min.

use super::backlog::News;
use crate::catalog::Topic;
use crate::cores::gate::GateError;
use crate::metrics::TableCounts;
use futures_channel::oneshot;
use rustc_hash::FxHashMap;
use shard::ids::{Offset, Timestamp};
use shard::log::Now;
use shard::table::{columnarise_due, Due, Manifest, Pending, TableSettings, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const RETRY_MIN_MS: u64 = 1_000;
const RETRY_MAX_MS: u64 = 300_000;
/// Between two rounds when the first could not do what was asked for.
pub const PAUSE_MS: u64 = 20;

/// Why a table is written, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Somebody waits for it.
    Asked,
    /// The log needs the space.
    Room,
    /// Enough is waiting, or for long enough.
    Due,
    /// Nothing waits; the files are to be put in order.
    Upkeep,
}

/// Somebody who waits for rows to be in files.
#[derive(Debug)]
struct Asker {
    reply: oneshot::Sender<Result<Arc<Version>, GateError>>,
    /// A round has begun since.
    is_heard: bool,
    /// How far each partition is to be in files; `None` until that round's owners have said.
    target: Option<BTreeMap<i32, Offset>>,
}

/// A table and what is wanted of it.
#[derive(Debug)]
struct Kept {
    topic: Arc<Topic>,
    /// Not here while a round has it; lost when that round died.
    manifest: Option<Manifest>,
    version: Arc<Version>,
    waiting: BTreeMap<i32, Pending>,
    wants_room: bool,
    /// Log starts have passed files, or files have to be merged, compacted or removed.
    upkeep_at: Option<Timestamp>,
    askers: Vec<Asker>,
    in_round: Option<Reason>,
    /// Rounds in a row that failed, or did not get on with all of it.
    failures: u32,
    /// Not before. ms of the monotonic clock.
    retry_ms: u64,
    asked_ms: Option<u64>,
}

/// A partition as a round found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub log_start: Offset,
    /// Where what is committed ends.
    pub end: Offset,
}

/// What became of a table whose topic is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// There is none here.
    NotKept,
    Idle,
    /// Its files are being written: to be removed when that has ended.
    InRound,
}

/// How a round ended.
#[derive(Debug)]
pub enum Ended {
    /// Possibly nothing was to be done.
    Written {
        manifest: Manifest,
        /// When the files are to be looked at again, whatever comes in.
        upkeep_at: Option<Timestamp>,
        /// The partitions as they were when the round began.
        seen: BTreeMap<i32, Seen>,
    },
    /// What was planned has changed meanwhile: to be planned anew.
    Outdated(Option<Manifest>),
    Failed(Option<Manifest>),
}

/// What a round begins with.
#[derive(Debug)]
pub struct Begun {
    pub topic: Arc<Topic>,
    pub version: Arc<Version>,
    pub manifest: Option<Manifest>,
    pub reason: Reason,
}

#[derive(Debug, Default)]
pub struct Keeper {
    kept: FxHashMap<Uuid, Kept>,
    rounds: usize,
    /// Rounds that failed since the start.
    pub failures: u64,
}

/// A table as it is counted.
#[derive(Debug)]
pub struct Counted<'a>(&'a Kept);

impl Counted<'_> {
    pub fn at(&self, now: Timestamp) -> TableCounts {
        let Counted(kept) = self;
        let files = kept.version.files().iter();
        let waiting_ms = kept.oldest().map_or(0, |oldest| now.0.saturating_sub(oldest.0).max(0));
        TableCounts {
            topic: kept.topic.name.clone(),
            files: kept.version.files().len() as u64,
            bytes: files.clone().map(|file| file.facts.bytes).sum(),
            rows: files.map(|file| file.facts.rows()).sum(),
            waiting_bytes: kept.waiting.values().map(|waiting| waiting.bytes).sum(),
            waiting_ms: waiting_ms.unsigned_abs(),
            failing: kept.failures.into(),
        }
    }
}

impl Keeper {
    /// Keeps a table that was found at the start.
    pub fn found(&mut self, topic: &Arc<Topic>, manifest: Manifest) {
        let kept = self.kept(topic);
        kept.version = manifest.version().clone();
        kept.manifest = Some(manifest);
        // What the last run left undone.
        kept.upkeep_at = Some(Timestamp(0));
    }

    fn kept(&mut self, topic: &Arc<Topic>) -> &mut Kept {
        self.kept.entry(topic.id).or_insert_with(|| Kept {
            topic: topic.clone(),
            manifest: None,
            version: super::empty(topic.id),
            waiting: BTreeMap::new(),
            wants_room: false,
            upkeep_at: None,
            askers: Vec::new(),
            in_round: None,
            failures: 0,
            retry_ms: 0,
            asked_ms: None,
        })
    }

    /// Something waits for a table.
    pub fn hear(&mut self, topic: &Arc<Topic>, news: News, now: Timestamp) {
        let pending = news.pending;
        let partition = pending.key.partition;
        let kept = self.kept(topic);
        let first = kept.version.parts(partition).first();
        if first.is_some_and(|first| first.part.end <= news.log_start) {
            kept.upkeep_at = Some(now);
        }
        let from = kept.version.table_end(partition).unwrap_or(Offset(0)).max(pending.from);
        if pending.until <= from {
            kept.waiting.remove(&partition);
            return;
        }
        kept.wants_room |= news.wants_room;
        let since = Some(pending.since.unwrap_or(now));
        let (until, bytes) = (pending.until, pending.bytes);
        kept.waiting.insert(partition, Pending { partition, from, until, bytes, since });
    }

    /// Somebody wants everything in files.
    pub fn ask(
        &mut self,
        topic: &Arc<Topic>,
        reply: oneshot::Sender<Result<Arc<Version>, GateError>>,
        (now, coalesced_ms): (Now, u64),
    ) {
        let kept = self.kept(topic);
        let now_ms = now.mono_us / 1000;
        let is_fresh = kept.asked_ms.is_some_and(|at_ms| now_ms < at_ms + coalesced_ms);
        if is_fresh && kept.in_round.is_none() {
            // An asker that is gone needs no answer.
            let _ = reply.send(Ok(kept.version.clone()));
            return;
        }
        kept.askers.push(Asker { reply, is_heard: false, target: None });
    }

    /// The topic is gone.
    pub fn remove(&mut self, topic: Uuid) -> Removed {
        let Some(kept) = self.kept.remove(&topic) else { return Removed::NotKept };
        for asker in kept.askers {
            let _ = asker.reply.send(Err(GateError::Unknown));
        }
        match kept.in_round {
            Some(_) => Removed::InRound,
            None => Removed::Idle,
        }
    }

    /// Begins a round, of the table that needs one most.
    pub fn next(&mut self, settings: &TableSettings, now: Now) -> Option<Begun> {
        let due = |kept: &Kept| Some((kept.due(settings, now)?, kept.oldest(), kept.topic.id));
        let (reason, _, topic) = self.kept.values().filter_map(due).min()?;
        let kept = self.kept.get_mut(&topic)?;
        kept.in_round = Some(reason);
        kept.askers.iter_mut().for_each(|asker| asker.is_heard = true);
        self.rounds += 1;
        Some(Begun {
            topic: kept.topic.clone(),
            version: kept.version.clone(),
            manifest: kept.manifest.take(),
            reason,
        })
    }

    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Whether somebody waits for a table that is in no round.
    pub fn is_asked(&self) -> bool {
        self.kept.values().any(|kept| kept.in_round.is_none() && !kept.askers.is_empty())
    }

    /// A round is over. True when its topic is gone.
    pub fn ended(&mut self, topic: Uuid, ended: Ended, now: Now) -> bool {
        self.rounds -= 1;
        let Some(kept) = self.kept.get_mut(&topic) else { return true };
        let reason = kept.in_round.take();
        let now_ms = now.mono_us / 1000;
        match ended {
            Ended::Written { manifest, upkeep_at, seen } => {
                kept.upkeep_at = upkeep_at;
                let before = std::mem::replace(&mut kept.version, manifest.version().clone());
                kept.manifest = Some(manifest);
                if reason != Some(Reason::Upkeep) && kept.is_stuck(&before, &seen) {
                    kept.failed(now_ms);
                    self.failures += 1;
                } else {
                    kept.failures = 0;
                    kept.retry_ms = 0;
                }
                kept.written(&seen, now_ms);
            }
            Ended::Outdated(manifest) => {
                kept.manifest = manifest;
                kept.retry_ms = now_ms + PAUSE_MS;
            }
            Ended::Failed(manifest) => {
                kept.manifest = manifest;
                kept.failed(now_ms);
                self.failures += 1;
            }
        }
        false
    }

    /// The tables kept here.
    pub fn counted(&self) -> impl Iterator<Item = Counted<'_>> {
        self.kept.values().map(Counted)
    }
}

impl Kept {
    fn due(&self, settings: &TableSettings, now: Now) -> Option<Reason> {
        if self.in_round.is_some() || now.mono_us / 1000 < self.retry_ms {
            return None;
        }
        if !self.askers.is_empty() {
            return Some(Reason::Asked);
        }
        if self.wants_room && !self.waiting.is_empty() {
            return Some(Reason::Room);
        }
        let waiting: Vec<Pending> = self.waiting.values().copied().collect();
        if columnarise_due(&waiting, settings, now.wall) == Due::Now {
            return Some(Reason::Due);
        }
        self.upkeep_at.filter(|at| *at <= now.wall).map(|_| Reason::Upkeep)
    }

    fn oldest(&self) -> Option<Timestamp> {
        self.waiting.values().filter_map(|waiting| waiting.since).min()
    }

    /// Whether a partition got no further, although something waits: it cannot be read.
    fn is_stuck(&self, before: &Version, seen: &BTreeMap<i32, Seen>) -> bool {
        self.waiting.values().any(|waiting| {
            let end = |version: &Version| version.table_end(waiting.partition);
            let start = seen.get(&waiting.partition).map_or(Offset(0), |seen| seen.log_start);
            let from = waiting.from.max(start).max(end(before).unwrap_or(Offset(0)));
            from < waiting.until && end(&self.version) == end(before)
        })
    }

    /// Nothing, or not all, came of a round: it is tried again later, and nobody waits until then.
    fn failed(&mut self, now_ms: u64) {
        self.failures += 1;
        let wait_ms = RETRY_MIN_MS << (self.failures - 1).min(16);
        self.retry_ms = now_ms + wait_ms.min(RETRY_MAX_MS);
        for asker in self.askers.drain(..) {
            // One that is gone needs no answer.
            let _ = asker.reply.send(Err(GateError::NotWritten));
        }
    }

    /// Looks at what a round has written, and answers those who have waited for no more than that.
    fn written(&mut self, seen: &BTreeMap<i32, Seen>, now_ms: u64) {
        self.wants_room = false;
        let version = &self.version;
        let end = |partition: i32| {
            let start = seen.get(&partition).map(|seen| seen.log_start);
            version.table_end(partition).max(start).unwrap_or(Offset(0))
        };
        // Owners tell what is left when they have the new version.
        self.waiting.retain(|partition, waiting| waiting.until > end(*partition));
        for waiting in self.waiting.values_mut() {
            waiting.from = waiting.from.max(end(waiting.partition));
        }
        for asker in self.askers.iter_mut().filter(|asker| asker.is_heard) {
            let ends = || seen.iter().map(|(partition, seen)| (*partition, seen.end)).collect();
            asker.target.get_or_insert_with(ends);
        }
        let is_there = |asker: &Asker| {
            let reached = |(partition, to): (&i32, &Offset)| end(*partition) >= *to;
            asker.target.as_ref().is_some_and(|target| target.iter().all(reached))
        };
        let askers = std::mem::take(&mut self.askers);
        let (there, wait): (Vec<Asker>, Vec<Asker>) = askers.into_iter().partition(is_there);
        self.askers = wait;
        if !there.is_empty() {
            self.asked_ms = Some(now_ms);
        } else if !self.askers.is_empty() {
            // What they wait for has not reached stable storage yet.
            self.retry_ms = now_ms + PAUSE_MS;
        }
        for Asker { reply, .. } in there {
            // One that is gone needs no answer.
            let _ = reply.send(Ok(version.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::topic::{Overrides, TopicSettings};
    use crate::config::Config;
    use shard::disk::sim::SimDisk;
    use shard::ids::{LogId, PartitionKey};
    use std::path::Path;

    const SETTINGS: fn() -> TableSettings =
        || TableSettings { commit_bytes: 1_000, commit_ms: 60_000, ..TableSettings::default() };

    fn topic(number: u128) -> Arc<Topic> {
        let settings = TopicSettings::resolve(&Overrides::new(), &Config::default());
        Arc::new(Topic {
            view: 0,
            id: Uuid::from_u128(number),
            name: format!("t{number}").into(),
            logs: vec![LogId(0)],
            configs: Overrides::new(),
            settings: Arc::new(settings.expect("the defaults are right")),
            created_ms: 0,
        })
    }

    fn now(ms: i64) -> Now {
        Now { wall: Timestamp(ms), mono_us: ms.unsigned_abs() * 1000 }
    }

    fn news(topic: &Topic, until: i64, bytes: u64, since: i64) -> News {
        let key = PartitionKey { view: 0, topic: topic.id, partition: 0 };
        let (from, until) = (Offset(0), Offset(until));
        let pending =
            shard::log::Pending { key, from, until, bytes, since: Some(Timestamp(since)) };
        News { pending, log_start: Offset(0), wants_room: false }
    }

    fn next(keeper: &mut Keeper, ms: i64) -> Option<(u128, Reason)> {
        let begun = keeper.next(&SETTINGS(), now(ms))?;
        Some((begun.topic.id.as_u128(), begun.reason))
    }

    /// A round that has written everything below `end`, as far as the table itself goes.
    fn written(topic: &Topic, end: i64) -> Ended {
        let (manifest, _) = Manifest::open(&SimDisk::new(1), Path::new("/t"), topic.id)
            .expect("there is nothing to read");
        let seen = Seen { log_start: Offset(0), end: Offset(end) };
        Ended::Written { manifest, upkeep_at: None, seen: BTreeMap::from([(0, seen)]) }
    }

    #[test]
    fn the_most_urgent_goes_first_and_what_is_not_due_waits() {
        let mut keeper = Keeper::default();
        let all: Vec<Arc<Topic>> = (1..=4).map(topic).collect();
        let (reply, _answer) = oneshot::channel();
        keeper.hear(&all[0], news(&all[0], 5, 300, 0), Timestamp(0));
        keeper.hear(&all[1], news(&all[1], 5, 1_000, 9_000), Timestamp(9_000));
        keeper.hear(&all[3], News { wants_room: true, ..news(&all[3], 5, 1, 9_000) }, Timestamp(0));
        keeper.ask(&all[2], reply, (now(10_000), 0));
        assert_eq!(next(&mut keeper, 10_000), Some((3, Reason::Asked)));
        assert_eq!(next(&mut keeper, 10_000), Some((4, Reason::Room)));
        assert_eq!(next(&mut keeper, 10_000), Some((2, Reason::Due)));
        assert_eq!(next(&mut keeper, 59_999), None);
        assert_eq!(next(&mut keeper, 60_000), Some((1, Reason::Due)));
        assert_eq!(keeper.rounds(), 4);
        keeper.hear(&all[0], news(&all[0], 9, 3_000, 0), Timestamp(0));
        assert_eq!(next(&mut keeper, 60_000), None, "a table is in one round at a time");
    }

    #[test]
    fn what_fails_is_tried_again_after_longer_and_longer() {
        let (mut keeper, topic) = (Keeper::default(), topic(1));
        keeper.hear(&topic, news(&topic, 5, 1_000, 0), Timestamp(0));
        let mut at = 0;
        for wait_ms in [1_000, 2_000, 4_000, 8_000] {
            assert!(next(&mut keeper, at).is_some());
            keeper.ended(topic.id, Ended::Failed(None), now(at));
            assert_eq!(next(&mut keeper, at + wait_ms - 1), None);
            at += wait_ms;
        }
        for _ in 0..40 {
            assert!(next(&mut keeper, at).is_some());
            keeper.ended(topic.id, Ended::Failed(None), now(at));
            at += RETRY_MAX_MS as i64;
        }
        assert_eq!(keeper.failures, 44);
        assert!(next(&mut keeper, at).is_some());
        keeper.ended(topic.id, written(&topic, 5), now(at));
        assert_eq!(keeper.failures, 45, "nothing was written of what waits");
    }

    #[test]
    fn an_asker_waits_for_all_that_was_committed_when_its_round_began() {
        let (mut keeper, topic) = (Keeper::default(), topic(1));
        let (reply, mut early) = oneshot::channel();
        keeper.ask(&topic, reply, (now(0), 1_000));
        assert_eq!(next(&mut keeper, 0), Some((1, Reason::Asked)));
        let (reply, mut late) = oneshot::channel();
        keeper.ask(&topic, reply, (now(1), 1_000));
        // Something is committed and not on stable storage yet.
        keeper.ended(topic.id, written(&topic, 3), now(2));
        assert!(keeper.is_asked());
        assert_eq!(early.try_recv().expect("waits"), None);
        assert_eq!(next(&mut keeper, 3), None, "not at once again");
        assert_eq!(next(&mut keeper, 22), Some((1, Reason::Asked)));
        // The second asker is content; what the first saw when it began is still missing.
        keeper.ended(topic.id, written(&topic, 0), now(30));
        assert_eq!(early.try_recv().expect("waits"), None);
        assert!(late.try_recv().expect("answered").is_some_and(|answer| answer.is_ok()));
        let (reply, mut third) = oneshot::channel();
        keeper.ask(&topic, reply, (now(500), 1_000));
        assert!(third.try_recv().expect("answered at once").is_some());
        assert_eq!(keeper.remove(topic.id), Removed::Idle);
        let gone = early.try_recv().expect("answered").map(|answer| answer.err());
        assert_eq!(gone, Some(Some(GateError::Unknown)));
        assert_eq!(keeper.remove(topic.id), Removed::NotKept);
    }

    #[test]
    fn a_log_start_that_passes_nothing_asks_for_nothing() {
        let (mut keeper, topic) = (Keeper::default(), topic(1));
        let past = News { log_start: Offset(4), ..news(&topic, 0, 0, 0) };
        keeper.hear(&topic, past, Timestamp(0));
        assert_eq!(next(&mut keeper, 100_000), None);
    }
}
