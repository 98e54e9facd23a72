//! Cheap evidence that the machine stood still without its boot clock seeing it: the wall clock jumped against it (C13).
//! It proves nothing; it costs one renewal, and no effect happens before that is answered.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::clock::Clock;

/// Two reads that lie no further apart count as one.
const MOMENT: Duration = Duration::from_millis(1);
/// On a machine that is never as quick as that, a false alarm costs one renewal.
const MAX_TRIES: u32 = 100;

#[derive(Debug)]
pub(crate) struct Pauses {
    clock: Arc<dyn Clock>,
    threshold: Duration,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// Nanoseconds of the wall clock above the boot clock.
    offset: i128,
    count: u64,
}

impl Pauses {
    pub(crate) fn new(clock: Arc<dyn Clock>, threshold: Duration) -> Self {
        let offset = offset(&*clock);
        Self {
            clock,
            threshold,
            seen: Mutex::new(Seen { offset, count: 0 }),
        }
    }

    /// Looks at both clocks now: how many jumps there were so far. Who trusts something remembers the count it trusted
    /// it at.
    pub(crate) fn count(&self) -> u64 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = offset(&*self.clock);
        if (offset - seen.offset).unsigned_abs() > self.threshold.as_nanos() {
            seen.offset = offset;
            seen.count += 1;
        }
        seen.count
    }
}

/// Reads both clocks at one moment: a thread that is held up in between tries again.
fn offset(clock: &dyn Clock) -> i128 {
    let mut tries = 0;
    loop {
        let (boot, wall) = (clock.now(), clock.wall());
        tries += 1;
        if clock.now().since(boot) < MOMENT || tries == MAX_TRIES {
            return i128::from(wall.as_nanos()) - i128::from(boot.as_nanos());
        }
    }
}
