//! The ledger: work that is done once (INV-25).

use std::fs;

use crate::{
    common::Place,
    rig::{Running, eventually},
};

/// Five hosts' cron entries that start at once run the job once.
#[test]
fn of_five_that_start_at_once_one_does_the_work() {
    let place = Place::new();
    let log = place.path("log");
    let script = format!("echo ran >> {}; sleep 0.5", log.display());
    let mut all = [(); 5].map(|()| Running::start(&place, "nightly --once 2026-11-30", &script));
    assert_eq!(all.each_mut().map(Running::code), [0; 5]);
    assert_eq!(fs::read_to_string(&log).unwrap(), "ran\n");
    let ran = place.args(["run", "nightly", "--once", "2026-11-30", "--", "false"]);
    assert_eq!(ran.code, 0);
    assert!(
        ran.err.contains("2026-11-30 of nightly was done by") && ran.err.contains("nothing to do"),
        "{ran:?}"
    );
    assert_eq!(
        place
            .args([
                "run",
                "nightly",
                "--once",
                "2026-12-01",
                "--",
                "sh",
                "-c",
                "exit 7"
            ])
            .code,
        7
    );
}

#[test]
fn a_failed_run_is_run_again_by_the_next() {
    let place = Place::new();
    let run = |script: &str| place.args(["run", "job", "--once", "k", "--", "sh", "-c", script]);
    assert_eq!(run("exit 3").code, 3);
    assert_eq!(run("echo second").out, "second\n");
    assert_eq!(run("echo third").out, "");
}

/// I6: a crash leaves the work unfinished; the larger token takes it over.
#[test]
fn work_of_a_killed_holder_is_taken_over() {
    let place = Place::new();
    let begun = place.path("begun");
    let script = format!("touch {}; sleep 60", begun.display());
    let mut killed = Running::start(&place, "job --ttl 2s --once k", &script);
    eventually("begun", || begun.exists());
    killed.child.kill().unwrap();
    killed.code();
    let ran = place.args([
        "run",
        "job",
        "--once",
        "k",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_TOKEN",
    ]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "2\n"), "{ran:?}");
    assert!(
        ran.err
            .contains("begun under token 1 and not finished: it is run again"),
        "{ran:?}"
    );
}

#[test]
fn at_most_once_never_runs_unfinished_work_again() {
    let place = Place::new();
    let begun = place.path("begun");
    let script = format!("touch {}; sleep 60", begun.display());
    let mut killed = Running::start(&place, "job --ttl 2s --at-most-once k", &script);
    eventually("begun", || begun.exists());
    killed.child.kill().unwrap();
    killed.code();
    for _ in 0..2 {
        let ran = place.args([
            "run",
            "job",
            "--at-most-once",
            "k",
            "--",
            "sh",
            "-c",
            "echo no",
        ]);
        assert_eq!((ran.code, ran.out.as_str()), (77, ""), "{ran:?}");
        assert!(
            ran.err.contains("whether it was done is unknown"),
            "{ran:?}"
        );
    }
    let ran = place.args(["run", "job", "--at-most-once", "k2", "--", "true"]);
    assert_eq!(ran.code, 0);
}

/// One who waits for the lease learns that the work is done, and goes.
#[test]
fn a_waiter_goes_when_the_work_is_done() {
    let place = Place::new();
    let go = place.path("go");
    let script = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let mut worker = Running::start(&place, "job --once k", &script);
    eventually("held", || place.run("check job --token 1").code == 0);
    let mut waiter = Running::start(&place, "job --once k", "exit 9");
    std::thread::sleep(std::time::Duration::from_millis(500));
    fs::write(&go, "").unwrap();
    assert_eq!((worker.code(), waiter.code()), (0, 0));
}
