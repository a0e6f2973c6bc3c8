//! Connections: bytes in, frames to a service, replies out in the order of their requests.
//!
//! `listener` accepts, `connection` drives one connection as a single task, `live` is the list of
//! them, `frame` cuts what arrives, `socket` makes the system calls. This layer knows nothing of
//! the Kafka protocol but the length in front of each frame: what a frame means is the business of
//! the [`Service`].

mod connection;
mod frame;
mod listener;
mod live;
mod socket;
#[cfg(test)]
mod tests;

pub use frame::FrameError;
pub use listener::{bind, serve, BindError};
pub use live::{ConnInfo, CoreNet, Counters, Held, Limits};

use crate::protocol::outcome::{CoreFuture, Finish, Outcome, Pending};
use bytes::Bytes;
use std::rc::Rc;

/// Answers the frames of all connections of a core.
pub trait Service: 'static {
    /// Takes a request. It has its effect now, in the order of the calls; the answer may come
    /// later.
    fn call(&self, frame: Bytes, conn: &Rc<ConnInfo>) -> Outcome;

    /// The connection is gone; called once for each.
    fn closed(&self, _conn: &ConnInfo) {}
}
