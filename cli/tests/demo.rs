//! `leasehold demo` tells its story with real processes, the same every time, and leaves none of them behind.

#![allow(missing_docs, clippy::disallowed_methods, clippy::unwrap_used)]

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStderr, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

const STORY: &str = "\
a holds the lease, token: 1
b asks for the lease: held by lease_a
b holds the lease, token: 2
a's plain write: ok
a's fenced write: refused: token 1 is older than 2
plain report: report by a
fenced report: report by b
a asks again: held by lease_b
";

const SPLIT: &str = "\
a sees: lease_a and lease_b, so it runs the job
b sees: lease_a and lease_b, so it stands by
a sees: lease_a, so it runs the job
b sees: lease_b, so it runs the job
without a lease: 2 run the job
a asks for the lease: holds it, token 1
b asks for the lease: held by lease_a
with a lease: 1 runs the job
";

/// The third pause of the story: a is frozen, and b has not asked yet.
const FROZEN: usize = 3;

#[test]
fn the_story_is_the_same_ten_times_of_ten() {
    for _ in 0..10 {
        let output = demo(&[]);
        assert_eq!(text(&output.stdout), STORY, "{}", text(&output.stderr));
        assert!(output.status.success());
    }
}

#[test]
fn quiet_leaves_the_results_only() {
    let output = demo(&["-q"]);
    assert_eq!(text(&output.stdout), STORY);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn json_says_the_same_in_objects() {
    let output = demo(&["--json"]);
    assert_eq!(text(&output.stderr), "");
    let lines = text(&output.stdout);
    let told: String = lines
        .lines()
        .map(|line| {
            let object: serde_json::Value = serde_json::from_str(line).expect(line);
            let field = |name: &str| object[name].as_str().expect(name).to_owned();
            format!("{}: {}\n", field("what"), field("answer"))
        })
        .collect();
    assert_eq!(told, STORY);
}

#[test]
fn nodes_that_cannot_see_each_other_both_run_the_job_unless_a_lease_decides() {
    for _ in 0..3 {
        let output = demo(&["--split"]);
        assert_eq!(text(&output.stdout), SPLIT, "{}", text(&output.stderr));
        assert!(output.status.success());
    }
}

#[test]
fn the_narration_explains_and_draws_who_held_when_in_any_width() {
    for (width, lang) in [(48, "C.UTF-8"), (60, "C"), (80, "C.UTF-8"), (200, "C")] {
        let output = command(&[])
            .env("COLUMNS", width.to_string())
            .env("LC_ALL", lang)
            .output()
            .expect("the demo runs");
        let told = text(&output.stderr);
        for needed in [
            "lease_db",
            "SIGSTOP",
            "SIGCONT",
            "lease of a",
            " token 1 ",
            " frozen ",
            "lease of b",
            " token 2 ",
            "What to remember",
            "leasehold run nightly",
        ] {
            assert!(told.contains(needed), "no {needed:?} at {width}: {told}");
        }
        for line in told.lines().filter(|line| !line.contains("leasehold run")) {
            assert!(line.chars().count() <= width, "{line:?} at {width}");
        }
        assert!(!told.contains('\u{1b}'), "colours without a terminal");
        assert_eq!(told.is_ascii(), lang == "C", "{told}");
    }
}

#[test]
fn the_split_is_drawn_in_any_width() {
    for width in [48, 60, 80] {
        let output = command(&["--split"])
            .env("COLUMNS", width.to_string())
            .output()
            .unwrap();
        let told = text(&output.stderr);
        assert!(told.contains("-- lease_db -"), "{told}");
        for line in told.lines() {
            assert!(line.chars().count() <= width, "{line:?} at {width}");
        }
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let coloured = on_a_terminal(&[]);
    assert!(coloured.contains("\u{1b}[36m"), "{coloured}");
    let plain = on_a_terminal(&[("NO_COLOR", "1")]);
    assert!(!plain.contains('\u{1b}'), "{plain}");
    for line in plain.lines().filter(|line| !line.contains("leasehold run")) {
        assert!(line.chars().count() <= 60, "{line:?}");
    }
    // A program that reads the results gets no colours even then.
    let output = command(&[]).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert_eq!(text(&output.stdout), STORY);
}

/// What the demo tells on a terminal of 60 columns.
fn on_a_terminal(vars: &[(&str, &str)]) -> String {
    use rustix::{pty, termios};
    let master = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
    pty::grantpt(&master).unwrap();
    pty::unlockpt(&master).unwrap();
    let name = pty::ptsname(&master, Vec::new()).unwrap();
    let options = fs::OpenOptions::new().read(true).write(true).to_owned();
    let terminal = options.open(name.to_str().unwrap()).unwrap();
    let mut size = termios::tcgetwinsize(&terminal).unwrap();
    (size.ws_col, size.ws_row) = (60, 24);
    termios::tcsetwinsize(&terminal, size).unwrap();
    let mut command = command(&[]);
    command.env("TERM", "xterm").envs(vars.iter().copied());
    let mut driver = command
        .stdout(Stdio::null())
        .stderr(terminal)
        .spawn()
        .unwrap();
    drop(command);
    let (mut told, mut part) = (Vec::new(), [0; 4096]);
    // A terminal without anybody at its other end is an error, not an end.
    while let Ok(read @ 1..) = rustix::io::read(&master, &mut part) {
        told.extend_from_slice(&part[..read]);
    }
    assert!(driver.wait().unwrap().success());
    text(&told)
}

#[test]
fn a_killed_process_fails_the_demo_loudly() {
    for victim in ["lease_db", "lease_a", "lease_b"] {
        let mut run = Run::until_pause(FROZEN);
        kill_process(run.pid_of(victim), Signal::KILL).unwrap();
        let (code, error) = run.finish();
        assert_eq!(code, Some(125), "{error}");
        let line = error.lines().last().unwrap_or_default();
        assert!(line.starts_with("error: "), "{line}");
        let named = line.contains(victim) || (victim == "lease_db" && line.contains("store"));
        assert!(named, "{victim}: {line}");
    }
}

#[test]
fn a_process_that_hangs_is_not_waited_for_without_a_limit() {
    let hung = ["lease_db", "lease_b"].map(|victim| {
        std::thread::spawn(move || {
            let mut run = Run::until_pause(FROZEN);
            kill_process(run.pid_of(victim), Signal::STOP).unwrap();
            run.finish()
        })
    });
    for run in hung {
        let (code, error) = run.join().unwrap();
        assert_eq!(code, Some(125), "{error}");
        assert!(error.contains("did not answer"), "{error}");
    }
}

#[test]
fn a_freeze_that_somebody_ended_is_no_freeze() {
    let mut run = Run::until_pause(FROZEN);
    let a = run.pid_of("lease_a");
    assert_eq!(state(a), Some('T'), "SIGSTOP is real");
    kill_process(a, Signal::CONT).unwrap();
    let (code, error) = run.finish();
    assert_eq!(code, Some(125), "{error}");
    assert!(error.contains("lease_a was to be frozen"), "{error}");
}

#[test]
fn kill_9_of_the_driver_leaves_no_process_not_even_a_frozen_one() {
    // Orphans of this session come to us. Otherwise the kernel itself wakes a frozen one, and hides the fault.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let mut run = Run::until_pause(FROZEN);
    assert_eq!(state(run.pid_of("lease_a")), Some('T'));
    run.driver.kill().unwrap();
    run.driver.wait().unwrap();
    run.nobody_is_left();
}

#[test]
fn signals_end_the_demo_and_all_its_processes() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut run = Run::until_pause(FROZEN);
        kill_process(Pid::from_child(&run.driver), signal).unwrap();
        let status = run.driver.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{:?}", status.signal());
        run.nobody_is_left();
    }
}

/// As `demo | head -1`.
#[test]
fn a_reader_that_has_seen_enough_ends_the_demo() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(&["-q"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_full_standard_output_is_one_clear_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let output = command(&["-q"]).stdout(full.unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let error = text(&output.stderr);
    assert!(error.contains("standard output"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn the_story_is_true_on_a_real_store_and_leaves_it_clean() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}/leases.db", folder.path().display());
    let output = demo(&["--store", &store]);
    let told = text(&output.stderr);
    assert_eq!(text(&output.stdout), STORY, "{told}");
    assert!(told.contains("deleted again"), "{told}");
    is_clean(&store);
}

#[test]
fn an_interrupted_story_leaves_a_real_store_clean_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}/leases.db", folder.path().display());
    let mut run = Run::start(&["--store", &store]);
    read_until(&mut run.stderr, "SIGSTOP");
    run.meet(&["lease_a", "lease_b"]);
    kill_process(Pid::from_child(&run.driver), Signal::INT).unwrap();
    assert_eq!(run.driver.wait().unwrap().code(), Some(130));
    run.nobody_is_left();
    is_clean(&store);
}

/// One lease that was given back, and neither of its reports.
fn is_clean(store: &str) {
    let ask = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(args).args(["--store", store, "--json"]);
        command.output().unwrap()
    };
    let list = text(&ask(&["list"]).stdout);
    let lease: serde_json::Value = serde_json::from_str(&list).expect(&list);
    assert_eq!(lease["released"], true, "{lease}");
    let name = lease["lease"].as_str().unwrap();
    for report in ["plain_report", "fenced_report"] {
        let got = ask(&["get", &format!("{name}/{report}")]);
        assert_eq!(got.status.code(), Some(1), "{}", text(&got.stdout));
    }
}

#[test]
fn a_store_that_cannot_be_used_is_refused_with_what_can() {
    for (args, needed) in [
        (&["--store", "memory:"][..], "sqlite:PATH"),
        (&["--store", "redis://h"], "sqlite:PATH"),
        (&["--split", "--store", "sqlite:x.db"], "--split"),
        (&["--step", "--store", "sqlite:x.db"], "--step"),
    ] {
        let output = demo(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = text(&output.stderr);
        assert!(error.contains(needed), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(text(&output.stdout), "");
    }
}

/// Who has a store in his environment still sees the demo that touches nothing.
#[test]
fn the_store_of_the_environment_is_left_alone() {
    let output = command(&["-q"])
        .env("LEASEHOLD_STORE", "nonsense")
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), STORY);
}

#[test]
fn the_inner_stages_are_not_for_people() {
    for args in [&["demo-db"][..], &["demo-node", "lease_a", "1"]] {
        let output = Command::new(BINARY).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        let error = text(&output.stderr);
        assert!(error.contains("started by `leasehold demo`"), "{error}");
    }
}

const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("demo").args(args).stdin(Stdio::null());
    for name in [
        "LC_ALL",
        "LC_CTYPE",
        "LANG",
        "COLUMNS",
        "LEASEHOLD_STORE",
        "CLICOLOR_FORCE",
        "NO_COLOR",
    ] {
        command.env_remove(name);
    }
    command
}

fn demo(args: &[&str]) -> Output {
    command(args).output().expect("the demo runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A demo that waits at a pause, with its three processes.
struct Run {
    driver: Child,
    stderr: ChildStderr,
    cast: Vec<(String, Pid)>,
}

impl Run {
    fn start(args: &[&str]) -> Self {
        let mut driver = command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = driver.stderr.take().unwrap();
        Self {
            driver,
            stderr,
            cast: Vec::new(),
        }
    }

    fn until_pause(number: usize) -> Self {
        let mut run = Self::start(&["--step"]);
        for passed in 1..=number {
            read_until(&mut run.stderr, "Enter: go on");
            if passed < number {
                let mut keys = run.driver.stdin.as_ref().unwrap();
                keys.write_all(b"\n").unwrap();
            }
        }
        run.meet(&["lease_a", "lease_b", "lease_db"]);
        run
    }

    fn meet(&mut self, names: &[&str]) {
        self.cast = children(Pid::from_child(&self.driver));
        let found: Vec<&str> = self.cast.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, names);
    }

    fn pid_of(&self, name: &str) -> Pid {
        let found = self.cast.iter().find(|(other, _)| other == name);
        found.expect(name).1
    }

    /// Goes on to the end; answers the exit code and what was said.
    fn finish(&mut self) -> (Option<i32>, String) {
        drop(self.driver.stdin.take());
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let code = self.driver.wait().unwrap().code();
        self.nobody_is_left();
        (code, said)
    }

    fn nobody_is_left(&self) {
        let since = Instant::now();
        while let Some(name) = self.cast.iter().find(|(name, pid)| is_alive(name, *pid)) {
            assert!(since.elapsed() < Duration::from_secs(10), "{name:?} lives");
            sleep(Duration::from_millis(5));
        }
    }
}

/// A failed test leaves nobody behind either.
impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        for (_, pid) in self.cast.iter().filter(|(name, pid)| is_alive(name, *pid)) {
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

fn read_until(from: &mut impl Read, end: &str) {
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(end.as_bytes()) {
        let read = from.read(&mut byte).unwrap();
        assert_eq!(read, 1, "ended early: {}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
}

/// The processes whose parent is `parent`, by the name that `ps` shows.
fn children(parent: Pid) -> Vec<(String, Pid)> {
    let parent = parent.as_raw_nonzero().get();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut found: Vec<(String, Pid)> = all
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| parent_of(*pid) == Some(parent))
        .map(|pid| (name_of(pid).unwrap_or_default(), pid))
        .collect();
    found.sort_by(|(one, _), (next, _)| one.cmp(next));
    found
}

fn name_of(pid: Pid) -> Option<String> {
    let pid = pid.as_raw_nonzero();
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = words.split(|byte| *byte == 0).next()?;
    let short = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let first = String::from_utf8(first.to_vec()).ok()?;
    assert_eq!(first, short.trim_end(), "ps and top agree");
    Some(first)
}

fn stat(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}

fn state(pid: Pid) -> Option<char> {
    stat(pid)?.chars().next()
}

fn parent_of(pid: Pid) -> Option<i32> {
    stat(pid)?.split(' ').nth(1)?.parse().ok()
}

/// A zombie is dead; a number may have gone to somebody else.
fn is_alive(name: &str, pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
        && fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
            .is_ok_and(|words| words.starts_with(name.as_bytes()))
}
