//! A connection's way out: answers take their place, and leave in the order of their requests.
//!
//! Called by the connection's loop with what the service says of a request; keeps the account of
//! what is held for it until the kernel has the last byte. Never reads from the socket.

use super::{Connection, End};
use crate::net::{CoreFuture, Finish, Outcome, Pending, Service};
use crate::protocol::reply::Reply;
use std::io;
use std::task::{Context, Poll};

/// An answer in its place, and the bytes of the request it stands for.
pub(super) struct Slot {
    state: SlotState,
    request_bytes: usize,
}

pub(super) enum SlotState {
    Ready(Reply),
    Nothing,
    Later(CoreFuture<Finish>),
    Close,
}

impl<S: Service> Connection<S> {
    /// Gives what became of a request its place.
    pub(super) fn settle(&mut self, outcome: Outcome, request_bytes: usize, cx: &mut Context) {
        let state = match outcome {
            Outcome::Pending(Pending::Nothing) => return,
            Outcome::Pending(Pending::Ready(reply)) => {
                self.net.hold(&self.control, |held| held.reply_bytes += reply.bytes);
                if self.slots.is_empty() {
                    return self.put_out(reply);
                }
                SlotState::Ready(reply)
            }
            Outcome::Pending(Pending::Later(mut future)) => match future.as_mut().poll(cx) {
                Poll::Ready(finish) => self.finished_with(finish),
                Poll::Pending => SlotState::Later(future),
            },
            Outcome::Close => {
                self.reading_over = true;
                SlotState::Close
            }
            Outcome::Blocked(future) => {
                self.net.hold(&self.control, |held| held.request_bytes += request_bytes);
                self.blocked = Some((future, request_bytes));
                return;
            }
        };
        self.net.hold(&self.control, |held| {
            held.pending += 1;
            held.request_bytes += request_bytes;
        });
        self.slots.push_back(Slot { state, request_bytes });
    }

    fn finished_with(&self, finish: Finish) -> SlotState {
        match finish {
            Finish::Reply(reply) => {
                self.net.hold(&self.control, |held| held.reply_bytes += reply.bytes);
                SlotState::Ready(reply)
            }
            Finish::Nothing => SlotState::Nothing,
            Finish::Close => SlotState::Close,
        }
    }

    fn put_out(&mut self, reply: Reply) {
        reply.pieces.into_iter().for_each(|piece| self.output.push(piece));
    }

    /// Moves answers into the output as far as their order allows.
    pub(super) fn poll_answers(&mut self, cx: &mut Context) -> bool {
        let mut progress = false;
        while self.output.bytes() < self.net.limits.held_bytes_max {
            let Some(slot) = self.slots.front_mut() else { break };
            if let SlotState::Later(future) = &mut slot.state {
                let Poll::Ready(finish) = future.as_mut().poll(cx) else { break };
                let state = self.finished_with(finish);
                if let Some(slot) = self.slots.front_mut() {
                    slot.state = state;
                }
            }
            let Some(slot) = self.slots.pop_front() else { break };
            progress = true;
            self.net.hold(&self.control, |held| {
                held.pending -= 1;
                held.request_bytes -= slot.request_bytes;
            });
            match slot.state {
                SlotState::Ready(reply) => self.put_out(reply),
                SlotState::Nothing | SlotState::Later(_) => {}
                SlotState::Close => self.stop(),
            }
        }
        progress
    }

    /// Nothing more is answered; what is on its way out still leaves.
    fn stop(&mut self) {
        self.reading_over = true;
        self.blocked = None;
        self.slots.clear();
        let (all, out) = (self.control.held.get(), self.output.bytes());
        self.net.hold(&self.control, |held| {
            held.pending -= all.pending;
            held.request_bytes -= all.request_bytes;
            held.reply_bytes -= all.reply_bytes - out;
        });
    }

    pub(super) fn poll_output(&mut self, cx: &mut Context) -> Result<bool, End> {
        let before = self.output.bytes();
        while !self.output.is_empty() {
            match self.output.send(self.socket) {
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(End::Failed(error)),
            }
            match self.output.poll_send(&mut self.stream, cx) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => break,
            };
        }
        let sent = before - self.output.bytes();
        if sent > 0 {
            self.net.hold(&self.control, |held| held.reply_bytes -= sent);
            self.net.count(|counters| counters.bytes_out += sent as u64);
            self.net.is_active(&self.control);
            self.control.taking.moved(sent);
        }
        Ok(sent > 0)
    }
}
