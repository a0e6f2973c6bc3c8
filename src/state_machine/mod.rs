//! State machines and the one shell that drives them: catalogue and coordinators alike.
//!
//! `contract` is what a machine is, `shell` drives it on its core, `timers` are its timers as data,
//! `pairs` its records as batches of the log. What a machine decides is its own business.

mod contract;
mod pairs;
mod shell;
#[cfg(test)]
mod tests;
mod timers;

pub use contract::{Cause, Durable, IfRefused, Machine, Moment, Pair, ReplyTo, Step};
pub use pairs::{batch_of, read_batches, Unreadable};
pub use shell::{Chunk, Fate, Handed, Host, Later, Shell, Submitted, Unavailable, Unloaded};
