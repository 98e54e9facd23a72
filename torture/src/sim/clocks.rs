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
    /// The rate it goes back to
    own: u64,
    /// at this true time.
    slow_until: u64,
    /// The most it showed before it went back. Whoever had read it holds time still until it shows that again (C12).
    most: u64,
}

impl Clock {
    /// A clock that shows `at` at true time 0.
    pub(super) fn new(at: u64, rate: u64) -> Self {
        Self {
            since: 0,
            at,
            rate,
            own: rate,
            slow_until: 0,
            most: 0,
        }
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

    /// It jumps at `now`; never below zero.
    pub(super) fn jump(&mut self, now: u64, by: i64) {
        self.most = self.most.max(self.read(now));
        self.at = self.read(now).saturating_add_signed(by);
        self.since = now;
    }

    /// It stands still for `span` from `now` on.
    pub(super) fn stand_still(&mut self, now: u64, span: u64) {
        self.at = self.read(now);
        self.since = now + span;
    }

    /// Until when it stands still, if it does.
    pub(super) fn stands_until(&self, now: u64) -> Option<u64> {
        Some(self.since).filter(|since| *since > now)
    }

    /// From `now` on it runs at another rate, at least until `until`.
    pub(super) fn slow(&mut self, now: u64, rate: u64, until: u64) {
        self.slow_until = self.slow_until.max(until);
        self.set_rate(now, rate);
    }

    /// It runs at its own rate again, unless it is slowed for longer.
    pub(super) fn recover(&mut self, now: u64) {
        if now >= self.slow_until {
            self.set_rate(now, self.own);
        }
    }

    /// Until when it is slowed, if it is.
    pub(super) fn slow_until(&self, now: u64) -> Option<u64> {
        Some(self.slow_until).filter(|until| *until > now)
    }

    /// Until when those who had read it before it went back hold time still, if nothing more happens to it.
    pub(super) fn behind_until(&self, now: u64) -> Option<u64> {
        Some(self.when(self.most)).filter(|until| *until > now)
    }

    fn set_rate(&mut self, now: u64, rate: u64) {
        self.at = self.read(now);
        (self.since, self.rate) = (now, rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_slowness_counts_and_ends() {
        let mut clock = Clock::new(0, TRUE_RATE);
        clock.slow(0, 500_000, 1_000);
        clock.slow(100, 250_000, 2_000);
        clock.recover(1_000);
        assert_eq!(clock.slow_until(1_000), Some(2_000));
        clock.recover(2_000);
        assert_eq!(
            (
                clock.slow_until(2_000),
                clock.read(2_100) - clock.read(2_000)
            ),
            (None, 100)
        );
    }

    #[test]
    fn a_clock_that_went_back_is_behind_until_it_shows_the_same_again() {
        let mut clock = Clock::new(5_000, TRUE_RATE);
        clock.jump(1_000, -600);
        clock.jump(1_100, -200);
        assert_eq!(clock.behind_until(1_200), Some(1_800));
        assert_eq!(
            (clock.read(1_800), clock.behind_until(1_800)),
            (6_000, None)
        );
    }

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
