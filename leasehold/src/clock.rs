//! The only place that reads a clock. A holder counts in boot time, which runs on while the machine sleeps (C9).
//!
//! What leaves the process is normalised, so that processes in different time namespaces of one boot agree (C12).

use std::{fmt, fs, io, sync::Arc};

use leasehold_core::{BootTime, WallTime};

/// A source of time. The real one is [`BootClock`]; tests bring their own.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time since this machine started, sleep included.
    fn now(&self) -> BootTime;
    /// The wall clock; for people, and to see that the machine was paused (C13).
    fn wall(&self) -> WallTime;
}

/// The machine's clock.
#[derive(Debug)]
pub struct BootClock {
    /// What the time namespace adds to boot time; taken off again.
    offset: i128,
}

impl BootClock {
    /// Reads the offset of this process's time namespace, once.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            offset: namespace_offset(),
        })
    }

    /// The same moment in nanoseconds as a timerfd of this process counts them; a timer is set to this.
    pub fn timer_nanos(&self, at: BootTime) -> u64 {
        u64::try_from(i128::from(at.as_nanos()) + self.offset).unwrap_or(u64::MAX)
    }

    /// The identity of this boot: two boot times compare only if it is the same (SQ2).
    pub fn boot_id() -> io::Result<String> {
        Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned())
    }
}

impl Clock for BootClock {
    fn now(&self) -> BootTime {
        #[cfg(target_os = "linux")]
        let clock = rustix::time::ClockId::Boottime;
        // Darwin's monotonic clock counts sleep, as Linux' boot clock does.
        #[cfg(not(target_os = "linux"))]
        let clock = rustix::time::ClockId::Monotonic;
        let nanos = nanos(rustix::time::clock_gettime(clock)) - self.offset;
        BootTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    fn wall(&self) -> WallTime {
        let nanos = nanos(rustix::time::clock_gettime(rustix::time::ClockId::Realtime));
        WallTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }
}

fn nanos(time: rustix::time::Timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// The `boottime` line of `/proc/self/timens_offsets`: seconds and nanoseconds; absent where there are no namespaces.
fn namespace_offset() -> i128 {
    let text = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    parse_offset(&text).unwrap_or(0)
}

fn parse_offset(text: &str) -> Option<i128> {
    let mut words = text
        .lines()
        .find(|line| line.starts_with("boottime"))?
        .split_whitespace()
        .skip(1);
    let seconds: i128 = words.next()?.parse().ok()?;
    let nanos: i128 = words.next()?.parse().ok()?;
    Some(seconds * 1_000_000_000 + nanos)
}
