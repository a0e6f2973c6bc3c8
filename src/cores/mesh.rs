//! The channels between cores: one in each direction between any two.
//!
//! Sending never waits: what a full channel does not take is kept here, in order, and follows as
//! soon as there is room. That is bounded by the requests cores may have in flight. Asks to a core
//! that is gone are dropped, which their askers notice by the answer that never comes.

use super::ask::Ask;
use glommio::channels::shared_channel::{
    new_bounded, ConnectedReceiver, ConnectedSender, SharedReceiver, SharedSender,
};
use glommio::GlommioError;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Messages a channel holds.
const CHANNEL_ASKS: usize = 1024;

/// One core's ends of all channels, on their way to its thread.
pub struct Ends {
    to: Vec<Option<SharedSender<Ask>>>,
    from: Vec<SharedReceiver<Ask>>,
}

/// The ends for each of `cores` cores.
pub fn mesh(cores: usize) -> Vec<Ends> {
    let mut all: Vec<Ends> =
        (0..cores).map(|_| Ends { to: Vec::new(), from: Vec::new() }).collect();
    for from in 0..cores {
        for to in 0..cores {
            if from == to {
                all[from].to.push(None);
                continue;
            }
            let (sender, receiver) = new_bounded(CHANNEL_ASKS);
            all[from].to.push(Some(sender));
            all[to].from.push(receiver);
        }
    }
    all
}

impl Ends {
    /// Connects to all other cores; to be run by all at the same time.
    pub async fn connect(self) -> (Links, Vec<ConnectedReceiver<Ask>>) {
        // Each waits for its other end, so all have to be under way before one is awaited.
        let senders: Vec<_> = self
            .to
            .into_iter()
            .map(|end| end.map(|sender| glommio::spawn_local(sender.connect())))
            .collect();
        let receivers: Vec<_> =
            self.from.into_iter().map(|end| glommio::spawn_local(end.connect())).collect();
        let mut to = Vec::new();
        for sender in senders {
            to.push(match sender {
                Some(sender) => Some(Link::new(sender.await)),
                None => None,
            });
        }
        let mut from = Vec::new();
        for receiver in receivers {
            from.push(receiver.await);
        }
        (Links { to }, from)
    }
}

/// The ways from this core to the others.
#[derive(Debug)]
pub struct Links {
    to: Vec<Option<Rc<Link>>>,
}

impl Links {
    /// Sends `ask` to another core.
    ///
    /// # Panics
    /// When `core` is this core or none.
    pub fn send(&self, core: usize, ask: Ask) {
        let link = self.to.get(core).and_then(Option::as_ref);
        link.expect("another core").send(ask);
    }

    /// Tells the other cores that nothing more will come.
    pub fn close(&self) {
        self.to.iter().flatten().for_each(|link| link.sender.close());
    }
}

#[derive(Debug)]
struct Link {
    sender: ConnectedSender<Ask>,
    outbox: RefCell<VecDeque<Ask>>,
    flushing: Cell<bool>,
}

impl Link {
    fn new(sender: ConnectedSender<Ask>) -> Rc<Link> {
        Rc::new(Link { sender, outbox: RefCell::default(), flushing: Cell::new(false) })
    }

    fn send(self: &Rc<Self>, ask: Ask) {
        if self.flushing.get() {
            self.outbox.borrow_mut().push_back(ask);
            return;
        }
        match self.sender.try_send(ask) {
            Ok(()) => {}
            Err(GlommioError::WouldBlock(glommio::ResourceType::Channel(ask))) => {
                self.outbox.borrow_mut().push_back(ask);
                self.flushing.set(true);
                glommio::spawn_local(flush(self.clone())).detach();
            }
            Err(_) => tracing::debug!("an ask to a core that is gone"),
        }
    }
}

async fn flush(link: Rc<Link>) {
    loop {
        let next = link.outbox.borrow_mut().pop_front();
        let Some(ask) = next else { break };
        // The only sender while `flushing` is set: the room it waits for cannot be taken away.
        if link.sender.send(ask).await.is_err() {
            link.outbox.borrow_mut().clear();
        }
    }
    link.flushing.set(false);
}
