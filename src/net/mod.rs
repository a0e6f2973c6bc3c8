//! Connections: bytes in, frames to a service, replies out in the order of their requests.
//!
//! `listener` accepts, `connection` drives one connection as a single task, `live` is the list of
//! them, `frame` cuts what arrives, `socket` makes the system calls. This layer knows nothing of the
//! Kafka protocol but the length in front of each frame: what a frame means is the business of the
//! [`Service`].

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

use crate::protocol::reply::Reply;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// A future of one core. It is dropped unfinished when its connection closes, so work that must
/// come to an end belongs into a task of its own.
pub type CoreFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Answers the frames of all connections of a core.
pub trait Service: 'static {
    /// Takes a request. It has its effect now, in the order of the calls; the answer may come
    /// later.
    fn call(&self, frame: Bytes, conn: &Rc<ConnInfo>) -> Outcome;

    /// The connection is gone; called once for each.
    fn closed(&self, _conn: &ConnInfo) {}
}

/// What became of a request.
pub enum Outcome {
    Pending(Pending),
    /// It could not have its effect yet. No further request of the connection is taken until the
    /// future has resolved to what became of this one.
    Blocked(CoreFuture<Outcome>),
    /// Nothing more is to be read; the connection closes after the answers to earlier requests.
    Close,
}

/// The place of an answer in the order of a connection's answers.
pub enum Pending {
    Ready(Reply),
    /// Polled once when made, and from then on when all earlier answers have left.
    Later(CoreFuture<Finish>),
    /// The request has no answer.
    Nothing,
}

/// How a request ends that was not answered at once.
pub enum Finish {
    Reply(Reply),
    Nothing,
    Close,
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Outcome {
        Outcome::Pending(Pending::Ready(reply))
    }
}
