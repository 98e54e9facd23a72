//! INV-32: nothing of a tenure is alive when the next one begins, whatever happens to its supervisor.

use std::{process::Command, thread::sleep, time::Duration};

use rustix::process::Signal;

use crate::{
    common::Place,
    rig::{Running, beats, eventually, times},
};

/// A job with a child that ignores SIGTERM, one in a session of its own, and one that forked twice; all of them beat.
fn family(place: &Place, word: &str) -> String {
    let beat = beats(&place.path("beats"), word);
    format!("(setsid sh -c \"{beat}\" &) ; setsid sh -c \"{beat}\" & {beat}")
}

/// Hurts a holder, lets a second one take over, and looks at the order of their beats.
fn nobody_overlaps(hurt: impl FnOnce(&Running, &Place)) {
    let place = Place::new();
    let file = place.path("beats");
    let a = Running::start(&place, "job --ttl 3s", &family(&place, "a"));
    eventually("a beats", || times(&file, "a").len() > 10);
    let b = Running::start(&place, "job --ttl 3s", &beats(&file, "b"));
    sleep(Duration::from_millis(500));
    assert!(times(&file, "b").is_empty(), "b does not hold yet");
    hurt(&a, &place);
    eventually("b beats", || times(&file, "b").len() > 10);
    assert_eq!(a.left(), [0; 0], "alive after the takeover");
    let (last, first) = (
        times(&file, "a").into_iter().max(),
        times(&file, "b").into_iter().min(),
    );
    assert!(last < first, "a beat after b began: {last:?} {first:?}");
    drop(b);
}

/// FB-79, H6.
#[test]
fn a_killed_supervisor_takes_its_job_along() {
    nobody_overlaps(|a, _| a.signal(Signal::KILL));
}

/// FB-32, FB-79, H6: nothing in a stopped supervisor can help; its guard does.
#[test]
fn a_stopped_supervisor_does_not_keep_its_job_alive() {
    nobody_overlaps(|a, _| a.signal(Signal::STOP));
}

/// FB-17, FB-84.
#[test]
fn a_lease_that_is_taken_away_ends_the_job() {
    nobody_overlaps(|_, place| {
        place.ok("admin force-release job");
    });
}

/// FB-24, A8: a stopped process in the middle of a commit keeps the store from answering; the job is dead in time.
#[test]
fn a_silent_store_ends_the_job_in_time() {
    let place = Place::new();
    let file = place.path("beats");
    let mut a = Running::start(&place, "job --ttl 3s", &family(&place, "a"));
    eventually("a beats", || times(&file, "a").len() > 10);
    let lock = place.path("leases.db.lock");
    let mut blocker = Command::new("flock")
        .arg(&lock)
        .args(["sleep", "20"])
        .spawn()
        .expect("flock runs");
    sleep(Duration::from_millis(200));
    let from = times(&file, "a").into_iter().max().expect("a beat");
    assert_eq!(a.code(), 124);
    assert_eq!(a.left(), [0; 0]);
    let last = times(&file, "a").into_iter().max().expect("a beat");
    assert!(
        last - from < 3_000_000_000,
        "it went on for longer than the ttl: {} ns",
        last - from
    );
    blocker.kill().unwrap();
    blocker.wait().unwrap();
}

/// FB-85.
#[test]
fn the_job_dies_with_the_process_that_started_it() {
    let place = Place::new();
    let file = place.path("beats");
    let script = format!(
        "{} run orphan --ttl 3s -- sh -c '{}' & wait",
        env!("CARGO_BIN_EXE_leasehold"),
        beats(&file, "a").replace('\'', "'\\''")
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .env("LEASEHOLD_STORE", place.url());
    let mut parent = shell.spawn().expect("sh starts");
    eventually("it beats", || times(&file, "a").len() > 5);
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the lease is free", || {
        place.run("acquire orphan").code == 0
    });
    let beaten = times(&file, "a").len();
    sleep(Duration::from_millis(500));
    assert_eq!(times(&file, "a").len(), beaten, "still alive");
}

/// `--on-lost ignore` is the only way to go on, and it says so.
#[test]
fn ignoring_a_loss_is_possible_and_said() {
    let place = Place::new();
    let go = place.path("go");
    let script = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let mut job = Running::start(&place, "job --ttl 2s --on-lost ignore", &script);
    eventually("held", || place.run("check job --token 1").code == 0);
    place.ok("admin force-release job --now");
    sleep(Duration::from_secs(3));
    assert!(job.child.try_wait().unwrap().is_none(), "it goes on");
    std::fs::write(&go, "").unwrap();
    assert_eq!(job.code(), 0);
}
