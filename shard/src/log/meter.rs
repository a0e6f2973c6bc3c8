//! What relocation and compaction may store: a share of what is appended, or a floor.
//!
//! Pure. Within each second the greater of the two counts, not their sum, so that over any length
//! of time the share is kept while the log is busy, and an idle log still gets on. What is not
//! spent is saved up, to a bound.

/// What may be saved up for later. Bytes.
const SAVED_BYTES_MAX: u64 = 4 << 20;
const WINDOW_US: u64 = 1_000_000;

#[derive(Debug)]
pub struct Meter {
    /// Negative after a batch larger than what was left.
    credit: i64,
    /// Bytes appended since the meter was read.
    appended: u64,
    window_us: u64,
    /// The share earned in this window, and what was credited in it.
    share: u64,
    credited: u64,
}

impl Meter {
    pub fn new(now_us: u64) -> Meter {
        Meter { credit: 0, appended: 0, window_us: now_us, share: 0, credited: 0 }
    }

    pub fn appended(&mut self, bytes: u64) {
        self.appended += bytes;
    }

    pub fn spend(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub_unsigned(bytes);
    }

    pub fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Counts what has been earned: `percent` of what was appended, or `floor` bytes per second.
    pub fn earn(&mut self, percent: u64, floor: u64, now_us: u64) {
        let elapsed_us = now_us.saturating_sub(self.window_us);
        self.share += std::mem::take(&mut self.appended).saturating_mul(percent) / 100;
        let least = (u128::from(floor) * u128::from(elapsed_us) / 1_000_000) as u64;
        let earned = self.share.max(least).saturating_sub(self.credited);
        self.credited += earned;
        let credit = self.credit.saturating_add_unsigned(earned);
        self.credit = credit.min(SAVED_BYTES_MAX.max(floor) as i64);
        if elapsed_us >= WINDOW_US {
            (self.window_us, self.share, self.credited) = (now_us, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a task that spends all it gets may store in ten seconds.
    fn spent(bytes_per_second: u64, percent: u64, floor: u64) -> u64 {
        let mut meter = Meter::new(0);
        let mut spent = 0;
        for tick in 1..=100_000 {
            meter.appended(bytes_per_second / 10_000);
            meter.earn(percent, floor, tick * 100);
            if meter.has_credit() {
                let all = meter.credit.unsigned_abs();
                meter.spend(all);
                spent += all;
            }
        }
        spent
    }

    #[test]
    fn a_busy_log_keeps_the_share_and_an_idle_one_gets_the_floor() {
        assert_eq!(spent(50_000_000, 10, 1_000_000), 50_000_000);
        let idle = spent(0, 10, 1_000_000);
        assert!((9_900_000..=10_000_000).contains(&idle), "{idle}");
        let slow = spent(1_000_000, 10, 1_000_000);
        assert!((9_900_000..=10_000_000).contains(&slow), "{slow}");
    }

    #[test]
    fn savings_are_bounded_and_debts_are_paid_first() {
        let mut meter = Meter::new(0);
        meter.earn(10, 1_000, u64::MAX);
        assert_eq!(meter.credit, SAVED_BYTES_MAX as i64);
        meter.spend(SAVED_BYTES_MAX + 500);
        assert!(!meter.has_credit());
        meter.appended(5_000);
        meter.earn(10, 0, u64::MAX);
        assert!(!meter.has_credit());
        meter.appended(10);
        meter.earn(10, 0, u64::MAX);
        assert!(meter.has_credit());
    }
}
