//! A small random number generator, so that a seed gives the same run on every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, end)`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            // Biased by less than end / 2^64.
            _ => self.number() % end,
        }
    }

    /// A number in `[first, last]`.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True once in `times` on average; never when `times` is 0.
    pub fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// A generator of its own, so that what it is used for does not disturb this one's sequence.
    pub fn split(&mut self) -> Rng {
        Rng(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut rng = Rng::new(0);
        // The published first outputs of SplitMix64 for seed 0.
        assert_eq!(rng.number(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.number(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn ranges_are_kept_and_reached() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[rng.between(2, 5) as usize - 2] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(rng.below(0), 0);
        assert!(!rng.one_in(0) && rng.one_in(1));
    }
}
