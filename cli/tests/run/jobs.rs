//! What the command gets and how it ends.

use std::{fs, thread::sleep, time::Duration};

use rustix::process::Signal;

use crate::{
    common::Place,
    rig::{Running, eventually},
};

/// Two shells at once: one after the other, with two tokens.
#[test]
fn two_at_once_run_one_after_the_other_with_growing_tokens() {
    let place = Place::new();
    let script = format!(
        "echo begin $LEASEHOLD_TOKEN >> {0}; sleep 0.5; echo end $LEASEHOLD_TOKEN >> {0}",
        place.path("log").display()
    );
    let mut both = [(); 2].map(|()| Running::start(&place, "nightly --wait 1m", &script));
    assert_eq!(both.each_mut().map(Running::code), [0, 0]);
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert_eq!(log, "begin 1\nend 1\nbegin 2\nend 2\n");
}

/// FB-83.
#[test]
fn the_commands_own_end_is_the_exit_code() {
    let place = Place::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill $$", 143),
    ] {
        let ran = place.args(["run", "codes", "--", "sh", "-c", script]);
        assert_eq!((ran.code, ran.err.as_str()), (code, ""), "{script}");
    }
    assert_eq!(
        place.args(["run", "codes", "--", "no-such-command"]).code,
        127
    );
    assert_eq!(place.args(["run", "codes", "--", "/etc/passwd"]).code, 126);
}

#[test]
fn standard_streams_are_the_commands() {
    let place = Place::new();
    let ran = crate::common::run(
        place
            .command()
            .args(["run", "streams", "--", "sh", "-c", "cat; echo e >&2"]),
        b"in",
    );
    assert_eq!(
        (ran.out.as_str(), ran.err.as_str(), ran.code),
        ("in", "e\n", 0)
    );
}

/// FB-87; A21: the session is the key to renew and release, and stays with the supervisor.
#[test]
fn the_command_gets_the_token_and_never_a_session() {
    let place = Place::new();
    let mut command = place.command();
    command.env("LEASEHOLD_SESSION", "00000000000000000000000000000001");
    let ran = crate::common::run(
        command.args(["run", "env", "--holder", "h1", "--once", "k", "--", "env"]),
        b"",
    );
    let mut ours: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.starts_with("LEASEHOLD_"))
        .collect();
    ours.sort_unstable();
    let names: Vec<&str> = ours
        .iter()
        .filter_map(|line| line.split('=').next())
        .collect();
    assert_eq!(
        names,
        [
            "LEASEHOLD_HOLDER",
            "LEASEHOLD_IDEMPOTENCY_KEY",
            "LEASEHOLD_LEASE",
            "LEASEHOLD_SOCKET",
            "LEASEHOLD_STORE",
            "LEASEHOLD_TOKEN"
        ]
    );
    for line in [
        "LEASEHOLD_HOLDER=h1",
        "LEASEHOLD_IDEMPOTENCY_KEY=env:k",
        "LEASEHOLD_LEASE=env",
        "LEASEHOLD_TOKEN=1",
    ] {
        assert!(ours.contains(&line), "{line}: {ours:?}");
    }
    let socket = ours
        .iter()
        .find_map(|line| line.strip_prefix("LEASEHOLD_SOCKET="))
        .expect("a socket");
    assert!(
        !std::path::Path::new(socket).exists(),
        "left behind: {socket}"
    );
}

#[test]
fn check_inside_the_job_asks_the_supervisor() {
    let place = Place::new();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "{leasehold} check inside || exit 1; {leasehold} check inside --for 1h && exit 2; \
         {leasehold} check inside --token 9 && exit 3; {leasehold} check inside --for 1s"
    );
    let ran = place.args(["run", "inside", "--", "sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_busy_lease_is_told_from_a_failure() {
    let place = Place::new();
    let _holder = Running::start(&place, "busy --holder h1", "sleep 60");
    eventually("held", || place.run("check busy --token 1").code == 0);
    let ran = place.args(["run", "busy", "--no-wait", "--", "true"]);
    ran.fails(75, "busy: ", "held by h1");
    let ran = place.args([
        "run",
        "busy",
        "--wait",
        "200ms",
        "--busy-exit-code",
        "9",
        "--",
        "true",
    ]);
    assert_eq!((ran.code, ran.out.as_str()), (9, ""));
    assert!(
        ran.err.contains("waiting: busy is held by h1 with token 1"),
        "{ran:?}"
    );
}

/// FB-62, FB-61: the next one starts soon after, and not before the last write.
#[test]
fn sigterm_goes_to_the_command_and_the_lease_to_the_next() {
    let place = Place::new();
    let log = place.path("log");
    let drains = format!(
        "trap 'sleep 1; echo last >> {0}; exit 0' TERM; echo first >> {0}; while :; do sleep 0.05; done",
        log.display()
    );
    let mut a = Running::start(&place, "term", &drains);
    eventually("a works", || log.exists());
    let mut b = Running::start(&place, "term", &format!("echo next >> {}", log.display()));
    sleep(Duration::from_millis(300));
    a.signal(Signal::TERM);
    assert_eq!((a.code(), b.code()), (0, 0));
    assert_eq!(fs::read_to_string(&log).unwrap(), "first\nlast\nnext\n");
    assert!(place.run("history term").out.contains("released"));
}

#[test]
fn a_signal_while_waiting_leaves_nothing_behind() {
    let place = Place::new();
    let _holder = Running::start(&place, "wait", "sleep 60");
    eventually("held", || place.run("check wait --token 1").code == 0);
    let mut waiting = Running::start(&place, "wait", "true");
    sleep(Duration::from_millis(500));
    waiting.signal(Signal::INT);
    assert_eq!(waiting.code(), 130);
    assert!(place.run("status wait").out.contains('1'));
}

/// FB-69: it contends again, until it is told to stop.
#[test]
fn repeat_contends_again_after_every_end() {
    let place = Place::new();
    let log = place.path("log");
    let script = format!("echo $LEASEHOLD_TOKEN >> {}; exit 1", log.display());
    let mut job = Running::start(&place, "again --repeat", &script);
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    eventually("three tenures", || lines().lines().count() >= 3);
    job.signal(Signal::TERM);
    job.code();
    assert!(lines().starts_with("1\n2\n3\n"));
}

/// FB-35: a job that makes no progress gives its lease up, and is stopped.
#[test]
fn a_probe_that_fails_gives_the_lease_up() {
    let place = Place::new();
    let sign = place.path("alive");
    fs::write(&sign, "").unwrap();
    let mut command = place.command();
    let probe = format!("test -e {}", sign.display());
    command.args([
        "run", "stuck", "--ttl", "3s", "--probe", &probe, "--", "sleep", "60",
    ]);
    let mut child = command.spawn().expect("leasehold starts");
    sleep(Duration::from_secs(6));
    assert!(child.try_wait().unwrap().is_none(), "it made progress");
    fs::remove_file(&sign).unwrap();
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(124));
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_would() {
    let place = Place::new();
    let ran = place.args(["run", "bad", "--ttl", "3s", "--grace", "5s", "--", "true"]);
    ran.fails(2, "error: ", "the smallest ttl that would do is");
    place
        .args(["run", "bad", "--ttl", "2h", "--", "true"])
        .fails(2, "error: ", "1s to 1h");
    assert_eq!(place.args(["run", "bad"]).code, 2);
    assert_eq!(
        place
            .args(["run", "bad", "--once", "a\nb", "--", "true"])
            .code,
        2
    );
    assert_eq!(place.run("list --json").out, "");
}
