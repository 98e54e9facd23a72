//! On a terminal the child has the foreground, and it is returned, whatever the child's end (A14).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::rig::{BINARY, FAR, Rig, Times, arguments, send, stat, wait_for};

/// A terminal of its own with a program as the leader of its session, as under a login.
struct Screen {
    rig: Rig,
    keyboard: File,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    /// Runs `sh -c SCRIPT` on it, where `"$@"` is a supervised `sh -c JOB`.
    fn script(shell: &str, times: Times, script: &str, job: &str) -> Screen {
        Screen::new(|report| {
            let mut args = ["--ctty", shell, "-c", script, "sh", BINARY]
                .map(str::to_owned)
                .to_vec();
            args.extend(arguments(report, times, "walk", &["sh", "-c", job]));
            args
        })
    }

    fn new(args: impl FnOnce(&str) -> Vec<String>) -> Screen {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
        grantpt(&master).expect("a pty");
        unlockpt(&master).expect("a pty");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let name = name.to_str().expect("UTF-8").to_owned();
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(&name)
                .expect("the terminal")
        };
        let rig = Rig::program(
            "setsid",
            |leader| {
                leader.stdin(open()).stdout(open()).stderr(open());
            },
            args,
        );
        let shown = Arc::new(Mutex::new(String::new()));
        read_all(master.try_clone().expect("a copy"), Arc::clone(&shown));
        Screen {
            rig,
            keyboard: File::from(master),
            shown,
        }
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal is there");
    }

    fn wait_to_show(&self, text: &str) {
        wait_for(text, || self.text().contains(text).then_some(()));
    }

    fn text(&self) -> String {
        self.shown.lock().expect("no panic in the reader").clone()
    }

    /// The group that has the foreground, as the process sees it.
    fn foreground(&self) -> i32 {
        let leader = self.rig.driver.id().cast_signed();
        stat(leader, 8)
            .expect("the leader lives")
            .parse()
            .expect("a group")
    }

    /// The group of the shell and the supervisor.
    fn home(&self) -> i32 {
        self.rig.driver.id().cast_signed()
    }

    fn wait_for_foreground(&self, group: i32) {
        wait_for(
            &format!("the foreground of {group} {}", self.text()),
            || (self.foreground() == group).then_some(()),
        );
    }
}

fn read_all(master: OwnedFd, shown: Arc<Mutex<String>>) {
    thread::spawn(move || {
        let mut master = File::from(master);
        let mut bytes = [0_u8; 1024];
        // An error: the last process has closed the terminal.
        while let Ok(size @ 1..) = master.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..size]);
            shown.lock().expect("no panic in the test").push_str(&text);
        }
    });
}

/// After the job the shell reads a line too: it can, if it has the foreground.
const THEN_READ: &str = "\"$@\"; echo code=$?; read line; echo shell got $line";

#[test]
fn the_child_has_the_foreground_and_gives_it_back() {
    let job = "read line; echo child got $line; grep SigBlk /proc/self/status; sleep 600 & exit 3";
    let mut screen = Screen::script("sh", FAR, THEN_READ, job);
    let child = screen.rig.child();
    screen.wait_for_foreground(child);
    screen.type_in("one\n");
    screen.wait_to_show("child got one");
    screen.wait_to_show("SigBlk:\t0000000000000000");
    screen.wait_to_show("code=3");
    assert_eq!(screen.foreground(), screen.home());
    screen.type_in("two\n");
    screen.wait_to_show("shell got two");
    assert_eq!(screen.rig.code(), 0);
}

#[test]
fn a_child_that_reads_nothing_has_the_foreground_too() {
    let mut screen = Screen::script("sh", FAR, "\"$@\"; echo code=$?", "exec sleep 600");
    screen.wait_for_foreground(screen.rig.child());
    screen.type_in("\x03");
    screen.wait_to_show("code=130");
    assert_eq!(screen.rig.code(), 0);
}

#[test]
fn the_foreground_comes_back_from_a_child_that_was_killed() {
    let near = Times {
        stop: 400,
        kill: 500,
        every: 100,
        until: 1000,
    };
    let job = "trap '' TERM; stty raw -echo; echo raw; sleep 600; :";
    let mut screen = Screen::script("sh", near, THEN_READ, job);
    screen.wait_to_show("raw");
    screen.wait_to_show("code=137");
    assert_eq!(screen.foreground(), screen.home());
    let modes = tcgetattr(&screen.keyboard)
        .expect("the terminal")
        .local_modes;
    assert!(
        modes.contains(LocalModes::ECHO | LocalModes::ICANON),
        "{modes:?}"
    );
    screen.type_in("two\n");
    screen.wait_to_show("shell got two");
    assert_eq!(screen.rig.code(), 0);
}

#[test]
fn the_foreground_comes_back_when_the_guard_was_killed() {
    let mut screen = Screen::script(
        "sh",
        FAR,
        THEN_READ,
        "stty raw -echo; echo raw; sleep 600; :",
    );
    screen.wait_to_show("raw");
    send(screen.rig.guard().unsigned_abs(), Signal::KILL);
    screen.wait_to_show("code=137");
    assert_eq!(screen.foreground(), screen.home());
    screen.type_in("two\n");
    screen.wait_to_show("shell got two");
    assert_eq!(screen.rig.code(), 0);
}

#[test]
fn the_foreground_comes_back_when_the_supervisor_was_killed() {
    // The shell goes on at once; until the guard is done it cannot read.
    let script = "\"$@\" < /dev/tty & wait $!; echo code=$?; until read line; do sleep 0.1; done;
        echo shell got $line";
    let mut screen = Screen::script("sh", FAR, script, "echo ready; sleep 600; :");
    screen.wait_to_show("ready");
    screen.wait_for_foreground(screen.rig.child());
    let supervisor = stat(screen.rig.guard(), 4).expect("the guard lives");
    send(supervisor.parse().expect("a pid"), Signal::KILL);
    screen.wait_to_show("code=137");
    screen.wait_for_foreground(screen.home());
    screen.type_in("two\n");
    screen.wait_to_show("shell got two");
    assert_eq!(screen.rig.code(), 0);
}

#[test]
fn ctrl_c_ends_the_child_and_ctrl_z_does_not_stop_it() {
    let job = "echo ready; read line; echo child got $line; sleep 600; :";
    let mut screen = Screen::script("sh", FAR, THEN_READ, job);
    screen.wait_to_show("ready");
    screen.type_in("\x1a");
    thread::sleep(Duration::from_millis(300));
    screen.type_in("on\n");
    screen.wait_to_show("child got on");
    screen.type_in("\x03");
    screen.wait_to_show("code=130");
    screen.type_in("two\n");
    screen.wait_to_show("shell got two");
}

#[test]
fn in_a_pipeline_the_child_gets_the_terminal_when_it_asks() {
    let job = "sleep 0.3; read line; echo child got $line";
    let mut screen = Screen::script(
        "sh",
        FAR,
        "\"$@\" | cat; read line; echo shell got $line",
        job,
    );
    let child = screen.rig.child();
    assert_eq!(screen.foreground(), screen.home(), "not before it asks");
    screen.wait_for_foreground(child);
    screen.type_in("one\n");
    screen.wait_to_show("child got one");
    screen.wait_for_foreground(screen.home());
    screen.type_in("two\n");
    screen.wait_to_show("shell got two");
    assert_eq!(screen.rig.code(), 0);
}

#[test]
fn a_job_in_the_background_waits_for_fg() {
    let job = "read line; echo child got $line";
    let script =
        "set -m; \"$@\" & sleep 1; echo fg; fg >/dev/null; read line; echo shell got $line";
    let mut screen = Screen::script("bash", FAR, script, job);
    let child = screen.rig.child();
    wait_for("the stop", || (stat(child, 3)? == "T").then_some(()));
    screen.wait_to_show("fg");
    screen.wait_for_foreground(child);
    screen.type_in("one\n");
    screen.wait_to_show("child got one");
    screen.type_in("two\n");
    screen.wait_to_show("shell got two");
    assert_eq!(screen.rig.code(), 0);
}
