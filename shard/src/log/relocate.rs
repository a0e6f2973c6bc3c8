//! Which segment is worth emptying. Pure: weights in, a number out.
//!
//! A segment goes when nothing in it is alive. One of which little is alive is emptied by carrying
//! that to the log's tail: to copy a quarter frees three quarters. So a trickle topic, one that is
//! kept for ever, an internal one or one with an open transaction holds no old segment back, and a
//! segment that is mostly alive is never copied at all. Because segments between others
//! can go, none of them has to be moved only to free what lies behind it.
//!
//! Beyond a quarter and up to a half, segments are emptied while the log as a whole is more than
//! twice what is alive in it and one segment. A segment counts as at least the least size, so that
//! those of many short runs of the broker come together.

use crate::ids::SegmentNumber;

/// What is known of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    pub number: SegmentNumber,
    pub bytes: u64,
    pub live_bytes: u64,
    /// Nothing is in the way of emptying it.
    pub ready: bool,
}

/// When emptying a segment pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The share of a segment that may be alive, in percent; 0 empties none.
    pub live_percent_max: u64,
    pub segment_bytes_min: u64,
    pub segment_bytes_max: u64,
}

/// The share up to which segments are emptied while the log is too large. Percent.
const LIVE_PERCENT_LARGE: u64 = 50;

/// The segment to empty next: the one of which least is alive.
pub fn choose(weights: &[Weight], policy: &Policy) -> Option<SegmentNumber> {
    let size = |weight: &Weight| weight.bytes.max(policy.segment_bytes_min).max(1);
    let total: u64 = weights.iter().map(|weight| weight.bytes).sum();
    let live: u64 = weights.iter().map(|weight| weight.live_bytes).sum();
    let is_large = total > live.saturating_mul(2).saturating_add(policy.segment_bytes_max);
    let percent_max = match is_large {
        true => policy.live_percent_max.max(LIVE_PERCENT_LARGE),
        false => policy.live_percent_max,
    };
    let share = |weight: &Weight| weight.live_bytes.saturating_mul(100) / size(weight);
    let ready = weights.iter().filter(|weight| weight.ready && weight.live_bytes > 0);
    if policy.live_percent_max == 0 {
        return None;
    }
    let best = ready.min_by_key(|weight| (share(weight), weight.number))?;
    (share(best) <= percent_max).then_some(best.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_alive_goes_first_and_what_is_mostly_alive_stays() {
        let policy =
            Policy { live_percent_max: 25, segment_bytes_min: 100, segment_bytes_max: 1000 };
        let check = |weights: &[(u64, u64, bool)], expect: Option<u64>| {
            let weights = weights.iter().enumerate().map(|(at, &(bytes, live_bytes, ready))| {
                Weight { number: SegmentNumber(at as u64), bytes, live_bytes, ready }
            });
            let weights: Vec<Weight> = weights.collect();
            let chosen = choose(&weights, &policy).map(|number| number.0);
            assert_eq!(chosen, expect, "{weights:?}");
        };
        check(&[], None);
        check(&[(1000, 900, true), (1000, 250, true), (1000, 249, true)], Some(2));
        check(&[(1000, 900, true), (1000, 0, true)], None);
        check(&[(1000, 900, true), (1000, 100, false), (1000, 200, true)], Some(2));
        check(&[(1000, 300, true), (1000, 300, true)], None);
        // Four segments a third alive: more than twice what is alive and one segment.
        check(&[(1000, 333, true); 4], Some(0));
        check(&[(1000, 510, true), (1000, 0, true), (1000, 0, true), (1000, 0, true)], None);
        // A short one that is all alive joins the others.
        check(&[(20, 20, true), (1000, 900, true)], Some(0));
    }
}
