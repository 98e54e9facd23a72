//! `acquire --wait`: who waits is served in time, and leaves nothing behind when it is told to stop.

mod common;

use std::{process::Stdio, thread, time::Duration};

use common::{Place, finish};

/// FB-59: a holder that died and came back waits for its own old promise, and gets a larger token.
#[test]
fn a_restarted_holder_waits_and_gets_a_larger_token() {
    let place = Place::new();
    place.acquire("nightly --ttl 4s --holder a");
    place
        .run("acquire nightly --holder a")
        .fails(75, "busy: ", "nightly");
    let ran = place.run("acquire nightly --holder a --wait 30s");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("LEASEHOLD_TOKEN=2\n"), "{ran:?}");
    assert!(
        ran.err
            .starts_with("waiting: nightly is held by a with token 1"),
        "{ran:?}"
    );
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

/// FB-86: a unit that takes with a bounded wait, and another that gives back by token.
#[test]
fn a_waiter_is_served_when_the_holder_releases() {
    let place = Place::new();
    let (token, session) = place.acquire("nightly --ttl 10m --holder a");
    let waiter = place
        .command()
        .args(["acquire", "nightly", "--holder", "b", "--wait", "50s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    thread::sleep(Duration::from_millis(300));
    place.ok(&format!(
        "release nightly --token {token} --session {session}"
    ));
    let ran = finish(waiter);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("LEASEHOLD_TOKEN=2\n"), "{ran:?}");
}

#[test]
fn a_wait_ends_and_the_busy_code_is_the_users() {
    let place = Place::new();
    place.acquire("nightly --ttl 10m --holder a");
    let ran = place.run("acquire nightly --holder b --wait 300ms");
    assert_eq!(ran.code, 75, "{ran:?}");
    assert!(
        ran.err
            .lines()
            .last()
            .is_some_and(|line| line.starts_with("busy: ")),
        "{ran:?}"
    );
    place
        .run("acquire nightly --no-wait --busy-exit-code 3")
        .fails(3, "busy: ", "held by a");
}

/// L9: a signal leaves no lease behind that nobody knows of.
#[test]
fn a_waiter_that_is_told_to_stop_leaves_nothing_behind() {
    let place = Place::new();
    let (_, session) = place.acquire("nightly --ttl 10m --holder a");
    for signal in ["INT", "TERM", "HUP"] {
        let waiter = place
            .command()
            .args(["acquire", "nightly", "--holder", "b", "--wait", "50s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        thread::sleep(Duration::from_millis(300));
        let pid = waiter.id().to_string();
        let kill = std::process::Command::new("kill")
            .args(["-s", signal, &pid])
            .status();
        assert!(kill.is_ok_and(|status| status.success()));
        let ran = finish(waiter);
        let number = match signal {
            "INT" => 2,
            "TERM" => 15,
            _ => 1,
        };
        assert_eq!((ran.code, ran.out.as_str()), (128 + number, ""), "{ran:?}");
    }
    place.ok(&format!("release nightly --token 1 --session {session}"));
    let status = place.json("status nightly");
    assert_eq!(
        (status["state"].as_str(), status["token"].as_str()),
        (Some("free"), Some("1"))
    );
}

/// W4: nobody holds and nobody may yet; and what is over is over, however long the delay runs.
#[test]
fn a_lock_delay_keeps_others_out_and_nobody_in() {
    let place = Place::new();
    place.acquire("nightly --ttl 500ms --lock-delay 5m --holder a");
    thread::sleep(Duration::from_millis(600));
    place
        .run("check nightly --token 1")
        .fails(76, "refused: token 1 expired", "");
    place.run("acquire nightly --holder b").fails(
        75,
        "busy: nobody holds nightly, but its lock delay runs for 4m 5",
        "",
    );
    assert_eq!(place.json("status nightly")["state"], "delayed");
    assert!(place.ok("list").out.contains("in its lock delay"));
}
