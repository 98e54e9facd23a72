//! Signals reach the job, a requested stop leaves it the rest of its grace, and the parent's death ends it (FB-85).

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;

use crate::rig::{BINARY, FAR, Rig, Times, arguments, stat, wait_for};

/// Says the name of every signal it gets; ends at SIGTERM with 9. It starts nothing, as a shell that is stopped while it
/// starts something does not look stopped.
const HEARS: &str = "for s in INT HUP QUIT USR1 USR2 WINCH; do trap \"echo $s >> heard\" $s; done
    trap 'echo TERM >> heard; exit 9' TERM; echo ready > heard; while :; do read x; done";

fn wait_for_line(rig: &Rig, line: &str) {
    wait_for(line, || {
        rig.text("heard").lines().any(|l| l == line).then_some(())
    });
}

fn hears() -> Rig {
    let rig = Rig::spawn(FAR, "", &["sh", "-c", HEARS], |supervisor| {
        supervisor.stdin(Stdio::piped());
    });
    wait_for_line(&rig, "ready");
    rig
}

#[test]
fn signals_are_passed_on() {
    let mut rig = hears();
    let signals = [
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ];
    for (signal, name) in signals {
        rig.signal_driver(signal);
        wait_for_line(&rig, name);
    }
    rig.signal_driver(Signal::TERM);
    assert_eq!(rig.code(), 9);
    assert_eq!(rig.exit()["cause"]["Stop"], "Asked");
}

#[test]
fn a_paused_job_is_still_and_goes_on() {
    let mut rig = hears();
    let child = rig.child();
    let state = |wanted: &'static str| {
        wait_for(wanted, || {
            (stat(child, 3)? == "T")
                .eq(&(wanted == "stopped"))
                .then_some(())
        });
    };
    rig.signal_driver(Signal::TSTP);
    state("stopped");
    rig.signal_driver(Signal::CONT);
    state("running");
    // A paused job hears what may end it.
    rig.signal_driver(Signal::TSTP);
    state("stopped");
    rig.signal_driver(Signal::INT);
    wait_for_line(&rig, "INT");
    rig.signal_driver(Signal::TSTP);
    state("stopped");
    rig.signal_driver(Signal::TERM);
    assert_eq!(rig.code(), 9);
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    // nohup
    let script = "echo ready > heard; sleep 0.6; exit 7";
    let mut rig = Rig::program(
        "nohup",
        |_| {},
        |report| {
            let mut args = vec![BINARY.to_owned()];
            args.extend(arguments(report, FAR, "", &["sh", "-c", script]));
            args
        },
    );
    wait_for_line(&rig, "ready");
    let status = fs::read_to_string(format!("/proc/{}/status", rig.child())).expect("the child");
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(line.expect("a mask").trim(), 16).expect("hex");
    assert_eq!(mask & 1, 1, "the child ignores SIGHUP");
    rig.signal_driver(Signal::HUP);
    assert_eq!(rig.code(), 7);
}

/// A script that tidies up when it is asked to stop; its name is the file it writes to.
const TIDIES: &str = "trap 'sleep 0.3; echo tidy > $0; exit' TERM; echo ready > $0;
    while :; do sleep 0.05; done";

/// Shells, nested so deep, start one `sh -c TIDIES` a file. They die of SIGTERM at once; the others have the rest of the
/// grace.
fn all_tidy_up(start: &str, depth: u32, files: &[&str]) {
    let times = Times { kill: 5000, ..FAR };
    let script = format!(
        "nest() {{ if [ $1 -gt 0 ]; then nest $(($1 - 1)) $2 & else {start} -c \"$0\" $2 & fi; wait; }}
         for file in {}; do nest {depth} $file & done; wait",
        files.join(" ")
    );
    let mut rig = Rig::spawn(times, "", &["sh", "-c", &script, TIDIES], |_| {});
    wait_for("all of the job", || {
        let ready = files.iter().all(|file| rig.text(file) == "ready\n");
        ready.then_some(())
    });
    rig.signal_driver(Signal::TERM);
    assert_eq!(rig.code(), 143, "{start}");
    for file in files {
        assert_eq!(rig.text(file), "tidy\n", "{start}");
    }
}

#[test]
fn the_grace_is_for_the_whole_tree() {
    all_tidy_up("sh", 0, &["one"]);
    all_tidy_up("setsid sh", 0, &["one"]);
}

#[test]
fn orphans_of_the_first_sigterm_are_asked_too() {
    for _ in 0..3 {
        all_tidy_up("setsid sh", 6, &["one", "two", "three", "four", "five"]);
    }
}

#[test]
fn a_job_that_does_not_stop_when_asked_is_killed() {
    let times = Times {
        kill: 800,
        stop: 800,
        ..FAR
    };
    // SIGTERM comes once: to some programs a second one means "at once".
    let job = "exec 3<&0; for i in 1 2 3 4; do
        (trap \"echo TERM >> heard$i\" TERM; echo ready > heard$i; while :; do read x <&3; done) &
        done; trap '' TERM; while :; do wait; done";
    let mut rig = Rig::spawn(times, "walk", &["sh", "-c", job], |supervisor| {
        supervisor.stdin(Stdio::piped());
    });
    let stdin = rig.driver.stdin.take();
    let files = ["heard1", "heard2", "heard3", "heard4"];
    wait_for("all of the job", || {
        let ready = files.iter().all(|file| rig.text(file) == "ready\n");
        ready.then_some(())
    });
    rig.signal_driver(Signal::TERM);
    assert_eq!(rig.code(), 137);
    let exit = rig.exit();
    assert_eq!(
        (&exit["cause"]["Stop"], &exit["verified"]),
        (&"Asked".into(), &true.into())
    );
    for file in files {
        assert_eq!(rig.text(file), "ready\nTERM\n", "{file}");
    }
    drop(stdin);
}

#[test]
fn the_job_dies_with_the_parent_of_the_supervisor() {
    // FB-85
    let mut rig = Rig::program(
        "sh",
        |_| {},
        |report| {
            let run = "\"$0\" \"$@\" & wait".to_owned();
            let mut args = vec!["-c".to_owned(), run, BINARY.to_owned()];
            args.extend(arguments(report, FAR, "parent", &["sleep", "600"]));
            args
        },
    );
    rig.child();
    rig.driver.kill().expect("the shell is ours");
    rig.end();
    rig.wait_for_death();
    wait_for("the end", || {
        rig.text("report").contains("\nended ").then_some(())
    });
    assert_eq!(rig.exit()["cause"]["Stop"], "ParentDied");
}

#[test]
fn the_guard_and_the_child_shrug_off_a_signal_meant_for_the_supervisor() {
    let mut rig = hears();
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        crate::rig::send(rig.guard().unsigned_abs(), signal);
    }
    rig.signal_driver(Signal::USR1);
    wait_for_line(&rig, "USR1");
    rig.signal_driver(Signal::TERM);
    assert_eq!(rig.code(), 9);
    assert_eq!(rig.text("heard"), "ready\nUSR1\nTERM\n");
}
