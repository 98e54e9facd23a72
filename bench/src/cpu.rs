//! The time that a thread or the process really had a core, so that other work on the machine does not count.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Runs `work` and tells how long a core was busy with it.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, now().saturating_sub(start))
}

/// How long all threads of this process were busy.
pub(crate) fn of_process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn now() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
