//! Log time: what the leader writes into entries (R2 to R4).
//!
//! While one member leads, log time goes at the rate of its boot clock, from where the log had come when it began. While
//! nobody leads it stands still, so a change of leaders only ever extends leases. No other clock plays a part.

use std::{sync::Arc, time::Duration};

use leasehold::clock::Clock;
use leasehold_core::{BootTime, StoreTime};

/// A machine that slept longer than this counts anew (A5).
const NAP: Duration = Duration::from_secs(1);

/// One member's time as leader of one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reign {
    pub(crate) term: u64,
    /// Log time when it began: the table's, with the leader's own first entry in it.
    base: StoreTime,
    /// The boot clock then, read after `base`.
    began: BootTime,
    /// How long the machine had slept by then.
    slept: Duration,
}

impl Reign {
    /// Begins to count. `base` is read before the clock, so that no time is counted twice.
    pub(crate) fn begin(term: u64, base: StoreTime, clock: &Arc<dyn Clock>) -> Self {
        Self {
            term,
            base,
            began: clock.now(),
            slept: clock.slept(),
        }
    }

    /// Log time now. `None`: the machine slept, and whether its clock counted that rightly nobody knows; begin anew.
    pub(crate) fn now(&self, clock: &Arc<dyn Clock>) -> Option<StoreTime> {
        let slept = clock.slept();
        let napped = slept.abs_diff(self.slept) > NAP;
        (!napped).then(|| self.base.plus(clock.now().since(self.began)))
    }
}

#[cfg(test)]
mod tests {
    use leasehold::testing::VirtualClock;

    use super::*;

    /// R2, R3: whatever the new leader's boot clock shows, log time goes on from where it was, and not faster.
    #[test]
    fn log_time_goes_on_from_the_log_and_not_from_a_clock() {
        for start in [0, 1, 1 << 61] {
            let clock = VirtualClock::new();
            clock.advance(Duration::from_nanos(start));
            let shared: Arc<dyn Clock> = clock.clone();
            let base = StoreTime::from_nanos(77);
            let reign = Reign::begin(3, base, &shared);
            assert_eq!(reign.now(&shared), Some(base));
            clock.advance(Duration::from_secs(5));
            assert_eq!(reign.now(&shared), Some(base.plus(Duration::from_secs(5))));
        }
    }
}
