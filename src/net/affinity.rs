//! Where the data of a connection's requests lie, and when the connection should go there.
//!
//! Every request for another core's partitions costs a message there and one back. A connection
//! whose data requests all go to one other core moves to it; one whose requests are mixed stays.
//! Each move makes the next one harder, so that clients which change their mind do not travel.

use crate::cores::front::Touched;

/// Requests to one other core before the first move; twice as many before each further one.
const STREAK_MIN: u32 = 16;
/// So often the streak doubles.
const DOUBLINGS_MAX: u32 = 10;
/// How much longer than the streak a connection waits for a moment without requests in flight,
/// before it makes one by taking none.
const PATIENCE: u32 = 2;

/// What a connection's requests were about lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    core: usize,
    streak: u32,
    /// Moves so far, and attempts.
    moves: u32,
}

impl Affinity {
    /// Of a connection that has moved this often.
    pub fn after(moves: u32) -> Affinity {
        Affinity { moves, ..Affinity::default() }
    }

    pub fn moves(&self) -> u32 {
        self.moves
    }

    pub fn note(&mut self, touched: Touched) {
        match touched {
            Touched::Nothing => {}
            Touched::Here | Touched::Several => self.streak = 0,
            Touched::Other(core) if core == self.core => {
                self.streak = self.streak.saturating_add(1)
            }
            Touched::Other(core) => (self.core, self.streak) = (core, 1),
        }
    }

    fn needed(&self) -> u32 {
        STREAK_MIN << self.moves.min(DOUBLINGS_MAX)
    }

    /// The core the connection should be on, when that is another.
    pub fn elsewhere(&self) -> Option<usize> {
        (self.streak >= self.needed()).then_some(self.core)
    }

    /// Whether it has waited long enough for a moment without requests in flight.
    pub fn presses(&self) -> bool {
        self.streak >= self.needed() * PATIENCE
    }

    /// It has moved, or has tried to.
    pub fn moved(&mut self) {
        self.streak = 0;
        self.moves = self.moves.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Touched::{Here, Nothing, Other, Several};

    fn after(requests: &[(Touched, u32)]) -> Affinity {
        let mut affinity = Affinity::default();
        for (touched, times) in requests {
            (0..*times).for_each(|_| affinity.note(*touched));
        }
        affinity
    }

    #[test]
    fn only_a_long_row_of_requests_for_one_other_core_moves_a_connection() {
        for (requests, expect) in [
            (&[(Other(3), STREAK_MIN)][..], Some(3)),
            (&[(Other(3), STREAK_MIN - 1)], None),
            (&[(Other(3), 9), (Nothing, 9), (Other(3), 7)], Some(3)),
            (&[(Other(3), 15), (Here, 1), (Other(3), 15)], None),
            (&[(Other(3), 15), (Several, 1), (Other(3), 15)], None),
            (&[(Other(3), 15), (Other(2), 15)], None),
            (&[(Other(3), 15), (Other(2), 16)], Some(2)),
        ] {
            let affinity = after(requests);
            assert_eq!(affinity.elsewhere(), expect, "{requests:?}");
            assert!(!affinity.presses());
        }
        assert!(after(&[(Other(0), STREAK_MIN * PATIENCE)]).presses());
    }

    #[test]
    fn a_client_that_goes_back_and_forth_moves_ever_less() {
        let mut affinity = Affinity::default();
        let mut moves = 0;
        // 10,000 requests that change their core every 40.
        for request in 0..10_000 {
            let wanted = request / 40 % 2;
            let here = moves % 2;
            affinity.note(if wanted == here { Here } else { Other(wanted) });
            if affinity.elsewhere().is_some() {
                affinity.moved();
                moves += 1;
            }
        }
        assert_eq!(moves, 2);
        let mut far = Affinity { moves: u32::MAX, ..Affinity::default() };
        (0..STREAK_MIN << DOUBLINGS_MAX).for_each(|_| far.note(Other(1)));
        assert_eq!(far.elsewhere(), Some(1));
    }
}
