//! A clock that stands still until it is moved.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{BootTime, WallTime};

use crate::{alarm::Alarms, clock::Clock};

/// A [`Clock`] that a test moves. Sleepers wake when their time has come, on their own threads: give them a moment.
#[derive(Debug)]
pub struct VirtualClock {
    time: Mutex<(BootTime, WallTime)>,
    alarms: Arc<Alarms>,
}

impl VirtualClock {
    /// A thousand seconds after a boot, some day in 2026.
    pub fn new() -> Arc<Self> {
        let boot = BootTime::from_nanos(1_000_000_000_000);
        let wall = WallTime::from_nanos(1_780_000_000_000_000_000);
        Arc::new(Self {
            time: Mutex::new((boot, wall)),
            alarms: Alarms::new(|_| {}),
        })
    }

    /// Time goes on, and is noticed: also what a suspended machine sees when it wakes up.
    pub fn advance(&self, by: Duration) {
        let mut time = self.time();
        *time = (time.0.plus(by), time.1.plus(by));
        let now = time.0;
        drop(time);
        self.alarms.fire(now);
    }

    /// Time goes on and only the wall clock shows it: the machine was paused from outside (C13). A step of the wall clock
    /// looks the same.
    pub fn pause(&self, by: Duration) {
        let mut time = self.time();
        time.1 = time.1.plus(by);
    }

    /// The wall clock is set back.
    pub fn step_back(&self, by: Duration) {
        let mut time = self.time();
        time.1 = time.1.minus(by);
    }

    fn time(&self) -> MutexGuard<'_, (BootTime, WallTime)> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> BootTime {
        self.time().0
    }

    fn wall(&self) -> WallTime {
        self.time().1
    }

    fn alarms(&self) -> io::Result<Arc<Alarms>> {
        Ok(self.alarms.clone())
    }
}
