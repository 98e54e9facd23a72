//! The boot clock and an alarm on it. The one rule: it counts suspended time too, so it rings at once on resume (C9, C10).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock};

use leasehold::BootTime;
use leasehold::clock::{BootClock, Clock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

const SECOND: u64 = 1_000_000_000;

static CLOCK: LazyLock<Arc<BootClock>> = LazyLock::new(BootClock::new);

/// Boot time of this machine, suspended time included.
pub(super) fn now() -> BootTime {
    CLOCK.now()
}

/// Whether there is something to read, or the other end is gone. A signal that comes meanwhile does not count; an error
/// counts: who cannot see that a process lives takes it for dead.
pub(super) fn is_ready(fd: &impl AsFd) -> bool {
    let now = Timespec::default();
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)) {
            Err(Errno::INTR) => {}
            Ok(0) => return false,
            Ok(_) | Err(_) => return true,
        }
    }
}

/// A timerfd; readable once its moment has come.
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Rings at `at`; a moment that has passed rings at once; `BootTime::MAX` rings never. Replaces an earlier moment.
    pub(super) fn set(&self, at: BootTime) -> io::Result<()> {
        // All zero disarms it.
        let at = match CLOCK.timer_nanos(at) {
            _ if at == BootTime::MAX => 0,
            nanos => nanos.max(1),
        };
        let value = Timespec {
            tv_sec: i64::try_from(at / SECOND).unwrap_or(0),
            tv_nsec: i64::try_from(at % SECOND).unwrap_or(0),
        };
        let timer = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &timer)?;
        Ok(())
    }

    /// Stops it from being readable until the next moment.
    pub(super) fn clear(&self) {
        // Nothing to read means that it has not rung.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
