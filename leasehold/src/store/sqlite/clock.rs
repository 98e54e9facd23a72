//! Whose clock wrote a record, and what a time on another clock means here (A7).
//!
//! Stored times are boot times, which compare only within one boot. A record of another boot, or of a clock that was
//! ahead of ours, is judged by watching: it keeps its promise from when it was first seen here, in full, and may be
//! taken when it stood unchanged for that long. So a reboot, or a file moved to another machine, only ever extends.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Record, Stamp, StoreTime, WallTime};

use crate::{
    clock::{BootClock, Clock},
    store::StoreError,
};

/// The store's clock: boot time, and which boot.
#[derive(Clone, Debug)]
pub struct HostClock {
    clock: Arc<dyn Clock>,
    boot: Arc<str>,
}

impl HostClock {
    /// The clock of this machine.
    pub fn new() -> Result<Self, StoreError> {
        let boot = BootClock::boot_id().map_err(|error| StoreError::Invalid {
            what: format!("this machine does not tell which boot it is in (/proc/sys/kernel/random/boot_id): {error}"),
        })?;
        Ok(Self::with(BootClock::new(), &boot))
    }

    /// A clock for tests: two stores agree on time only if `boot` is the same.
    pub fn with(clock: Arc<dyn Clock>, boot: &str) -> Self {
        Self {
            clock,
            boot: boot.into(),
        }
    }

    pub(super) fn now(&self) -> StoreTime {
        StoreTime::from_nanos(self.clock.now().as_nanos())
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp {
            now: self.now(),
            wall: self.wall(),
        }
    }

    pub(super) fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    /// Whether a time that `boot` wrote down as its present can be compared with `now`.
    pub(super) fn agrees(&self, boot: &str, written: StoreTime, now: StoreTime) -> bool {
        *self.boot == *boot && written <= now.plus(AHEAD)
    }
}

/// A reader reads the clock before the record, so a record may be this much younger. More than any read takes.
const AHEAD: Duration = Duration::from_secs(5);

/// A record with the clock that its times belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dated {
    pub(super) record: Record,
    /// The boot whose clock it was.
    pub(super) boot: String,
    /// What that clock said when the record was written.
    pub(super) written: StoreTime,
}

impl Dated {
    /// The same record on our clock, seen here for the first time at `first`. The two clocks may run at different rates
    /// (K1's factor), and the promise may be longer than the ttl (A2).
    pub(super) fn seen_at(self, first: StoreTime) -> Record {
        let promised = self.record.expires.since(self.written);
        let mut record = self.record;
        record.expires = first.plus(promised + promised / 10);
        if let Some(tenure) = &mut record.tenure {
            tenure.granted = first;
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_foreign_promise_is_kept_in_full_from_its_first_sighting() {
        let mut record = Record::new(None);
        record.expires = StoreTime::from_nanos(0).plus(SECOND * 1_000_060);
        let written = StoreTime::from_nanos(0).plus(SECOND * 1_000_000);
        let dated = Dated {
            record,
            boot: "other".into(),
            written,
        };
        let first = StoreTime::from_nanos(0).plus(SECOND * 7);
        assert_eq!(dated.seen_at(first).expires, first.plus(SECOND * 66));
    }

    #[test]
    fn a_clock_that_went_back_is_another_clock() {
        let clock = HostClock::with(BootClock::new(), "this boot");
        let now = clock.now();
        assert!(clock.agrees("this boot", now, now));
        assert!(!clock.agrees("this boot", now.plus(SECOND * 60), now));
        assert!(!clock.agrees("another", now, now));
    }
}
