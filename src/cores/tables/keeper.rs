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
/// Who asks within this time of a round that was asked for gets what that one wrote.
const COALESCED_MS: u64 = 1_000;

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
    in_round: bool,
    failures: u32,
    /// Not before. ms of the monotonic clock.
    retry_ms: u64,
    asked_ms: Option<u64>,
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
        /// How far each partition was committed when the round began.
        ends: BTreeMap<i32, Offset>,
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
pub struct Counted<'a> {
    pub topic: &'a Topic,
    pub version: &'a Version,
    pub waiting_bytes: u64,
    pub oldest: Option<Timestamp>,
    pub failures: u32,
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
            in_round: false,
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
        now: Now,
    ) {
        let kept = self.kept(topic);
        let now_ms = now.mono_us / 1000;
        let is_fresh = kept.asked_ms.is_some_and(|at_ms| now_ms < at_ms + COALESCED_MS);
        if is_fresh && !kept.in_round {
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
            true => Removed::InRound,
            false => Removed::Idle,
        }
    }

    /// Begins a round, of the table that needs one most.
    pub fn next(&mut self, settings: &TableSettings, now: Now) -> Option<Begun> {
        let due = |kept: &Kept| Some((kept.due(settings, now)?, kept.oldest(), kept.topic.id));
        let (reason, _, topic) = self.kept.values().filter_map(due).min()?;
        let kept = self.kept.get_mut(&topic)?;
        kept.in_round = true;
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
        self.kept.values().any(|kept| !kept.in_round && !kept.askers.is_empty())
    }

    /// A round is over. True when its topic is gone.
    pub fn ended(&mut self, topic: Uuid, ended: Ended, now: Now) -> bool {
        self.rounds -= 1;
        let Some(kept) = self.kept.get_mut(&topic) else { return true };
        kept.in_round = false;
        let now_ms = now.mono_us / 1000;
        match ended {
            Ended::Written { manifest, upkeep_at, ends } => {
                kept.failures = 0;
                kept.retry_ms = 0;
                kept.written(manifest, &ends, now_ms);
                kept.upkeep_at = upkeep_at;
            }
            Ended::Outdated(manifest) => {
                kept.manifest = manifest;
                kept.retry_ms = now_ms + PAUSE_MS;
            }
            Ended::Failed(manifest) => {
                kept.manifest = manifest;
                kept.failures += 1;
                let wait_ms = RETRY_MIN_MS << (kept.failures - 1).min(16);
                kept.retry_ms = now_ms + wait_ms.min(RETRY_MAX_MS);
                for asker in kept.askers.drain(..) {
                    let _ = asker.reply.send(Err(GateError::NotWritten));
                }
                self.failures += 1;
            }
        }
        false
    }

    /// The tables kept here.
    pub fn counted(&self) -> impl Iterator<Item = Counted<'_>> {
        self.kept.values().map(|kept| Counted {
            topic: &kept.topic,
            version: &kept.version,
            waiting_bytes: kept.waiting.values().map(|waiting| waiting.bytes).sum(),
            oldest: kept.oldest().filter(|_| !kept.waiting.is_empty()),
            failures: kept.failures,
        })
    }
}

impl Kept {
    fn due(&self, settings: &TableSettings, now: Now) -> Option<Reason> {
        if self.in_round || now.mono_us / 1000 < self.retry_ms {
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

    /// Takes what a round has written, and answers those who have waited for no more than that.
    fn written(&mut self, manifest: Manifest, ends: &BTreeMap<i32, Offset>, now_ms: u64) {
        self.version = manifest.version().clone();
        self.manifest = Some(manifest);
        self.wants_room = false;
        let version = &self.version;
        let end = |partition: i32| version.table_end(partition).unwrap_or(Offset(0));
        // Owners tell what is left when they have the new version.
        self.waiting.retain(|partition, waiting| waiting.until > end(*partition));
        for waiting in self.waiting.values_mut() {
            waiting.from = waiting.from.max(end(waiting.partition));
        }
        for asker in self.askers.iter_mut().filter(|asker| asker.is_heard) {
            asker.target.get_or_insert_with(|| ends.clone());
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
