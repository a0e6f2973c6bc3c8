//! State machines and the one shell that drives them: catalogue and coordinators alike.

mod contract;

pub use contract::{Cause, Durable, IfRefused, Machine, Moment, Pair, ReplyTo, Step};
