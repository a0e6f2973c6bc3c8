//! Splits a request's items by owner and puts the answers back into their order.

use super::ask::Lost;
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

/// The shares of a request, at most one for each owner, in the order of their first items.
pub(super) fn split<I>(
    items: Vec<I>,
    log: impl Fn(&I) -> LogId,
    owner: impl Fn(LogId) -> usize,
) -> Vec<Share<I>> {
    let Some(first) = items.first() else { return Vec::new() };
    let core = owner(log(first));
    if items.iter().all(|item| owner(log(item)) == core) {
        let places = (0..items.len()).collect();
        return vec![Share { core, items, places }];
    }
    let mut shares: Vec<Share<I>> = Vec::new();
    for (place, item) in items.into_iter().enumerate() {
        let core = owner(log(&item));
        let at = shares.iter().position(|share| share.core == core).unwrap_or_else(|| {
            shares.push(Share { core, items: Vec::new(), places: Vec::new() });
            shares.len() - 1
        });
        shares[at].items.push(item);
        shares[at].places.push(place);
    }
    shares
}

/// Answers on their way from other cores, and those that are there. Resolves to all of them in the
/// order of the items.
#[derive(Debug)]
pub(super) struct Gather<A> {
    answers: Vec<Option<A>>,
    remote: Vec<(oneshot::Receiver<Vec<A>>, Vec<usize>)>,
}

impl<A: Lost> Gather<A> {
    pub fn new(count: usize) -> Gather<A> {
        Gather { answers: std::iter::repeat_with(|| None).take(count).collect(), remote: vec![] }
    }

    pub fn fill(&mut self, places: &[usize], answers: Vec<A>) {
        for (place, answer) in places.iter().zip(answers) {
            self.answers[*place] = Some(answer);
        }
    }

    pub fn expect(&mut self, answers: oneshot::Receiver<Vec<A>>, places: Vec<usize>) {
        self.remote.push((answers, places));
    }

    /// Takes what other cores have answered; ready when all have.
    pub fn poll_remote(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

    pub fn take(&mut self) -> Vec<A> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::front::AppendRefusal;
    use futures_lite::future::block_on;

    #[test]
    fn items_go_to_their_owners() {
        let check = |logs: &[u32], expect: &[(usize, Vec<usize>)]| {
            let shares = split(logs.to_vec(), |log| LogId(*log), |log| log.0 as usize % 2);
            let split: Vec<_> = shares.into_iter().map(|s| (s.core, s.places)).collect();
            assert_eq!(split, expect);
        };
        check(&[], &[]);
        check(&[3, 5], &[(1, vec![0, 1])]);
        check(&[3, 0, 2, 1, 5], &[(1, vec![0, 3, 4]), (0, vec![1, 2])]);
    }

    #[test]
    fn answers_come_in_order_and_an_owner_that_is_gone_is_one() {
        let mut gather: Gather<Result<u32, AppendRefusal>> = Gather::new(5);
        gather.fill(&[1, 2], vec![Ok(0), Ok(2)]);
        let (reply, answers) = oneshot::channel();
        gather.expect(answers, vec![0, 3]);
        reply.send(vec![Ok(3), Ok(1)]).expect("awaited");
        let (reply, answers) = oneshot::channel();
        gather.expect(answers, vec![4]);
        drop(reply);
        let lost = Err(AppendRefusal::LogFailed);
        assert_eq!(block_on(gather), [Ok(3), Ok(0), Ok(2), Ok(1), lost]);
    }
}
