//! Starts `leasehold run` and looks at what is left of its jobs.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Place;

/// A running `leasehold run`, killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    mark: String,
}

impl Running {
    /// Starts `leasehold run ARGS -- sh -c SCRIPT`. Everything it starts can be found by a mark in its environment.
    pub(crate) fn start(place: &Place, args: &str, script: &str) -> Running {
        Self::of(place.command(), place, args, script)
    }

    fn of(mut command: Command, place: &Place, args: &str, script: &str) -> Running {
        let mark = format!("LEASEHOLD_TEST_MARK={}-{}", std::process::id(), unique());
        let (name, value) = mark.split_once('=').expect("a mark");
        command
            .arg("run")
            .args(args.split_whitespace())
            .args(["--", "sh", "-c", script]);
        let err = fs::File::create(place.path(&format!("err-{value}"))).expect("a file");
        command.env(name, value).stdout(Stdio::null()).stderr(err);
        let child = command.spawn().expect("leasehold starts");
        Running { child, mark }
    }

    /// Sends a signal to the supervisor.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("it is ours");
    }

    /// The processes with our mark, but the supervisor; zombies are dead.
    pub(crate) fn left(&self) -> Vec<i32> {
        let pids = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| pid.cast_unsigned() != self.child.id() && self.is_marked(*pid))
            .collect()
    }

    fn is_marked(&self, pid: i32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut words = environment.split(|byte| *byte == 0);
        words.any(|word| word == self.mark.as_bytes())
    }

    /// The exit code; a test that waits longer has failed.
    pub(crate) fn code(&mut self) -> i32 {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < end, "leasehold run does not end");
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.left() {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Waits until `true_by_now`, at most 30 s.
pub(crate) fn eventually(what: &str, mut true_by_now: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !true_by_now() {
        assert!(Instant::now() < end, "not within 30 s: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// A script that writes `WORD nanoseconds` to a file 20 times a second, as long as it lives, deaf to SIGTERM.
pub(crate) fn beats(file: &Path, word: &str) -> String {
    format!(
        "trap '' TERM; while :; do echo {word} $(date +%s%N) >> {}; sleep 0.05; done",
        file.display()
    )
}

/// The times that [`beats`] wrote for a word.
pub(crate) fn times(file: &Path, word: &str) -> Vec<u128> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    lines.collect()
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
