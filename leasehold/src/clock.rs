//! The only place that reads a clock. A holder counts in boot time, which runs on while the machine sleeps (C9).
//!
//! What leaves the process is normalised, so that processes in different time namespaces of one boot agree (C12).

use std::{
    fmt, fs, io,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    thread,
    time::Duration,
};

use leasehold_core::{BootTime, WallTime};

use crate::alarm::Alarms;

/// A source of time. The real one is [`BootClock`]; tests bring their own.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time since this machine started, sleep included.
    fn now(&self) -> BootTime;
    /// The wall clock; for people, and to see that the machine was paused (C13).
    fn wall(&self) -> WallTime;
    /// How much of its time the machine slept, boot time without monotonic time. Only a change of it means something.
    fn slept(&self) -> Duration {
        Duration::ZERO
    }
    /// Those who sleep by this clock. A clock that wakes nobody serves a store, but no keeper.
    fn alarms(&self) -> io::Result<Arc<Alarms>> {
        let what = format!("{self:?} has no alarms: no keeper can go by it");
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }
}

/// The machine's clock.
#[derive(Debug)]
pub struct BootClock {
    /// What the time namespace adds to boot time; taken off again.
    offset: i128,
    /// Made when somebody sleeps for the first time.
    alarms: Mutex<Option<Arc<Alarms>>>,
}

impl BootClock {
    /// Reads the offset of this process's time namespace, once.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            offset: namespace_offset(),
            alarms: Mutex::default(),
        })
    }

    /// The one that all keepers of this process share, and with it one thread that wakes them.
    pub fn shared() -> Arc<Self> {
        static SHARED: LazyLock<Arc<BootClock>> = LazyLock::new(BootClock::new);
        SHARED.clone()
    }

    /// The same moment in nanoseconds as a timerfd of this process counts them; a timer is set to this.
    pub fn timer_nanos(&self, at: BootTime) -> u64 {
        timer_nanos(at, self.offset)
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
        boot_time(self.offset)
    }

    fn wall(&self) -> WallTime {
        let nanos = nanos(rustix::time::clock_gettime(rustix::time::ClockId::Realtime));
        WallTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    fn slept(&self) -> Duration {
        // One clock stands still in sleep, the other does not; what a namespace adds to them does not change.
        let awake = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let slept = i128::from(boot_time(0).as_nanos()) - nanos(awake);
        Duration::from_nanos(u64::try_from(slept).unwrap_or(0))
    }

    fn alarms(&self) -> io::Result<Arc<Alarms>> {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        match &*alarms {
            Some(alarms) => Ok(alarms.clone()),
            None => Ok(alarms.insert(start_alarms(self.offset)?).clone()),
        }
    }
}

/// The thread ends when nobody can sleep any more.
fn start_alarms(offset: i128) -> io::Result<Arc<Alarms>> {
    let timer = Arc::new(timer::Timer::new()?);
    let waits = timer.clone();
    let alarms = Alarms::new(move |at| timer.set(timer_nanos(at, offset)));
    let weak = Arc::downgrade(&alarms);
    let run = move || {
        while let Some(alarms) = weak.upgrade() {
            alarms.fire(boot_time(offset));
            drop(alarms);
            waits.wait();
        }
    };
    thread::Builder::new()
        .name("lease-alarm".into())
        .spawn(run)?;
    Ok(alarms)
}

fn boot_time(offset: i128) -> BootTime {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    // Darwin's monotonic clock counts sleep, as Linux' boot clock does.
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let nanos = nanos(rustix::time::clock_gettime(clock)) - offset;
    BootTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn timer_nanos(at: BootTime, offset: i128) -> u64 {
    u64::try_from(i128::from(at.as_nanos()) + offset).unwrap_or(u64::MAX)
}

#[cfg(target_os = "linux")]
mod timer {
    use std::{io, os::fd::OwnedFd};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    /// A timer on the boot clock (C10).
    pub(super) struct Timer(OwnedFd);

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
            Ok(Self(timer))
        }

        /// Zero would disarm it; a time that has passed fires at once.
        pub(super) fn set(&self, nanos: u64) {
            let nanos = i64::try_from(nanos.max(1)).unwrap_or(i64::MAX);
            let spec = Itimerspec {
                it_interval: Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                it_value: Timespec {
                    tv_sec: nanos / 1_000_000_000,
                    tv_nsec: nanos % 1_000_000_000,
                },
            };
            timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)
                .expect("an own timerfd takes any time that is not negative");
        }

        pub(super) fn wait(&self) {
            // Interrupted or not, whoever waits looks at the clock next.
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

/// Where there is no timer on the boot clock: looks at the clock again and again.
#[cfg(not(target_os = "linux"))]
mod timer {
    use std::{io, thread, time::Duration};

    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn set(&self, _: u64) {}

        pub(super) fn wait(&self) {
            thread::sleep(Duration::from_millis(20));
        }
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

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;
    use crate::{alarm::sleep_until, block::block_on};

    const PARENT: &str = "LEASEHOLD_TEST_BOOT_NANOS";

    /// M4, C9, C12: in a time namespace where boot time and monotonic time are 100 000 s apart, as after a day of sleep,
    /// the clock goes by boot time, and shows what it shows outside.
    #[test]
    fn the_clock_counts_sleep_and_agrees_between_namespaces() {
        let now = BootClock::new().now();
        if let Ok(parent) = env::var(PARENT) {
            let outside = BootTime::from_nanos(parent.parse().expect("nanoseconds"));
            assert!(now >= outside, "{now:?} is before {outside:?}");
            assert!(
                now.since(outside) < Duration::from_secs(600),
                "{now:?} {outside:?}"
            );
            return an_alarm_rings();
        }
        let myself = env::current_exe().expect("this test has a path");
        let mut inside = Command::new("unshare");
        inside
            .args(["--time", "--boottime", "100000", "--monotonic", "5000"])
            .args((!rustix::process::geteuid().is_root()).then_some("--map-root-user"))
            .arg(myself)
            .args([
                "--exact",
                "clock::tests::the_clock_counts_sleep_and_agrees_between_namespaces",
            ])
            .env(PARENT, now.as_nanos().to_string());
        let output = inside.output().expect("util-linux is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("unshare failed") {
            eprintln!("no time namespace here, so only the parts were tested: {said}");
            return;
        }
        let result = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{result}{said}");
        assert!(result.contains("1 passed"), "{result}");
    }

    fn an_alarm_rings() {
        let (rang, rings) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let clock: Arc<dyn Clock> = BootClock::new();
            let at = clock.now().plus(Duration::from_millis(30));
            block_on(sleep_until(&clock, at).expect("it has alarms"));
            rang.send(())
        });
        let patience = Duration::from_secs(20);
        rings
            .recv_timeout(patience)
            .expect("the alarm goes by the same clock");
    }

    #[test]
    fn the_offset_of_a_namespace_is_read() {
        let text = "monotonic           1         0\nboottime       100000       500\n";
        assert_eq!(parse_offset(text), Some(100_000_000_000_500));
        assert_eq!(parse_offset("boottime -3 0"), Some(-3_000_000_000));
        for odd in ["", "boottime", "boottime x 0", "monotonic 1 0"] {
            assert_eq!(parse_offset(odd), None);
        }
    }

    /// C10. An earlier alarm overtakes a later one that was set before it.
    #[test]
    fn alarms_ring_in_order_and_not_too_early() {
        let clock: Arc<dyn Clock> = BootClock::new();
        let start = clock.now();
        let sleep = |millis| {
            let at = start.plus(Duration::from_millis(millis));
            let (clock, sleep) = (
                clock.clone(),
                sleep_until(&clock, at).expect("it has alarms"),
            );
            thread::spawn(move || {
                block_on(sleep);
                (at, clock.now())
            })
        };
        let sleepers = [sleep(120), sleep(60), sleep(0), sleep(60)];
        for sleeper in sleepers {
            let (at, woke) = sleeper.join().expect("it sleeps without a panic");
            assert!(woke >= at);
        }
        let dropped = sleep_until(&clock, BootTime::MAX).expect("it has alarms");
        drop(dropped);
    }
}
