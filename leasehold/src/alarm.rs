//! Sleep until a boot time. One thread of a clock waits on a timer that runs on while the machine sleeps, so neither
//! a suspend nor a starved runtime delays an alarm (C10). Whoever wakes up asks the clock again (C7).

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use leasehold_core::BootTime;

use crate::clock::Clock;

/// Everybody who sleeps by one clock, earliest first.
pub struct Alarms {
    sleepers: Mutex<Sleepers>,
    /// Sets the timer to the earliest alarm.
    set: Box<dyn Fn(BootTime) + Send + Sync>,
}

#[derive(Default)]
struct Sleepers {
    by_time: BTreeMap<(BootTime, u64), Waker>,
    ever: u64,
}

impl Alarms {
    /// Alarms of a clock. `set` is told the time of the earliest one whenever that changes, and once more, with
    /// [`BootTime::ZERO`], when the alarms are gone; [`fire`](Self::fire) is to be called then.
    pub fn new(set: impl Fn(BootTime) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            sleepers: Mutex::default(),
            set: Box::new(set),
        })
    }

    /// Wakes everybody whose time has come, and sets the timer to the next.
    pub fn fire(&self, now: BootTime) {
        let mut sleepers = self.sleepers();
        let later = sleepers.by_time.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut sleepers.by_time, later);
        if let Some((next, _)) = sleepers.by_time.keys().next() {
            (self.set)(*next);
        }
        drop(sleepers);
        due.into_values().for_each(Waker::wake);
    }

    fn add(&self, at: BootTime, waker: Waker) -> u64 {
        let mut sleepers = self.sleepers();
        sleepers.ever += 1;
        let id = sleepers.ever;
        let earliest = sleepers.by_time.keys().next().map(|(at, _)| *at);
        sleepers.by_time.insert((at, id), waker);
        if earliest.is_none_or(|earliest| at < earliest) {
            (self.set)(at);
        }
        id
    }

    /// A waker may be the last that knows a task, whose end may come back here: it is dropped without the latch.
    fn remove(&self, at: BootTime, id: u64) {
        let waker = self.sleepers().by_time.remove(&(at, id));
        drop(waker);
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sleepers = self.sleepers().by_time.len();
        f.debug_struct("Alarms")
            .field("sleepers", &sleepers)
            .finish()
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        (self.set)(BootTime::ZERO);
    }
}

/// A future that is ready from a boot time on. Needs no runtime. See [`sleep_until`].
#[derive(Debug)]
pub struct Sleep {
    clock: Arc<dyn Clock>,
    alarms: Arc<Alarms>,
    at: BootTime,
    id: Option<u64>,
}

/// Sleeps until `clock` shows `at`; fails if the clock cannot wake anybody. To block a thread with it, give it to any
/// executor.
pub fn sleep_until(clock: &Arc<dyn Clock>, at: BootTime) -> io::Result<Sleep> {
    Ok(Sleep {
        alarms: clock.alarms()?,
        clock: clock.clone(),
        at,
        id: None,
    })
}

impl Sleep {
    fn forget(&mut self) {
        if let Some(id) = self.id.take() {
            self.alarms.remove(self.at, id);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.forget();
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        self.id = Some(self.alarms.add(self.at, cx.waker().clone()));
        // A clock that is moved by hand may have passed `at` in between, and fired without us.
        match self.clock.now() >= self.at {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget();
    }
}
