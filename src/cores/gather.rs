//! Splits a request's items by owner and puts the answers back into their order.

use super::ask::{Lost, Placed};
use super::Core;
use futures_channel::oneshot;
use shard::ids::LogId;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Items of one owner and where they stood in the request.
#[derive(Debug)]
pub(super) struct Share<I> {
    pub core: usize,
    pub items: Vec<I>,
    pub places: Vec<usize>,
}

/// The shares of a request, at most one for each owner. One owner is the common case.
pub(super) fn split<I: Placed>(items: Vec<I>, owner: impl Fn(LogId) -> usize) -> Vec<Share<I>> {
    let Some(first) = items.first() else { return Vec::new() };
    let core = owner(first.place().log);
    if items.iter().all(|item| owner(item.place().log) == core) {
        let places = (0..items.len()).collect();
        return vec![Share { core, items, places }];
    }
    let mut shares: Vec<Share<I>> = Vec::new();
    for (place, item) in items.into_iter().enumerate() {
        let core = owner(item.place().log);
        let share = match shares.iter_mut().find(|share| share.core == core) {
            Some(share) => share,
            None => {
                shares.push(Share { core, items: Vec::new(), places: Vec::new() });
                shares.last_mut().expect("just pushed")
            }
        };
        share.items.push(item);
        share.places.push(place);
    }
    shares
}

/// Answers on their way from other cores, and those that are there. Resolves to all of them in the
/// order of the items.
#[derive(Debug)]
pub struct Gather<A> {
    answers: Vec<Option<A>>,
    remote: Vec<(oneshot::Receiver<Vec<A>>, Vec<usize>)>,
}

impl<A: Lost> Gather<A> {
    pub(super) fn new(count: usize) -> Gather<A> {
        Gather { answers: std::iter::repeat_with(|| None).take(count).collect(), remote: vec![] }
    }

    pub(super) fn fill(&mut self, places: &[usize], answers: Vec<A>) {
        for (place, answer) in places.iter().zip(answers) {
            if let Some(slot) = self.answers.get_mut(*place) {
                *slot = Some(answer);
            }
        }
    }

    pub(super) fn expect(&mut self, answers: oneshot::Receiver<Vec<A>>, places: Vec<usize>) {
        self.remote.push((answers, places));
    }

    /// Whether other cores are still to answer.
    pub fn is_local(&self) -> bool {
        self.remote.is_empty()
    }

    pub(super) fn poll_remote(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = Vec::new();
        for (mut receiver, places) in std::mem::take(&mut self.remote) {
            match Pin::new(&mut receiver).poll(cx) {
                Poll::Pending => waiting.push((receiver, places)),
                Poll::Ready(Ok(answers)) => self.fill(&places, answers),
                // The owner is gone; its answers stay empty.
                Poll::Ready(Err(oneshot::Canceled)) => {}
            }
        }
        self.remote = waiting;
        if self.remote.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    pub(super) fn take(&mut self) -> Vec<A> {
        let answers = std::mem::take(&mut self.answers);
        answers.into_iter().map(|answer| answer.unwrap_or_else(A::lost)).collect()
    }
}

impl<A: Lost + Unpin> Future for Gather<A> {
    type Output = Vec<A>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<A>> {
        std::task::ready!(self.poll_remote(cx));
        Poll::Ready(self.take())
    }
}

impl Core {
    /// Lets each owner answer its items: this core at once, others when they get to it.
    pub(super) fn gather<I: Placed, A: Lost>(
        &self,
        items: Vec<I>,
        serve: impl Fn(&Core, Vec<I>) -> Vec<A>,
        ask: impl Fn(Vec<I>, oneshot::Sender<Vec<A>>) -> super::Ask,
    ) -> Gather<A> {
        let mut gather = Gather::new(items.len());
        for share in split(items, |log| self.owner(log)) {
            if share.core == self.id() {
                gather.fill(&share.places, serve(self, share.items));
            } else {
                let (reply, answers) = oneshot::channel();
                self.send(share.core, ask(share.items, reply));
                gather.expect(answers, share.places);
            }
        }
        gather
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::{AppendRefusal, Place};
    use futures_lite::future::block_on;
    use shard::ids::PartitionKey;

    fn place(log: u32) -> Place {
        let key = PartitionKey { view: 0, topic: uuid::Uuid::nil(), partition: log as i32 };
        Place { key, log: LogId(log) }
    }

    #[test]
    fn items_go_to_their_owners_and_answers_come_back_in_order() {
        let items: Vec<Place> = [3, 0, 2, 1, 5].into_iter().map(place).collect();
        let shares = split(items, |log| log.0 as usize % 2);
        let split: Vec<_> = shares.iter().map(|s| (s.core, s.places.clone())).collect();
        assert_eq!(split, [(1, vec![0, 3, 4]), (0, vec![1, 2])]);

        let mut gather: Gather<Result<u32, AppendRefusal>> = Gather::new(5);
        gather.fill(&[1, 2], vec![Ok(0), Ok(2)]);
        let (reply, answers) = oneshot::channel();
        gather.expect(answers, vec![0, 3, 4]);
        reply.send(vec![Ok(3), Ok(1), Ok(5)]).expect("awaited");
        assert_eq!(block_on(gather), [Ok(3), Ok(0), Ok(2), Ok(1), Ok(5)]);
    }

    #[test]
    fn an_owner_that_is_gone_is_an_answer() {
        let mut gather: Gather<Result<u32, AppendRefusal>> = Gather::new(2);
        gather.fill(&[1], vec![Ok(7)]);
        let (reply, answers) = oneshot::channel();
        gather.expect(answers, vec![0]);
        drop(reply);
        assert_eq!(block_on(gather), [Err(AppendRefusal::Lost), Ok(7)]);
    }
}
