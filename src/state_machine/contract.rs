//! What a state machine is to the shell that drives it.
//!
//! `step` decides on an input and says what to append and whom to answer; `replay` alone changes
//! durable state, live at the append and again when the partition is loaded. Soft state (who waits
//! for a rebalance, when a session ends) may change in `step` and is gone with the process. Time
//! and fresh ids come in, records, replies and timers go out: a machine does no I/O, reads no clock
//! and draws no random number.
//!
//! ```text
//! input, moment -> step -> records -> append -> replay -> effect   (one call, nothing between)
//!                       -> replies -> sent when all that was appended so far has committed
//!                       -> timers  -> come back as an input
//! ```

use bytes::Bytes;
use shard::ids::Timestamp;
use uuid::Uuid;

/// A pure state machine over the records of one partition.
pub trait Machine: Sized + 'static {
    type Input;
    type Output: 'static;
    type Record: Durable;
    /// Which timer: setting it again moves it.
    type Timer: Clone + Ord;
    /// What has to happen outside, after the commit and before the replies.
    type Effect: 'static;

    /// How many ids nobody has used `step` needs for this input.
    fn fresh_ids(input: &Self::Input) -> usize;

    /// Decides. May change soft state, never durable state.
    fn step(&mut self, cause: Cause<Self>, at: Moment<'_>) -> Step<Self>;

    /// Applies a record. Applying a record again that was applied before changes nothing, if all
    /// that came behind it is applied again too.
    fn replay(&mut self, record: Self::Record);

    /// Called once, when everything durable has been replayed: sets the timers of what was found.
    fn loaded(&mut self, at: Moment<'_>) -> Step<Self>;

    /// What the records replayed since the last call mean for the world outside. Called after each
    /// step's records were replayed; what it returns is done once they have committed.
    fn take_effect(&mut self) -> Option<Self::Effect> {
        None
    }
}

/// A record as it lies in the partition.
pub trait Durable: Sized {
    /// Why bytes are not a record.
    type Error: std::error::Error + 'static;

    fn to_pair(&self) -> Pair;

    /// `None` for a record of a kind this version does not know and may pass over.
    fn from_pair(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Option<Self>, Self::Error>;
}

/// Key and value of a record. A value of `None` deletes the key in a compacted partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
}

/// Whom to answer. Given by the shell, kept by a machine that answers later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo(pub u64);

/// Why a machine is stepped.
#[derive(Debug)]
pub enum Cause<M: Machine> {
    Request { input: M::Input, reply_to: ReplyTo },
    Timer(M::Timer),
}

/// The time and the ids of one step.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The wall clock, for what is written into records and compared with it.
    pub wall: Timestamp,
    /// A clock that never jumps, in milliseconds: timers are set on it.
    pub mono_ms: u64,
    pub ids: &'a [Uuid],
}

/// A decision.
#[derive(Debug)]
pub struct Step<M: Machine> {
    pub records: Vec<M::Record>,
    pub replies: Vec<(ReplyTo, M::Output)>,
    /// When each timer fires on the clock that never jumps; `None` ends it.
    pub timers: Vec<(M::Timer, Option<u64>)>,
    pub if_refused: IfRefused,
}

/// What becomes of the machine when the records of a step cannot be appended. Those who were to be
/// answered hear that it failed, in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfRefused {
    /// Its soft state took the records for granted: it is loaded anew.
    #[default]
    Reload,
    /// It is as if the step had not been. Its timers count all the same: a timer that fired is
    /// gone and is set again by the step it caused.
    Stay,
}

impl<M: Machine> Default for Step<M> {
    fn default() -> Self {
        Step {
            records: Vec::new(),
            replies: Vec::new(),
            timers: Vec::new(),
            if_refused: IfRefused::default(),
        }
    }
}
