//! One supervised job with real processes, and what a test may do to them. Everything it started dies with it.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");
const MARK: &str = "LEASEHOLD_TEST_MARK";
/// No wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Milliseconds of `__supervise`: how far ahead the deadlines lie, how often and how long they are extended.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) stop: u64,
    pub(crate) kill: u64,
    pub(crate) every: u64,
    pub(crate) until: u64,
}

/// Nothing happens by time within a test.
pub(crate) const FAR: Times = Times {
    stop: 60_000,
    kill: 60_000,
    every: 100,
    until: 60_000,
};

/// Extended beyond the first deadline several times, then left to run out.
pub(crate) const NEAR: Times = Times {
    stop: 2000,
    kill: 2500,
    every: 150,
    until: 3500,
};

pub(crate) struct Rig {
    pub(crate) driver: Child,
    pub(crate) folder: tempfile::TempDir,
    mark: String,
}

/// The arguments of the binary for a job, a report file, and flags of the driver.
pub(crate) fn arguments(report: &str, times: Times, flags: &str, command: &[&str]) -> Vec<String> {
    let Times {
        stop,
        kill,
        every,
        until,
    } = times;
    let mut args = vec!["__supervise".to_owned(), report.to_owned()];
    args.extend([stop, kill, every, until].map(|millis| millis.to_string()));
    args.extend([flags, "--"].map(str::to_owned));
    args.extend(command.iter().map(|&word| word.to_owned()));
    args
}

impl Rig {
    /// A job `sh -c SCRIPT` whose standard streams lead nowhere.
    pub(crate) fn shell(times: Times, flags: &str, script: &str) -> Rig {
        Rig::spawn(times, flags, &["sh", "-c", script], |_| {})
    }

    /// A job; `set` changes how the supervisor is started.
    pub(crate) fn spawn(
        times: Times,
        flags: &str,
        command: &[&str],
        set: impl FnOnce(&mut Command),
    ) -> Rig {
        Rig::program(BINARY, set, |report| {
            arguments(report, times, flags, command)
        })
    }

    /// Any program, with arguments made from the path of the report.
    pub(crate) fn program(
        program: &str,
        set: impl FnOnce(&mut Command),
        args: impl FnOnce(&str) -> Vec<String>,
    ) -> Rig {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{count}", std::process::id());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let report = folder.path().join("report");
        // Tests that run in the background of a script would hand down that SIGINT is ignored.
        let mut command = Command::new("env");
        command
            .args(["--default-signal", program])
            .args(args(report.to_str().expect("UTF-8")))
            .current_dir(&folder)
            .env(MARK, &mark)
            .env("LEASEHOLD_TEST_SECRET", "s3cret")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        set(&mut command);
        let driver = command.spawn().expect("the supervisor starts");
        Rig {
            driver,
            folder,
            mark,
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// The child's pid, once it was started.
    pub(crate) fn child(&self) -> i32 {
        let line = wait_for("the start", || {
            let report = self.text("report");
            report.lines().next().map(str::to_owned)
        });
        let pid = line.strip_prefix("started pid=").expect("the first line");
        let (pid, _) = pid.split_once(' ').expect("a pid");
        pid.parse().expect("a pid")
    }

    /// The latest `kill_at`, in nanoseconds of the boot clock. Renewals that were sent are all in the report.
    pub(crate) fn kill_at(&self) -> u64 {
        let report = self.text("report");
        let mut times = report
            .lines()
            .filter_map(|line| line.split_once("kill_at="));
        let (_, time) = times.next_back().expect("a deadline in the report");
        time.parse().expect("nanoseconds")
    }

    /// What the supervisor said in the end.
    pub(crate) fn exit(&self) -> Value {
        let report = self.text("report");
        let line = report.lines().find_map(|line| line.strip_prefix("ended "));
        serde_json::from_str(line.unwrap_or_else(|| panic!("no end in {report:?}"))).expect("JSON")
    }

    /// Waits for the end of the supervisor.
    pub(crate) fn end(&mut self) -> ExitStatus {
        wait_for("the end of the supervisor", || {
            self.driver.try_wait().expect("our child")
        })
    }

    /// The exit code as a shell would show it.
    pub(crate) fn code(&mut self) -> i32 {
        let status = self.end();
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().expect("code or signal"))
    }

    pub(crate) fn signal_driver(&self, signal: Signal) {
        send(self.driver.id(), signal);
    }

    /// All live processes with our mark: (pid, second argument).
    fn marked(&self) -> Vec<(i32, String)> {
        let ours = scan()
            .into_iter()
            .filter(|process| process.mark == self.mark);
        ours.map(|process| (process.pid, process.second)).collect()
    }

    /// The guard's pid.
    pub(crate) fn guard(&self) -> i32 {
        wait_for("the guard", || {
            let guard = self
                .marked()
                .into_iter()
                .find(|(_, stage)| stage == "__guard");
            guard.map(|(pid, _)| pid)
        })
    }

    /// The live processes of the job: all with our mark but supervisor and guard, and what the supervisor came from.
    pub(crate) fn tree(&self) -> Vec<i32> {
        let ours = |pid: i32, stage: &str| {
            stage == "__guard" || stage == "__supervise" || pid == self.driver.id().cast_signed()
        };
        let marked = self.marked().into_iter();
        marked
            .filter(|(pid, stage)| !ours(*pid, stage))
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Waits until the job was started and has so many processes.
    pub(crate) fn wait_for_tree(&self, size: usize) {
        self.child();
        wait_for("the whole tree", || {
            (self.tree().len() >= size).then_some(())
        });
    }

    /// Waits until nothing of the job is alive; answers when that was seen.
    pub(crate) fn wait_for_death(&self) -> u64 {
        wait_for("the death of the tree", || {
            self.tree().is_empty().then(boot_nanos)
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for _ in 0..50 {
            let left = self.marked();
            for &(pid, _) in &left {
                send(pid.unsigned_abs(), Signal::KILL);
            }
            if left.is_empty() {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Ok(pidfd) = pidfd_open(pid.expect("a pid"), PidfdFlags::empty()) {
        let _ = pidfd_send_signal(&pidfd, signal);
    }
}

/// Held by tests that measure: they are about deadlines, not about a starved machine.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A live process of some rig.
#[derive(Clone)]
struct Marked {
    pid: i32,
    mark: String,
    /// Its second argument, which tells our own stages.
    second: String,
}

/// A look at all processes that began after this call. Rigs that ask at the same time share one, so that looking does
/// not use up the machine.
fn scan() -> Vec<Marked> {
    static LAST: Mutex<(u64, Vec<Marked>)> = Mutex::new((0, Vec::new()));
    let asked_at = boot_nanos();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.0 < asked_at {
        let began_at = boot_nanos();
        let folder = fs::read_dir("/proc").expect("/proc");
        let names = folder.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids = names.filter_map(|name| name.parse().ok());
        *last = (began_at, pids.filter_map(read).collect());
    }
    last.1.clone()
}

fn read(pid: i32) -> Option<Marked> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{MARK}=");
    let mut variables = environment.split(|&byte| byte == 0);
    let mark = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
    let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let second = args.split(|&byte| byte == 0).nth(1).unwrap_or_default();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some(Marked {
        pid,
        mark: text(mark),
        second: text(second),
    })
}

/// A field of /proc/PID/stat, counted from 1 as in proc(5); from the third on.
pub(crate) fn stat(pid: i32, field: usize) -> Option<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = line.rsplit_once(')')?;
    rest.split_ascii_whitespace()
        .nth(field - 3)
        .map(str::to_owned)
}

/// The boot clock, in nanoseconds.
pub(crate) fn boot_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Asks again and again until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let give_up = boot_nanos() + u64::try_from(PATIENCE.as_nanos()).expect("fits");
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(boot_nanos() < give_up, "waited in vain for {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Says past the capture of the test harness that a test could not run; counted by `make test`.
pub(crate) fn skipped(reason: &str) {
    let line = format!("SKIPPED: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
