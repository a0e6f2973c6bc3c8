//! Connections: bytes in, frames to a service, replies out in the order of their requests.
//!
//! `listener` accepts, `connection` drives one connection as a single task, `live` is the list of
//! them, `frame` cuts what arrives, `socket` makes the system calls. What connections may claim:
//! `admission` counts them, `budget` bounds what they hold, `progress` what they may dawdle;
//! `affinity` sends them to the core of their data. This layer knows nothing of the Kafka protocol
//! but the length in front of each frame: what a frame means is the business of the [`Service`].

mod admission;
mod affinity;
mod budget;
mod connection;
mod frame;
mod listener;
mod live;
mod progress;
mod socket;
#[cfg(test)]
mod tests;

pub use admission::Admission;
pub use budget::Held;
pub use frame::FrameError;
pub use listener::{bind, serve, BindError};
pub use live::{ConnInfo, CoreNet, Counters, Limits};

use crate::cores::front::{Parcel, Place, Touched};
use crate::protocol::outcome::{CoreFuture, Finish, Outcome, Pending};
use bytes::Bytes;
use std::rc::Rc;

/// Answers the frames of all connections of a core.
pub trait Service: 'static {
    /// Takes a request. It has its effect now, in the order of the calls; the answer may come
    /// later.
    fn call(&self, frame: Bytes, conn: &Rc<ConnInfo>) -> Outcome;

    /// The cores whose data the latest call, its future's first poll included, was about.
    fn touched(&self) -> Touched {
        Touched::Nothing
    }

    /// Hands a connection to another core. It comes back if it is not taken there.
    fn hand_over(&self, _core: usize, parcel: Parcel) -> CoreFuture<Result<(), Parcel>> {
        Box::pin(std::future::ready(Err(parcel)))
    }

    /// The connection is gone; called once for each.
    fn closed(&self, _conn: &ConnInfo) {}
}

/// Goes on with a connection of another core; gives it back if this one takes no more.
pub fn adopt<S: Service>(parcel: Parcel, service: &Rc<S>, net: &Rc<CoreNet>) -> Result<(), Parcel> {
    connection::adopt(parcel, service.clone(), net.clone())
}
