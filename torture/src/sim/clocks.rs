//! Clocks of machines, each a straight line over true time that may bend, jump or stand still.
//!
//! The one rule: all arithmetic is in whole nanoseconds, so that the same run reads the same times everywhere.

/// Parts per million of a clock that keeps true time.
pub(super) const TRUE_RATE: u64 = 1_000_000;

/// One machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// From this true time on
    since: u64,
    /// it goes on from this reading
    at: u64,
    /// at this rate, in parts per million.
    rate: u64,
}

impl Clock {
    /// A clock that shows `at` at true time 0.
    pub(super) fn new(at: u64, rate: u64) -> Self {
        Self { since: 0, at, rate }
    }

    /// What it shows at true time `now`.
    pub(super) fn read(&self, now: u64) -> u64 {
        let gone = u128::from(now.saturating_sub(self.since)) * u128::from(self.rate);
        self.at + (gone / u128::from(TRUE_RATE)) as u64
    }

    /// The first true time at which it shows `reading`, if nothing happens to it; also for readings that are past.
    pub(super) fn when(&self, reading: u64) -> u64 {
        let ahead = i128::from(reading) - i128::from(self.at);
        let (ahead, rate) = (ahead * i128::from(TRUE_RATE), i128::from(self.rate));
        let gone = ahead.div_euclid(rate) + i128::from(ahead.rem_euclid(rate) > 0);
        (i128::from(self.since) + gone).clamp(0, u64::MAX.into()) as u64
    }

    /// Its rate, in parts per million.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// It jumps at `now`; never below zero.
    pub(super) fn jump(&mut self, now: u64, by: i64) {
        self.at = self.read(now).saturating_add_signed(by);
        self.since = now;
    }

    /// It stands still for `span` from `now` on.
    pub(super) fn stand_still(&mut self, now: u64, span: u64) {
        self.at = self.read(now);
        self.since = now + span;
    }

    /// From `now` on it runs at another rate.
    pub(super) fn set_rate(&mut self, now: u64, rate: u64) {
        self.at = self.read(now);
        (self.since, self.rate) = (now, rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_and_its_time_belong_together() {
        for rate in [900_000, 1_000_000, 1_111_112, 333_333] {
            let mut clock = Clock::new(5_000, rate);
            clock.jump(1_000_000, 77);
            clock.stand_still(2_000_000, 500);
            for reading in [7_000, 3_000_000, 9_999_999_999] {
                let when = clock.when(reading);
                if when > 2_000_500 {
                    assert!(clock.read(when) >= reading && clock.read(when - 1) < reading);
                }
            }
            assert_eq!(clock.read(2_000_100), clock.read(2_000_499));
        }
    }
}
