//! `acquire`, `renew`, `release`: a lease held by hand, by scripts and units.

mod common;

use std::{fs, process::Stdio, thread, time::Duration};

use common::{Place, finish, mode, run};
use serde_json::json;

#[test]
fn what_acquire_prints_a_shell_and_a_unit_can_read() {
    let place = Place::new();
    let ran = place.ok("acquire nightly --ttl 1m");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "LEASEHOLD_LEASE=nightly");
    assert_eq!(lines[1], "LEASEHOLD_TOKEN=1");
    let session = lines[2]
        .strip_prefix("LEASEHOLD_SESSION=")
        .expect("a session");
    assert!(session.len() == 32 && session.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(lines.len(), 3);
}

/// A name with blanks and quotes comes back from the shell as it was.
#[test]
fn a_shell_script_takes_renews_checks_and_releases() {
    let place = Place::new();
    let script = r#"
        lease=$("$0" acquire "it's a job \$HOME" --ttl 1m) || exit
        set -a; eval "$lease"; set +a
        "$0" renew && "$0" check --for 10s && "$0" release && "$0" release
    "#;
    let mut shell = place.command();
    let binary = shell.get_program().to_owned();
    shell = {
        let mut sh = std::process::Command::new("sh");
        sh.env_clear()
            .envs(shell.get_envs().filter_map(|(k, v)| Some((k, v?))));
        sh
    };
    let ran = run(shell.args(["-c", script]).arg(binary), b"");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let name = "it's a job $HOME";
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], format!("{name} renewed for 1m"));
    assert!(
        lines[1].starts_with(&format!("ok: token 1 of {name} has ")),
        "{ran:?}"
    );
    assert_eq!(
        lines[2..],
        [
            format!("{name} released"),
            format!("{name} was over already")
        ]
    );
}

#[test]
fn the_json_of_holding() {
    let place = Place::new();
    let mut got = place.json("acquire nightly --ttl 1m --holder a --info 10.0.0.1:80");
    let session = got["session"].take();
    assert_eq!(
        got,
        json!({ "lease": "nightly", "token": "1", "session": null, "holder": "a", "ttl_ms": 60000, "renewed": false })
    );
    let session = session.as_str().expect("a session");
    let key = format!("--token 1 --session {session}");
    assert_eq!(
        place.json(&format!("renew nightly {key} --ttl 2m")),
        json!({ "outcome": "renewed", "lease": "nightly", "token": "1", "ttl_ms": 120_000 })
    );
    let mut valid = place.json("check nightly --token 1 --for 10s");
    let left = valid["remaining_ms"].take().as_u64().expect("a time");
    assert!((60_000..=120_000).contains(&left), "{left}");
    assert_eq!(
        valid,
        json!({ "outcome": "valid", "lease": "nightly", "token": "1", "remaining_ms": null })
    );
    let release = format!("release nightly {key}");
    for outcome in ["released", "already_over"] {
        assert_eq!(
            place.json(&release),
            json!({ "outcome": outcome, "lease": "nightly", "token": "1" })
        );
    }
}

#[test]
fn errors_are_json_too_when_asked_for() {
    let place = Place::new();
    place.acquire("nightly --ttl 1m --holder a");
    let ran = place.run("--json acquire nightly --holder b");
    assert_eq!((ran.code, ran.out.as_str()), (75, ""));
    let mut error: serde_json::Value = serde_json::from_str(&ran.err).expect("JSON");
    assert!(
        error["free_in_ms"]
            .take()
            .as_u64()
            .is_some_and(|ms| ms <= 60_000)
    );
    assert!(
        error["message"]
            .take()
            .as_str()
            .is_some_and(|text| text.contains("held by a"))
    );
    assert_eq!(
        error,
        json!({ "error": "busy", "code": 75, "message": null, "lease": "nightly", "holder": "a", "token": "1", "free_in_ms": null })
    );
    let ran = place.run("--json check nightly --token 2");
    let error: serde_json::Value = serde_json::from_str(&ran.err).expect("JSON");
    assert_eq!(
        error,
        json!({ "error": "refused", "code": 76, "message": "token 2 was never issued", "reason": "never_issued", "token": "2" })
    );
}

/// L3, FB-56: the same name is a stranger; the session is what counts, and it gets the same token.
#[test]
fn the_session_holds_not_the_name() {
    let place = Place::new();
    let (token, session) = place.acquire("nightly --ttl 1m --holder host1");
    let stranger = place.run("acquire nightly --holder host1");
    stranger.fails(
        75,
        "busy: nightly is held by host1 with token 1",
        "another session",
    );
    let again = place.json(&format!(
        "acquire nightly --ttl 2m --holder host1 --session {session}"
    ));
    assert_eq!(
        (again["token"].as_str(), again["renewed"].as_bool()),
        (Some("1"), Some(true))
    );
    assert_eq!(token, 1);
    let mut command = place.command();
    command
        .env("LEASEHOLD_SESSION", &session)
        .args(["acquire", "nightly"]);
    assert!(run(&mut command, b"").out.contains("LEASEHOLD_TOKEN=1\n"));
    let status = place.json("status nightly");
    assert_eq!(status["renewals"], 2);
    // And the longer ttl stands.
    place.ok("check nightly --token 1 --for 65s");
}

/// FB-1, FB-2: releases, expiries and clean-ups in between: tokens only grow.
#[test]
fn tokens_grow_over_releases_expiries_and_collections() {
    let place = Place::new();
    let mut last = 0;
    for round in 0..6 {
        let (token, session) = place.acquire("nightly --ttl 500ms --holder a");
        assert!(token > last, "{token} after {last}");
        last = token;
        if round % 2 == 0 {
            place.ok(&format!(
                "release nightly --token {token} --session {session}"
            ));
        } else {
            thread::sleep(Duration::from_millis(600));
        }
        place.ok("admin gc");
    }
}

/// FB-63, L5, L7: who comes back late changes nothing.
#[test]
fn a_holder_that_comes_back_late_changes_nothing() {
    let place = Place::new();
    let (old, session) = place.acquire("nightly --ttl 500ms --holder a");
    thread::sleep(Duration::from_millis(600));
    let key = format!("nightly --token {old} --session {session}");
    place
        .run(&format!("renew {key}"))
        .fails(76, "refused: token 1 expired", "");
    let (new, _) = place.acquire("nightly --ttl 10m --holder b");
    let before = place.json("status nightly")["renewals"].take();
    place.run(&format!("renew {key} --ttl 1h")).fails(
        76,
        "refused: token 1 is older than 2",
        "granted to b",
    );
    assert_eq!(
        place.ok(&format!("release {key}")).out,
        "nightly was over already\n"
    );
    assert_eq!(
        (new, place.json("status nightly")["renewals"].take()),
        (2, before)
    );
    place.ok("check nightly --token 2 --for 1m");
}

/// A21: of another's live token.
#[test]
fn nobody_releases_or_renews_what_another_session_holds() {
    let place = Place::new();
    place.acquire("nightly --ttl 10m --holder a");
    let stranger = "nightly --token 1 --session 00000000000000000000000000000001";
    for verb in ["release", "renew"] {
        place.run(&format!("{verb} {stranger}")).fails(
            76,
            "refused: token 1 belongs to another session, of a",
            "",
        );
        let never = stranger.replace("--token 1", "--token 9");
        place
            .run(&format!("{verb} {never}"))
            .fails(76, "refused: token 9 was never issued", "");
    }
    place.ok("check nightly --token 1");
}

#[test]
fn a_session_file_keeps_the_key_off_the_screen() {
    let place = Place::new();
    let ran = place.ok("acquire nightly --ttl 1m --session-file key");
    assert!(!ran.out.contains("SESSION"), "{ran:?}");
    assert_eq!(mode(&place.path("key")), 0o600);
    assert!(
        place
            .ok("acquire nightly --session-file key")
            .out
            .contains("LEASEHOLD_TOKEN=1\n")
    );
    place.ok("renew nightly --token 1 --session-file key");
    place.ok("release nightly --token 1 --session-file key");
    // A used key opens the next tenure, too.
    assert!(
        place
            .ok("acquire nightly --session-file key")
            .out
            .contains("LEASEHOLD_TOKEN=2\n")
    );

    for (content, why) in [
        ("", "32 hex digits"),
        ("feed\n", "32 hex digits"),
        (&"f".repeat(500), "32 hex digits"),
    ] {
        fs::write(place.path("bad"), content).expect("it can be written");
        place
            .run("renew nightly --token 2 --session-file bad")
            .fails(2, "error: bad: session", why);
    }
    fs::write(place.path("bad"), b"\xff\xfe").expect("it can be written");
    place
        .run("renew nightly --token 2 --session-file bad")
        .fails(2, "error: ", "bad");
    place
        .run("renew nightly --token 2 --session-file none")
        .fails(2, "error: ", "none");
    place
        .run("acquire nightly --session-file /proc/none")
        .fails(2, "error: ", "/proc/none");
}

/// A token that nobody could read is no use: the lease is given back.
#[test]
fn a_lease_whose_token_cannot_be_printed_is_given_back() {
    let place = Place::new();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let child = place
        .command()
        .args(["acquire", "nightly", "--ttl", "10m"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    finish(child).fails(
        125,
        "error: standard output cannot be written, so the lease was given back",
        "",
    );
    assert_eq!(place.json("status nightly")["state"], "free");
}
