//! Connections that move between cores: how one leaves, who takes one that arrives.
//!
//! The cores carry them and know nothing of sockets: whoever serves connections on a core says how
//! they are taken, and until then, and once the core stops, they are refused and go back.

use super::ask::Ask;
use super::core::Core;
use super::front::{Later, Parcel, Touched};
use futures_channel::oneshot;
use std::cell::RefCell;

type Take = Box<dyn Fn(Parcel) -> Result<(), Parcel>>;

/// Who takes connections on a core.
#[derive(Default)]
pub struct Arrivals(RefCell<Option<Take>>);

impl Arrivals {
    pub fn open(&self, take: impl Fn(Parcel) -> Result<(), Parcel> + 'static) {
        *self.0.borrow_mut() = Some(Box::new(take));
    }

    pub fn close(&self) {
        *self.0.borrow_mut() = None;
    }

    pub(super) fn take(&self, parcel: Parcel) -> Result<(), Parcel> {
        match &*self.0.borrow() {
            Some(take) => take(parcel),
            None => Err(parcel),
        }
    }
}

impl Core {
    /// Sends a connection to another core. It comes back if it is not taken there.
    pub fn hand_over(&self, core: usize, parcel: Parcel) -> Later<Result<(), Parcel>> {
        if core == self.id() || core >= self.cores() {
            return Box::pin(std::future::ready(Err(parcel)));
        }
        let (reply, taken) = oneshot::channel();
        self.send(core, Ask::Connection { parcel, reply });
        // A core that is gone has closed what was sent to it.
        Box::pin(async move { taken.await.unwrap_or(Ok(())) })
    }

    /// Notes whose partitions a request of this core is about.
    pub(super) fn note_touched(&self, owners: impl Iterator<Item = usize>) {
        let mut touched = self.touched.get();
        for owner in owners {
            let one = if owner == self.id() { Touched::Here } else { Touched::Other(owner) };
            touched = match touched {
                Touched::Nothing => one,
                before if before == one => before,
                _ => Touched::Several,
            };
        }
        self.touched.set(touched);
    }
}
