//! `doctor`, `admin`, `completions`, `man`, and the default store.

mod common;

use std::{fs, process::Command, thread, time::Duration};

use common::{Place, mode, run};
use serde_json::{Value, json};

#[test]
fn a_sound_setup_has_no_fault() {
    let place = Place::new();
    let ran = place.ok("doctor");
    assert!(
        ran.out.contains(&format!("the store is {}", place.url())),
        "{ran:?}"
    );
    assert!(!ran.out.contains("fault"), "{ran:?}");
    for finding in place.ok("doctor --json").objects() {
        assert!(
            finding["what"].is_string() && finding["fix"].is_null(),
            "{finding}"
        );
        assert_eq!(finding["level"], "good");
    }
    assert_eq!(place.everything(), "", "it changes nothing");
}

/// FB-56: one name for two processes is safe, but says nothing to people.
#[test]
fn doctor_warns_of_twins() {
    let place = Place::new();
    place.acquire("nightly --ttl 10m --holder host1");
    place.acquire("weekly --ttl 10m --holder host1");
    place.acquire("daily --ttl 10m --holder host2");
    let warnings = |place: &Place| -> Vec<Value> {
        let findings = place.ok("doctor --json").objects();
        findings
            .into_iter()
            .filter(|finding| finding["level"] == "warning")
            .collect()
    };
    let found = warnings(&place);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0]["what"],
        "host1 holds nightly and weekly with different sessions"
    );
    assert!(
        found[0]["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("--holder"))
    );

    // One process with one session may hold both.
    let place = Place::new();
    place.acquire("nightly --ttl 10m --holder host1 --session-file key");
    place.acquire("weekly --ttl 10m --holder host1 --session-file key");
    assert_eq!(warnings(&place), Vec::<Value>::new());

    // Both alive over one lease.
    let (_, session) = place.acquire("race --ttl 500ms --holder host3");
    thread::sleep(Duration::from_millis(600));
    place.acquire("race --ttl 10m --holder host3");
    place.run(&format!("renew race --token 1 --session {session}"));
    let found = warnings(&place);
    assert_eq!(
        found[0]["what"],
        "host3 lost race to another process that is also called host3"
    );
}

/// A21: the token dies at once, the promise is kept; with --now it is not.
#[test]
fn force_release_raises_the_token_and_keeps_the_promise() {
    let place = Place::new();
    let (_, session) = place.acquire("nightly --ttl 6s --holder a");
    let done = place.json("admin force-release nightly");
    assert_eq!(
        done,
        json!({ "outcome": "forced", "lease": "nightly", "token": "2" })
    );
    place
        .run("check nightly --token 1")
        .fails(76, "refused: token 1 is older than 2", "");
    place
        .run(&format!("renew nightly --token 1 --session {session}"))
        .fails(76, "refused: token 1 is older than 2", "");
    place.run("acquire nightly --holder b").fails(
        75,
        "busy: nobody holds nightly, but it is in quarantine",
        "",
    );
    let ran = place.run("acquire nightly --holder b --wait 30s --ttl 10m");
    assert!(ran.out.contains("LEASEHOLD_TOKEN=3\n"), "{ran:?}");

    let ran = place.ok("admin force-release nightly --now");
    assert!(
        ran.out
            .starts_with("nightly taken away, token 4 burnt; it is free;"),
        "{ran:?}"
    );
    assert_eq!(place.acquire("nightly --holder c --ttl 10m").0, 5);
    assert_eq!(
        place.ok("admin force-release never").out,
        "nobody holds never\n"
    );
    let events = place.ok("history nightly --json").objects();
    assert_eq!(
        events
            .iter()
            .filter(|event| event["event"] == "forced")
            .count(),
        2
    );
}

/// T6, A10.
#[test]
fn bump_takes_everything_away_and_passes_every_token() {
    let place = Place::new();
    place.acquire("nightly --ttl 4s --holder a");
    let before = place.everything();
    place
        .run("admin bump --above 1")
        .fails(2, "error: ", "1 was issued");
    place
        .run("admin bump --above 9223372036854775807")
        .fails(2, "error: ", "too large");
    assert_eq!(place.everything(), before);
    let bumped = place.json("admin bump");
    let above: u64 = bumped["token"]
        .as_str()
        .and_then(|t| t.parse().ok())
        .expect("a token");
    assert!(above > 1_700_000_000_000, "{above}");
    place
        .run("acquire nightly --holder b")
        .fails(75, "busy: nobody holds nightly", "quarantine");
    let ran = place.run("--json acquire nightly --holder b --wait 30s");
    assert_eq!(ran.code, 0, "{ran:?}");
    let token: u64 = ran.objects()[0]["token"]
        .as_str()
        .and_then(|t| t.parse().ok())
        .expect("a token");
    assert!(token > above, "{token}");
    assert!(place.acquire("new --holder a").0 > above);
}

#[test]
fn gc_and_evict_say_what_they_did() {
    let place = Place::new();
    place.acquire("nightly --holder a");
    assert_eq!(place.ok("admin gc").out, "0 forgotten\n");
    assert_eq!(
        place.json("admin gc"),
        json!({ "outcome": "collected", "removed": 0 })
    );
    assert_eq!(place.ok("admin evict").out, "nobody stands in the way\n");
}

/// The completions of bash are a script that bash reads, and know the commands.
#[test]
fn completions_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = place.ok(&format!("completions {shell}"));
        assert!(ran.out.contains("force-release"), "{shell}");
    }
    let script = place.ok("completions bash").raw;
    let ran = run(Command::new("bash").args(["-n", "/dev/stdin"]), &script);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    place
        .run("completions tcsh")
        .fails(2, "error: invalid value 'tcsh'", "zsh");
}

#[test]
fn the_manual() {
    let place = Place::new();
    assert!(place.ok("man").out.contains(".TH leasehold 1"));
    place.ok("man pages/man1");
    let mut pages: Vec<String> = fs::read_dir(place.path("pages/man1"))
        .expect("the folder was made")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    pages.sort();
    for page in [
        "leasehold.1",
        "leasehold-acquire.1",
        "leasehold-admin-force-release.1",
    ] {
        assert!(
            pages.iter().any(|name| name == page),
            "{page} is not in {pages:?}"
        );
    }
    assert!(
        !pages
            .iter()
            .any(|name| name.contains("__") || name.contains("help")),
        "{pages:?}"
    );
    place
        .run("man /proc/none")
        .fails(125, "error: cannot write to /proc/none", "");
}

/// The file and its folders are the user's alone from their first moment on: the sessions in it are keys.
#[test]
fn the_default_store_is_private() {
    let place = Place::new();
    let in_home = |args: &[&str]| {
        run(
            place.command().env_remove("LEASEHOLD_STORE").args(args),
            b"",
        )
    };
    let ran = in_home(&["acquire", "nightly"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let file = place.path(".local/state/leasehold/leases.db");
    assert_eq!(
        (mode(&file), mode(file.parent().expect("a folder"))),
        (0o600, 0o700)
    );
    for entry in fs::read_dir(file.parent().expect("a folder")).expect("it can be read") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
    assert_eq!(in_home(&["acquire", "nightly"]).code, 75);
    let doctor = in_home(&["doctor"]);
    assert!(
        doctor
            .out
            .contains("excludes only this user's processes on this machine"),
        "{doctor:?}"
    );

    let elsewhere = place.path("state");
    let mut command = place.command();
    command
        .env_remove("LEASEHOLD_STORE")
        .env("XDG_STATE_HOME", &elsewhere)
        .args(["list"]);
    assert_eq!(run(&mut command, b"").code, 0);
    assert!(elsewhere.join("leasehold/leases.db").is_file());
}

#[test]
fn without_a_home_there_is_no_default_store() {
    let place = Place::new();
    for home in [None, Some(""), Some("not/absolute")] {
        let mut command = place.command();
        command
            .env_remove("LEASEHOLD_STORE")
            .env_remove("HOME")
            .args(["list"]);
        if let Some(home) = home {
            command.env("HOME", home);
        }
        run(&mut command, b"").fails(2, "error: HOME is not set", "--store sqlite:PATH");
    }
}
