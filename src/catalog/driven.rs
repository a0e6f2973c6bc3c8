//! The catalogue's machine as the shell of `state_machine` drives it.
//!
//! It has no soft state and no timers. What it means outside is the next picture of the topics,
//! taken when the records were replayed and published when they have committed.

use super::image::ImageChange;
use super::machine::{Answer, Command, Decision, Machine};
use super::record::{Record, RecordError};
use crate::state_machine::{self, Cause, Durable, IfRefused, Moment, Pair, Step};
use std::convert::Infallible;

impl state_machine::Machine for Machine {
    type Input = Command;
    type Output = Answer;
    type Record = Record;
    type Timer = Infallible;
    type Effect = ImageChange;

    fn fresh_ids(input: &Command) -> usize {
        input.fresh_ids()
    }

    fn step(&mut self, cause: Cause<Self>, at: Moment<'_>) -> Step<Self> {
        match cause {
            Cause::Request { input, reply_to } => {
                let Decision { records, answer } = self.decide(&input, at.wall, at.ids);
                let replies = vec![(reply_to, answer)];
                Step { records, replies, if_refused: IfRefused::Stay, ..Step::default() }
            }
            Cause::Timer(never) => match never {},
        }
    }

    fn replay(&mut self, record: Record) {
        Machine::replay(self, &record);
    }

    fn loaded(&mut self, _: Moment<'_>) -> Step<Self> {
        Step::default()
    }

    fn take_effect(&mut self) -> Option<ImageChange> {
        let unpublished = std::mem::take(&mut self.unpublished);
        let removed = unpublished.removed;
        unpublished.topics.then(|| ImageChange { image: self.image(), removed })
    }
}

impl Durable for Record {
    type Error = RecordError;

    fn to_pair(&self) -> Pair {
        Pair { key: None, value: Some(self.to_bytes().into()) }
    }

    fn from_pair(_: Option<&[u8]>, value: Option<&[u8]>) -> Result<Option<Record>, RecordError> {
        Record::from_bytes(value.unwrap_or_default()).map(Some)
    }
}
