//! How leases stood when this process looked, by its own clock: what a store whose clock was set cannot tell (PG8).
//!
//! A lease that nobody touched for its ttl, its lock delay and the drift of two clocks has no holder that still trusts
//! it, whatever the store's clock says. Sightings are hints for getting on; the store compares before it believes one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{Answer, BootTime, LeaseName};

use crate::clock::{BootClock, Clock};

/// So many leases are watched; with more, all are looked at anew.
const MOST: usize = 10_000;

/// A lease as it stood: any grant, renewal or retry of one changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) token: i64,
    pub(super) touches: i64,
}

#[derive(Debug)]
struct Sighting {
    seen: Seen,
    /// When it was seen like this first.
    since: BootTime,
    /// After so long it is nobody's.
    wait: Duration,
}

/// What this process has seen.
#[derive(Debug)]
pub(super) struct Sightings {
    /// `expiry=both`: the store's clock is not enough to take a lease over.
    pub(super) strict: bool,
    clock: Arc<dyn Clock>,
    leases: Mutex<HashMap<LeaseName, Sighting>>,
}

impl Sightings {
    pub(super) fn new(strict: bool) -> Self {
        let (clock, leases) = (BootClock::new(), Mutex::default());
        Self {
            strict,
            clock,
            leases,
        }
    }

    /// What proves to the store that the lease stood still for long enough.
    pub(super) fn proof(&self, name: &LeaseName) -> Option<Seen> {
        let now = self.clock.now();
        let leases = self.leases();
        let sighting = leases.get(name)?;
        (now.since(sighting.since) >= sighting.wait).then_some(sighting.seen)
    }

    /// Notes how it stands now, after the answer came; `None`: no need to watch it any more.
    pub(super) fn note(&self, name: &LeaseName, now: Option<(Seen, Duration)>) {
        let mut leases = self.leases();
        let Some((seen, wait)) = now else {
            leases.remove(name);
            return;
        };
        if leases
            .get(name)
            .is_some_and(|sighting| sighting.seen == seen)
        {
            return;
        }
        if leases.len() >= MOST {
            leases.clear();
        }
        // The two clocks may differ by a tenth (A17).
        let (since, wait) = (self.clock.now(), wait + wait / 10);
        leases.insert(name.clone(), Sighting { seen, since, wait });
    }

    /// How long until this process would get it: the store's clock alone is not to be waited for, if it was set back;
    /// nor is it enough with `expiry=both`.
    pub(super) fn hint(&self, name: &LeaseName, mut answer: Answer) -> Answer {
        let hint = match &mut answer {
            Answer::Held(held) => &mut held.hint,
            Answer::Delayed { hint } => hint,
            Answer::Quarantined { hint } if !self.strict => hint,
            _ => return answer,
        };
        if let Some(sighting) = self.leases().get(name) {
            let stood = self.clock.now().since(sighting.since);
            let left = sighting.wait.saturating_sub(stood);
            *hint = match self.strict {
                true => (*hint).max(left),
                false => (*hint).min(left),
            };
        }
        answer
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseName, Sighting>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
