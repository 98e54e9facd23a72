//! `put`, `get`, `delete`: values, plain and under a lease.

mod common;

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, thread, time::Duration};

use common::{Place, run};
use serde_json::json;

#[test]
fn bytes_come_back_as_they_were_stored() {
    let place = Place::new();
    assert_eq!(place.ok("put report done").out, "ok\n");
    assert_eq!(place.ok("get report").out, "done");
    let odd = OsStr::from_bytes(b"a\xff\nb");
    assert_eq!(
        place
            .args([OsStr::new("put"), OsStr::new("report"), odd])
            .code,
        0
    );
    assert_eq!(place.ok("get report").raw, odd.as_bytes());
    let big = vec![0xfe; 65_536];
    let ran = run(place.command().args(["put", "report", "-"]), &big);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(place.ok("get report").raw, big);
    assert_eq!(place.args(["put", "report", ""]).code, 0);
    assert_eq!(place.ok("get report").raw, b"");
    assert_eq!(place.args(["put", "report", "-5"]).code, 0);
    assert_eq!(place.ok("get report").out, "-5");
    place.ok("put report -- --x");
    assert_eq!(place.ok("get report").out, "--x");
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    let place = Place::new();
    place.ok("put report done");
    let big = vec![b'x'; 65_537];
    run(place.command().args(["put", "report", "-"]), &big).fails(
        2,
        "error: standard input has more than the 65536 bytes",
        "",
    );
    place
        .args(["put", "report", &"x".repeat(65_537)])
        .fails(2, "error: value \"65537\"", "65536");
    assert_eq!(place.ok("get report").out, "done");
}

#[test]
fn what_is_not_there() {
    let place = Place::new();
    place
        .run("get report")
        .fails(1, "error: there is no value under report", "");
    assert_eq!(place.ok("delete report").out, "ok\n");
    place.ok("put report x");
    place.ok("delete report");
    assert_eq!(place.run("get report").code, 1);
}

/// The story of the demo, by hand: the old token is refused, whoever sends it.
#[test]
fn a_stale_write_is_refused() {
    let place = Place::new();
    place.acquire("nightly --ttl 3s --holder a");
    place.ok("put report by-a --lease nightly --token 1");
    thread::sleep(Duration::from_millis(3100));
    place
        .run("put report late --lease nightly --token 1")
        .fails(76, "refused: token 1 expired\n", "");
    place.acquire("nightly --ttl 10m --holder b");
    place.ok("put report by-b --lease nightly --token 2");
    for verb in ["put report by-a", "delete report"] {
        place
            .run(&format!("{verb} --lease nightly --token 1"))
            .fails(76, "refused: token 1 is older than 2\n", "");
        place
            .run(&format!("{verb} --lease nightly --token 9"))
            .fails(76, "refused: token 9 was never issued\n", "");
    }
    assert_eq!(place.ok("get report").out, "by-b");
}

#[test]
fn a_released_token_writes_no_more() {
    let place = Place::new();
    let (_, session) = place.acquire("nightly --ttl 10m");
    place.ok(&format!("release nightly --token 1 --session {session}"));
    place.run("put report x --lease nightly --token 1").fails(
        76,
        "refused: token 1 was released\n",
        "",
    );
    assert_eq!(place.run("get report").code, 1);
}

/// A client that forgets its token cannot undo the protection; a fenced delete sets the key free.
#[test]
fn the_first_fenced_write_binds_the_key() {
    let place = Place::new();
    place.acquire("nightly --ttl 10m");
    place.acquire("weekly --ttl 10m");
    place.ok("put report plain");
    place.ok("put report fenced --lease nightly --token 1");
    for args in [
        "put report x",
        "delete report",
        "put report x --lease weekly --token 1",
    ] {
        place
            .run(args)
            .fails(76, "refused: report is fenced by nightly\n", "");
    }
    assert_eq!(place.ok("get report").out, "fenced");
    place.ok("delete report --lease nightly --token 1");
    place.ok("put report free");
    assert_eq!(place.ok("get report").out, "free");
}

#[test]
fn the_json_of_data() {
    let place = Place::new();
    place.acquire("nightly --ttl 10m");
    assert_eq!(
        place.json("put plain x"),
        json!({ "outcome": "stored", "key": "plain" })
    );
    assert_eq!(
        place.json("put report x --lease nightly --token 1"),
        json!({ "outcome": "stored", "key": "report", "lease": "nightly", "token": "1" })
    );
    assert_eq!(
        place.json("get plain"),
        json!({ "key": "plain", "value": "x", "lease": null, "token": null })
    );
    assert_eq!(
        place.json("get report"),
        json!({ "key": "report", "value": "x", "lease": "nightly", "token": "1" })
    );
    let odd = OsStr::from_bytes(b"\xff\x00");
    let ran = run(place.command().args(["put", "odd", "-"]), odd.as_bytes());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        place.json("get odd"),
        json!({ "key": "odd", "value": null, "bytes": [255, 0], "lease": null, "token": null })
    );
    assert_eq!(
        place.json("delete odd"),
        json!({ "outcome": "deleted", "key": "odd" })
    );
    let ran = place.run("--json put report x");
    let error: serde_json::Value = serde_json::from_str(&ran.err).expect("JSON");
    assert_eq!(
        error,
        json!({ "error": "refused", "code": 76, "message": "report is fenced by nightly",
                "reason": "fenced", "key": "report", "lease": "nightly" })
    );
}
