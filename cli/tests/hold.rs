//! `acquire`, `renew`, `release`, `check`: a lease held by hand, by scripts and units.

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    process::Stdio,
    thread,
    time::Duration,
};

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
    assert!(
        ran.out.starts_with(&format!(
            "{name} renewed for 1m\nok: token 1 of {name} has 59s left\n"
        )),
        "{}",
        ran.out
    );
    assert!(
        ran.out
            .ends_with(&format!("{name} released\n{name} was over already\n")),
        "{}",
        ran.out
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

/// FB-59: a holder that died and came back waits for its own old promise, and gets a larger token.
#[test]
fn a_restarted_holder_waits_and_gets_a_larger_token() {
    let place = Place::new();
    place.acquire("nightly --ttl 1500ms --holder a");
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

/// The fence's own words (F7), and how much time is left.
#[test]
fn check_tells_why_not() {
    let place = Place::new();
    place
        .run("check nightly --token 1")
        .fails(76, "refused: token 1 was never issued", "");
    let (_, session) = place.acquire("nightly --ttl 10s --holder a");
    assert!(
        place
            .ok("check nightly --token 1")
            .out
            .starts_with("ok: token 1 of nightly has ")
    );
    place.run("check nightly --token 1 --for 1m").fails(
        76,
        "refused: token 1 has ",
        "less than 1m",
    );
    place.ok(&format!("release nightly --token 1 --session {session}"));
    place
        .run("check nightly --token 1")
        .fails(76, "refused: token 1 was released", "");
    place.acquire("nightly --ttl 500ms --holder a");
    thread::sleep(Duration::from_millis(600));
    place
        .run("check nightly --token 1")
        .fails(76, "refused: token 1 is older than 2", "");
    place
        .run("check nightly --token 2")
        .fails(76, "refused: token 2 expired", "");
    place
        .run("check nightly --token 3")
        .fails(76, "refused: token 3 was never issued", "");
}

/// T2: a token in the environment is the token of the lease in the environment.
#[test]
fn a_token_of_another_lease_is_not_taken_from_the_environment() {
    let place = Place::new();
    place.acquire("nightly --ttl 1m");
    place.acquire("weekly --ttl 1m");
    let inside = |args: &[&str]| {
        let mut command = place.command();
        command
            .env("LEASEHOLD_LEASE", "nightly")
            .env("LEASEHOLD_TOKEN", "1");
        run(command.args(args), b"")
    };
    assert_eq!(inside(&["check"]).code, 0);
    assert_eq!(inside(&["check", "nightly"]).code, 0);
    inside(&["check", "weekly"]).fails(2, "error: the token of weekly is needed", "--token N");
    inside(&["put", "k", "v", "--lease", "weekly"]).fails(2, "error: the token of weekly", "");
    assert_eq!(inside(&["put", "k", "v", "--lease", "nightly"]).code, 0);
}

/// L9: a signal leaves no lease behind that nobody knows of.
#[test]
fn a_waiter_that_is_told_to_stop_leaves_nothing_behind() {
    let place = Place::new();
    place.acquire("nightly --ttl 2s --holder a");
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
    thread::sleep(Duration::from_millis(2100));
    assert_eq!(place.json("status nightly")["state"], "free");
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

/// Inside `run` the supervisor is asked, not the store: it knows when it will stop the job. No answer is a no (C7, C8).
#[test]
fn inside_a_job_the_supervisor_is_asked() {
    let place = Place::new();
    let socket = place.path("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let supervisor = thread::spawn(move || {
        let replies = [
            "ok 5000\n",
            "short 300\n",
            "lost it was taken by b\n",
            "nonsense\n",
            "",
            "ok 5000",
        ];
        let mut asked = Vec::new();
        for reply in replies {
            let (stream, _) = listener.accept().expect("somebody asks");
            let mut line = String::new();
            let mut reader = BufReader::new(stream);
            reader.read_line(&mut line).expect("a line");
            asked.push(line);
            reader
                .into_inner()
                .write_all(reply.as_bytes())
                .expect("it listens");
        }
        asked
    });
    let check = |args: &[&str]| {
        let mut command = place.command();
        command
            .env("LEASEHOLD_STORE", "sqlite:/proc/none")
            .env("LEASEHOLD_LEASE", "nightly")
            .env("LEASEHOLD_TOKEN", "7")
            .env("LEASEHOLD_SOCKET", &socket);
        run(command.arg("check").args(args), b"")
    };
    let good = check(&["--for", "2s"]);
    assert_eq!(
        (good.code, good.out.as_str()),
        (0, "ok: token 7 of nightly has 5s left\n"),
        "{good:?}"
    );
    check(&["nightly", "--for", "2s"]).fails(
        76,
        "refused: token 7 has 300ms left, less than 2s",
        "",
    );
    check(&["nightly", "--token", "8"]).fails(76, "refused: it was taken by b", "");
    for _ in 0..3 {
        check(&[]).fails(
            76,
            "refused: the supervisor of this job does not answer",
            "counts as lost",
        );
    }
    let asked = supervisor.join().expect("it was asked");
    assert_eq!(
        asked[..3],
        [
            "check 7 2000 nightly\n",
            "check 7 2000 nightly\n",
            "check 8 0 nightly\n"
        ]
    );
    // It is gone, and one that is frozen accepts and says nothing.
    check(&[]).fails(
        76,
        "refused: the supervisor of this job does not answer",
        "",
    );
    fs::remove_file(&socket).expect("it is there");
    let _frozen = UnixListener::bind(&socket).expect("a socket");
    check(&[]).fails(
        76,
        "refused: the supervisor of this job does not answer",
        "",
    );
    // Another lease is no business of this supervisor.
    check(&["weekly", "--token", "1"]).fails(2, "error: ", "/proc/none");
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
