//! How Leases stood when this process looked, by its own boot clock: the only clock there is (K1).
//!
//! A Lease that stood unchanged for the duration in it and the drift of two clocks is nobody's. That it still stands so
//! is proven by the write that takes it, which names the version that was seen.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::api::DynamicObject;
use leasehold_core::{BootTime, LeaseName};

use crate::clock::{BootClock, Clock};

/// So many Leases are remembered; with more, all are looked at anew.
const MOST: usize = 10_000;

#[derive(Debug)]
struct Sighting {
    uid: String,
    version: u64,
    /// When this version came here first.
    since: BootTime,
    /// From then on it is nobody's after so long; zero if nobody held it.
    wait: Duration,
    /// As this process wrote it, for the next write.
    written: Option<DynamicObject>,
}

/// What this process has seen.
#[derive(Debug)]
pub(super) struct Sightings {
    clock: Arc<dyn Clock>,
    leases: Mutex<HashMap<LeaseName, Sighting>>,
}

/// A Lease as it came: which one, which version, and how long its holder may go on from there.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) uid: &'a str,
    pub(super) version: u64,
    pub(super) wait: Duration,
}

impl Sightings {
    pub(super) fn new() -> Self {
        Self {
            clock: BootClock::shared(),
            leases: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> BootTime {
        self.clock.now()
    }

    pub(super) fn wall_nanos(&self) -> u64 {
        self.clock.wall().as_nanos()
    }

    /// Notes that it came, and answers since when it stands so. `asked`: when it was asked for; a version older than
    /// one that was here before that was brought back by a restore, and is answered with the newer one (K6).
    pub(super) fn note(
        &self,
        name: &LeaseName,
        seen: &Seen<'_>,
        asked: BootTime,
        written: Option<&DynamicObject>,
    ) -> Result<BootTime, u64> {
        let now = self.clock.now();
        let mut leases = self.leases();
        if let Some(known) = leases.get_mut(name).filter(|known| known.uid == seen.uid) {
            if known.version == seen.version {
                known.written = written.cloned().or(known.written.take());
                return Ok(known.since);
            }
            if known.version > seen.version {
                // It came here while this one was on its way.
                return if known.since >= asked {
                    Ok(now)
                } else {
                    Err(known.version)
                };
            }
        }
        if leases.len() >= MOST {
            leases.clear();
        }
        let sighting = Sighting {
            uid: seen.uid.to_owned(),
            version: seen.version,
            since: now,
            wait: seen.wait,
            written: written.cloned(),
        };
        leases.insert(name.clone(), sighting);
        Ok(now)
    }

    /// The Lease as this process wrote it last, if nobody was seen to change it since.
    pub(super) fn written(&self, name: &LeaseName) -> Option<(DynamicObject, BootTime)> {
        let leases = self.leases();
        let sighting = leases.get(name)?;
        Some((sighting.written.clone()?, sighting.since))
    }

    /// How long a Lease that is not there any more was promised to somebody, from now on.
    pub(super) fn promised(&self, name: &LeaseName) -> Duration {
        let now = self.clock.now();
        let leases = self.leases();
        leases.get(name).map_or(Duration::ZERO, |sighting| {
            sighting.since.plus(sighting.wait).since(now)
        })
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseName, Sighting>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
