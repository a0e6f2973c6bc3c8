//! What becomes of a request, in the words handlers and connections share.
//!
//! Requests of a connection take their effect in the order they came and are answered in that
//! order; the answers may be ready in another.

use super::reply::Reply;
use std::future::Future;
use std::pin::Pin;

/// A future of one core. It is dropped unfinished when its connection closes, so work that must
/// come to an end belongs into a task of its own.
pub type CoreFuture<T> = Pin<Box<dyn Future<Output = T>>>;

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
