//! `list`, `status`, `watch`, `history`: what people and programs see.

mod common;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use common::{LIMIT, Place, finish};
use serde_json::{Value, json};

#[test]
fn an_empty_store_shows_nothing_on_standard_output() {
    let place = Place::new();
    for args in ["list", "list --held", "history", "history nightly"] {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{args}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{args}: {ran:?}");
        assert_eq!(place.ok(&format!("{args} --json")).out, "");
    }
    assert_eq!(
        place.ok("status nightly").out,
        "lease:       nightly\nstate:       free, never held\n"
    );
}

#[test]
fn list_is_a_table_for_people() {
    let place = Place::new();
    let (_, session) = place.acquire("a/released --ttl 1m --holder web-1");
    place.ok(&format!("release a/released --token 1 --session {session}"));
    place.acquire("a/gone --ttl 500ms --holder web-2");
    place.acquire("b/held --ttl 10m --holder web-3 --info 10.0.0.3:80");
    thread::sleep(Duration::from_millis(600));
    assert_eq!(
        place.ok("list a/").out,
        "\
LEASE       STATE           TOKEN  HOLDER  TIME  INFO
a/gone      free, ran out   1      web-2   -     -
a/released  free, released  1      web-1   -     -
"
    );
    let held = place.ok("list --held").out;
    assert_eq!(held.lines().count(), 2, "{held}");
    assert!(
        held.contains("b/held  held   1      web-3   9m 5") && held.contains("s left  10.0.0.3:80"),
        "{held}"
    );
    let ran = place.run("list --limit 2");
    assert_eq!((ran.code, ran.out.lines().count()), (0, 3), "{ran:?}");
    assert!(ran.err.starts_with("there are more than 2"), "{ran:?}");
}

/// Snapshot of the shape: a program may rely on every field.
#[test]
fn list_and_status_are_objects_for_programs() {
    let place = Place::new();
    place.acquire("nightly --ttl 10m --holder web-1 --info up");
    let mut lease = place.json("status nightly");
    assert_eq!(place.ok("list --json").objects().len(), 1);
    assert!(
        lease["remaining_ms"]
            .take()
            .as_u64()
            .is_some_and(|ms| (500_000..=600_000).contains(&ms))
    );
    assert!(
        lease["held_for_ms"]
            .take()
            .as_u64()
            .is_some_and(|ms| ms < 60_000)
    );
    let hash = lease["session"].take();
    assert!(hash.as_str().is_some_and(|hash| hash.len() == 8), "{hash}");
    let expected = json!({
        "lease": "nightly", "state": "held", "token": "1", "holder": "web-1", "session": null, "info": "up",
        "ttl_ms": 600_000, "held_for_ms": null, "remaining_ms": null, "renewals": 0, "released": false
    });
    assert_eq!(lease, expected);
    assert_eq!(
        place.json("status never"),
        json!({
            "lease": "never", "state": "free", "token": null, "holder": null, "session": null, "info": null,
            "ttl_ms": 15_000, "held_for_ms": null, "remaining_ms": 0, "renewals": 0, "released": false
        })
    );
}

#[test]
fn status_tells_all_about_one_lease() {
    let place = Place::new();
    let (_, session) = place.acquire("nightly --ttl 10m --holder web-1 --info up");
    let text = place.ok("status nightly").out;
    let fields: Vec<(&str, &str)> = text
        .lines()
        .map(|line| {
            line.split_once(':')
                .map(|(word, value)| (word, value.trim()))
                .expect("a field")
        })
        .collect();
    let words: Vec<&str> = fields.iter().map(|(word, _)| *word).collect();
    assert_eq!(
        words,
        [
            "lease", "state", "token", "holder", "session", "info", "held for", "renewals", "ttl",
            "free in"
        ]
    );
    assert!(
        fields[9].1.starts_with("9m 5") && fields[9].1.ends_with("s unless renewed"),
        "{text}"
    );
    // A21: a session is a key.
    assert!(!text.contains(&session) && !place.ok("list --json").out.contains(&session));
    assert!(!place.ok("history --json").out.contains(&session));
    place.ok("admin force-release nightly");
    let text = place.ok("status nightly").out;
    assert!(
        text.contains("state:       in quarantine\ntoken:       2\n"),
        "{text}"
    );
}

#[test]
fn history_tells_grants_losses_and_refusals_in_order() {
    let place = Place::new();
    let (_, session) = place.acquire("nightly --ttl 500ms --holder a");
    thread::sleep(Duration::from_millis(600));
    place.acquire("nightly --ttl 10m --holder b");
    place.run(&format!("renew nightly --token 1 --session {session}"));
    place.run("put report x --lease nightly --token 1");
    place.ok("admin force-release nightly --now");
    place.acquire("other --holder c");

    let said: Vec<String> = place
        .ok("history nightly")
        .out
        .lines()
        .skip(1)
        .map(|line| {
            line.split_once("nightly")
                .map(|(_, what)| what.trim().to_owned())
                .expect("a lease")
        })
        .collect();
    assert_eq!(
        said,
        [
            "granted to a for 500ms, token 1",
            "ran out under a, token 1",
            "granted to b for 10m, token 2",
            "renewal with token 1 refused: b has token 2",
            "write to report refused: token 1 is older than 2",
            "taken away by an operator, token 3 burnt",
        ]
    );
    let events = place.ok("history --json").objects();
    let mut numbers: Vec<u64> = events
        .iter()
        .filter_map(|event| event["number"].as_u64())
        .collect();
    assert_eq!(numbers.len(), 7);
    numbers.dedup();
    assert!(numbers.is_sorted() && numbers.len() == 7, "{numbers:?}");
    let shapes: Vec<Value> = events.into_iter().map(without_number_and_time).collect();
    assert_eq!(
        shapes,
        [
            json!({ "lease": "nightly", "event": "granted", "holder": "a", "token": "1", "ttl_ms": 500 }),
            json!({ "lease": "nightly", "event": "expired", "holder": "a", "token": "1" }),
            json!({ "lease": "nightly", "event": "granted", "holder": "b", "token": "2", "ttl_ms": 600_000 }),
            json!({ "lease": "nightly", "event": "lost", "token": "1", "why": "b has token 2" }),
            json!({ "lease": "nightly", "event": "refused", "target": "report", "why": "token 1 is older than 2" }),
            json!({ "lease": "nightly", "event": "forced", "token": "3" }),
            json!({ "lease": "other", "event": "granted", "holder": "c", "token": "1", "ttl_ms": 15_000 }),
        ]
    );
    let newest = place.ok("history --json --limit 2").objects();
    assert_eq!(newest.len(), 2);
    assert_eq!(newest[1]["lease"], "other");
    let after = newest[0]["number"].as_u64().expect("a number");
    assert_eq!(
        place
            .ok(&format!("history --json --after {after}"))
            .objects()
            .len(),
        1
    );
}

#[test]
fn watch_prints_events_as_they_come_until_a_signal() {
    let place = Place::new();
    place.acquire("before --holder a");
    let (watch, lines) = watching(&place, &["watch", "--json"], usize::MAX);
    let shape = |line: &str| without_number_and_time(serde_json::from_str(line).expect("JSON"));
    // From when on it watches nobody can tell; what it shows first is one of these, and not what was before.
    let first = (0..100).find_map(|round| {
        place.acquire(&format!("nightly/{round} --holder b"));
        lines.recv_timeout(Duration::from_millis(300)).ok()
    });
    let first = shape(&first.expect("it shows something"));
    assert_eq!(
        (&first["event"], &first["holder"]),
        (&json!("granted"), &json!("b"))
    );

    let (_, session) = place.acquire("weekly --ttl 1m --holder c");
    place.ok(&format!("release weekly --token 1 --session {session}"));
    let mut weekly = std::iter::from_fn(|| lines.recv_timeout(LIMIT).ok())
        .map(|line| shape(&line))
        .filter(|event| event["lease"] == "weekly");
    assert_eq!(
        weekly.next(),
        Some(
            json!({ "lease": "weekly", "event": "granted", "holder": "c", "token": "1", "ttl_ms": 60_000 })
        )
    );
    assert_eq!(
        weekly.next(),
        Some(json!({ "lease": "weekly", "event": "released", "holder": "c", "token": "1" }))
    );
    signal(&watch, "TERM");
    assert_eq!(finish(watch).code, 128 + 15);
}

/// A program that restarts goes on where it was; another lease is not shown.
#[test]
fn watch_resumes_after_an_event() {
    let place = Place::new();
    place.acquire("nightly --holder a");
    place.acquire("weekly --holder a");
    let (watch, lines) = watching(&place, &["watch", "weekly", "--after", "0"], 2);
    let line = lines.recv_timeout(LIMIT).expect("a line");
    assert!(
        line.ends_with("  weekly  granted to a for 15s, token 1"),
        "{line}"
    );
    signal(&watch, "INT");
    assert_eq!(finish(watch).code, 128 + 2);
}

/// `| head -1` ends a watch, though nothing more happens.
#[test]
fn watch_ends_quietly_when_nobody_reads() {
    let place = Place::new();
    place.acquire("nightly --holder a");
    let (watch, lines) = watching(&place, &["watch", "--after", "0"], 1);
    assert!(lines.recv_timeout(LIMIT).is_ok());
    let ran = finish(watch);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
}

#[test]
fn a_closed_standard_output_ends_every_command_quietly() {
    let place = Place::new();
    place.acquire("nightly --holder a");
    place.ok("put key value");
    for args in [
        "list",
        "list --json",
        "status nightly",
        "history",
        "get key",
        "doctor",
        "completions bash",
        "man",
        "help",
        "--version",
    ] {
        let mut child = place
            .command()
            .args(args.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let ran = finish(child);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args}: {ran:?}");
    }
}

/// No colour where no terminal is, whatever the environment says of terminals.
#[test]
fn what_is_not_a_terminal_gets_no_colours() {
    let place = Place::new();
    for args in ["doctor", "help", "acquire", "check a --token 1"] {
        let mut command = place.command();
        command.env("TERM", "xterm-256color").args(args.split(' '));
        let ran = common::run(&mut command, b"");
        assert!(
            !ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'),
            "{args}: {ran:?}"
        );
    }
}

/// A watch, and the first `count` lines it prints; then its output is closed.
fn watching(place: &Place, args: &[&str], count: usize) -> (Child, Receiver<String>) {
    let mut child = place
        .command()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (send, receive) = channel();
    thread::spawn(move || {
        for line in lines.take(count).map_while(Result::ok) {
            // A test that has seen enough listens no more.
            let _ = send.send(line);
        }
    });
    (child, receive)
}

fn signal(child: &Child, name: &str) {
    let kill = std::process::Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status();
    assert!(kill.is_ok_and(|status| status.success()));
}

fn without_number_and_time(mut event: Value) -> Value {
    let fields = event.as_object_mut().expect("an object");
    assert!(
        fields
            .remove("number")
            .is_some_and(|number| number.is_u64())
    );
    let at = fields.remove("at").expect("a time");
    assert!(
        at.as_str()
            .is_some_and(|at| at.ends_with('Z') && at.contains('T')),
        "{at}"
    );
    event
}

/// Colours on a terminal, and none there either if NO_COLOR is set.
#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = Place::new();
    let on_terminal = |no_color: Option<&str>| {
        let plain = place.command();
        let mut script = std::process::Command::new("script");
        script
            .args(["-qec", r#""$BINARY" doctor"#, "/dev/null"])
            .env_clear()
            .envs(
                plain
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("BINARY", plain.get_program())
            .env("TERM", "xterm")
            .envs(no_color.map(|value| ("NO_COLOR", value)));
        let ran = common::run(&mut script, b"");
        assert!(ran.out.contains("the store is"), "{ran:?}");
        ran.out.contains('\u{1b}')
    };
    assert!(on_terminal(None));
    assert!(!on_terminal(Some("1")));
}
