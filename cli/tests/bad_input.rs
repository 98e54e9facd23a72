//! What must not be taken: one clear error that names it, the right exit code, nothing changed, no panic.

mod common;

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    process::Command,
};

use common::{Place, Ran, run};

/// Every command with a name in its place, after it could have been used.
const NAMED: [&[&str]; 9] = [
    &["acquire", "{}"],
    &[
        "renew",
        "{}",
        "--token",
        "1",
        "--session",
        "00000000000000000000000000000001",
    ],
    &[
        "release",
        "{}",
        "--token",
        "1",
        "--session",
        "00000000000000000000000000000001",
    ],
    &["check", "{}", "--token", "1"],
    &["status", "{}"],
    &["history", "{}"],
    &["watch", "{}"],
    &["put", "key", "value", "--lease", "{}", "--token", "1"],
    &["admin", "force-release", "{}"],
];

fn with<'a>(args: &[&'a str], value: &'a [u8]) -> Vec<&'a OsStr> {
    let value = OsStr::from_bytes(value);
    args.iter()
        .copied()
        .map(|arg| if arg == "{}" { value } else { OsStr::new(arg) })
        .collect()
}

#[test]
fn names() {
    let place = Place::new();
    place.acquire("nightly --ttl 10m --holder a");
    let before = place.everything();
    let long = "x".repeat(201);
    let huge = "x".repeat(100_000);
    let bad: [&[u8]; 11] = [
        b"",
        b" ",
        b" a",
        b"a ",
        b"a\nb",
        b"a\x1b[31mb",
        b"a\x7f",
        "a\u{202e}b".as_bytes(),
        b"caf\xe9",
        long.as_bytes(),
        huge.as_bytes(),
    ];
    for args in NAMED {
        for value in bad {
            let ran = place.args(with(args, value));
            ran.fails(2, "error: lease name \"", "is not allowed: ");
            assert!(ran.err.len() < 400, "{}", ran.err);
        }
    }
    for value in bad {
        for args in [&["put", "{}", "x"][..], &["get", "{}"], &["delete", "{}"]] {
            place
                .args(with(args, value))
                .fails(2, "error: key \"", "is not allowed: ");
        }
        place
            .args(with(&["acquire", "a", "--holder", "{}"], value))
            .fails(2, "error: holder \"", "");
    }
    let long = "x".repeat(1025);
    place
        .args(["acquire", "a", "--info", &long])
        .fails(2, "error: info \"", "1 to 1024 bytes");
    assert_eq!(place.everything(), before);
}

#[test]
fn times() {
    let place = Place::new();
    let bad = [
        "",
        "0",
        "0s",
        "15",
        "-1s",
        "+1s",
        "1",
        "s",
        "15x",
        "1e3s",
        "999999999999999999999s",
        "1s ago",
        "NaN",
        "inf",
    ];
    for value in bad {
        for (args, what) in [
            (["acquire", "a", "--ttl", value], "ttl"),
            (["acquire", "a", "--wait", value], "duration"),
        ] {
            place.args(args).fails(
                2,
                &format!("error: {what} \"{value}\" is not allowed: "),
                "15s",
            );
        }
    }
    for value in ["1ms", "499ms", "24h1ms", "25h"] {
        place
            .args(["acquire", "a", "--ttl", value])
            .fails(2, "error: ttl \"", "from 500ms to 24h");
    }
    place.args(["acquire", "a", "--lock-delay", "11m"]).fails(
        2,
        "error: lock delay \"11m\"",
        "0s to 10m",
    );
    place
        .args(["check", "a", "--token", "1", "--for", "-5s"])
        .fails(2, "error: duration \"-5s\"", "15s");
    place
        .args(["acquire", "a", "--wait", "1m", "--no-wait"])
        .fails(2, "error: ", "--no-wait");
    assert_eq!(place.everything(), "");
}

/// INV-13.
#[test]
fn tokens() {
    let place = Place::new();
    place.acquire("a --ttl 10m");
    place.ok("put key value --lease a --token 1");
    let before = place.everything();
    let session = "00000000000000000000000000000001";
    let bad = [
        "",
        "0",
        "-1",
        "+5",
        "05",
        "9223372036854775808",
        "18446744073709551617",
        "abc",
        "1.0",
        " 1",
        "1 ",
        "0x1",
        "١",
    ];
    for token in bad {
        for args in [
            &["renew", "a", "--session", session, "--token", token][..],
            &["release", "a", "--session", session, "--token", token],
            &["check", "a", "--token", token],
            &["put", "key", "x", "--lease", "a", "--token", token],
            &["delete", "key", "--lease", "a", "--token", token],
            &["admin", "bump", "--above", token],
        ] {
            let start = format!("error: token \"{token}\" is not allowed: ");
            place
                .args(args)
                .fails(2, &start, "from 1 to 9223372036854775807");
        }
    }
    let mut command = place.command();
    command
        .env("LEASEHOLD_LEASE", "a")
        .env("LEASEHOLD_TOKEN", "05")
        .arg("check");
    run(&mut command, b"").fails(2, "error: LEASEHOLD_TOKEN: token \"05\"", "");
    place
        .args(["put", "key", "x", "--token", "1"])
        .fails(2, "error: ", "--lease");
    assert_eq!(place.everything(), before);
    assert_eq!(place.ok("get key").out, "value");
}

/// A bad session is not repeated: it may be half of a key.
#[test]
fn sessions() {
    let place = Place::new();
    for session in [
        "",
        "feed",
        "0000000000000000000000000000000",
        "00000000000000000000000000000000",
        "zz000000000000000000000000000001",
    ] {
        let ran = place.args(["release", "a", "--token", "1", "--session", session]);
        ran.fails(2, "error: session ", "32 hex digits");
        assert!(session.len() < 5 || !ran.err.contains(session), "{ran:?}");
        let mut command = place.command();
        command
            .env("LEASEHOLD_SESSION", session)
            .args(["release", "a", "--token", "1"]);
        run(&mut command, b"").fails(2, "error: ", "session");
    }
    place.args(["release", "a", "--token", "1"]).fails(
        2,
        "error: a session is needed",
        "--session-file",
    );
    place
        .args(["renew", "a"])
        .fails(2, "error: the token of a is needed", "--token N");
}

#[test]
fn commands_and_options_that_do_not_exist() {
    let place = Place::new();
    place
        .run("aquire nightly")
        .fails(2, "error: unrecognized subcommand 'aquire'", "'acquire'");
    place.args(["\u{202e}\u{1b}[31mred"]).fails(
        2,
        "error: unrecognized subcommand '\\u{202e}red'",
        "`leasehold help`",
    );
    place
        .args([OsStr::from_bytes(b"\xff")])
        .fails(2, "error: ", "");
    place
        .run("list --frobnicate")
        .fails(2, "error: unexpected argument '--frobnicate'", "usage: ");
    place.run("acquire").fails(
        2,
        "error: the following required arguments were not provided: <NAME>",
        "usage: ",
    );
    place
        .run("acquire a b")
        .fails(2, "error: unexpected argument 'b'", "");
    for bad in ["0", "-1", "x", "100001"] {
        place
            .args(["list", "--limit", bad])
            .fails(2, "error: ", bad);
    }
    for bad in ["0", "256", "-1", "x"] {
        place
            .args(["acquire", "a", "--busy-exit-code", bad])
            .fails(2, "error: ", bad);
    }
    let ran = place.run("--json aquire");
    assert_eq!(ran.code, 2);
    let error: serde_json::Value = serde_json::from_str(&ran.err).expect("JSON");
    assert_eq!(
        (error["error"].as_str(), error["code"].as_u64()),
        (Some("usage"), Some(2))
    );
    // Help on standard error, and an error: nothing was asked for.
    let ran = place.run("");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("Hold by hand:"), "{ran:?}");
}

#[test]
fn stores_that_do_not_exist() {
    let place = Place::new();
    for (url, contains) in [
        ("", "sqlite:PATH"),
        ("leases.db", "sqlite:PATH"),
        ("redis://localhost", "sqlite:PATH"),
        ("kubernetes://u:s3cret@default", "sqlite:PATH"),
        ("etcd://u:s3cret@localhost:port/x", "etcd://HOST:PORT"),
        (
            "etcd://u:s3cret@localhost/x?renew=never",
            "renew is keepalive or raft",
        ),
        (
            "postgres://u:s3cret@localhost:port/x",
            "postgres://USER@HOST",
        ),
        (
            "postgres://u:s3cret@localhost/x?expiry=never",
            "store or both",
        ),
        ("sqlite:", ""),
    ] {
        let ran = place.args(["--store", url, "list"]);
        ran.fails(2, "error: ", contains);
        assert!(!ran.err.contains("s3cret"), "{ran:?}");
    }
    let mut command = place.command();
    command.env("LEASEHOLD_STORE", "").arg("list");
    run(&mut command, b"").fails(2, "error: LEASEHOLD_STORE: store \"\"", "sqlite:PATH");
}

/// Only a database has tables to create first.
#[test]
fn a_store_without_a_schema_is_not_migrated() {
    let place = Place::new();
    let ran = place.args(["--store", "sqlite:leases.db", "migrate"]);
    ran.fails(2, "error: ", "nothing to migrate");
    let ran = place.args(["sql", "oracle"]);
    ran.fails(2, "error: ", "postgres");
    let ran = place.args(["sql", "postgres"]);
    assert!(
        ran.code == 0 && ran.out.contains("FUNCTION leasehold.fence("),
        "{ran:?}"
    );
}

/// The path of the store is no database, or cannot be used.
#[test]
fn store_files_that_cannot_be_used() {
    let place = Place::new();
    let acquire = |path: &std::path::Path| -> Ran {
        place.args([
            "--store",
            &format!("sqlite:{}", path.display()),
            "acquire",
            "a",
        ])
    };
    let folder = place.path("folder");
    fs::create_dir(&folder).expect("a folder");
    fails_clearly(&acquire(&folder), "folder");

    let text = place.path("text");
    fs::write(&text, "this is no database\n".repeat(100)).expect("a file");
    fails_clearly(&acquire(&text), "text");
    assert_eq!(
        fs::read(&text).expect("it is there"),
        "this is no database\n".repeat(100).as_bytes()
    );

    place.acquire("a");
    let newer = rusqlite::Connection::open(place.path("leases.db")).expect("a database");
    newer
        .pragma_update(None, "user_version", 99)
        .expect("it is written");
    drop(newer);
    fails_clearly(&acquire(&place.path("leases.db")), "version 99");

    // On a file system that cannot be written at all.
    fails_clearly(
        &acquire(std::path::Path::new("/proc/leases.db")),
        "/proc/leases.db",
    );
    fails_clearly(&acquire(std::path::Path::new("/dev/null")), "/dev/null");
}

/// Also for root, once it may not override permissions.
#[test]
fn store_files_that_may_not_be_used() {
    let place = Place::new();
    place.acquire("a --ttl 10m");
    let file = place.path("leases.db");
    let acquire = || {
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.arg("--bounding-set=-dac_override,-dac_read_search");
        }
        let plain = place.command();
        command
            .arg(plain.get_program())
            .args(["acquire", "b"])
            .env_clear()
            .envs(
                plain
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
        run(&mut command, b"")
    };
    for mode in [0o000, 0o400] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
        fails_clearly(&acquire(), "leases.db");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    assert_eq!(place.json("status b")["token"], serde_json::Value::Null);
    place.ok("check a --token 1");
}

fn fails_clearly(ran: &Ran, contains: &str) {
    ran.fails(if ran.code == 125 { 125 } else { 2 }, "error: ", contains);
    assert!(!ran.err.contains("panicked"), "{ran:?}");
}
