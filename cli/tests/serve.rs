//! `serve` and `--store http://…` with the real binary: what works over a file works over a server, also when the server dies.
#![allow(clippy::disallowed_methods, reason = "tests measure")]

mod common;
#[path = "run/rig.rs"]
#[allow(dead_code, reason = "the tests of run use all of it")]
mod rig;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, SystemTime},
};

use common::{Place, Ran, finish, run};
use rig::{beats, eventually, times};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A server over the store of a place, killed when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(place: &Place) -> Self {
        Self::at(place, "127.0.0.1:0").expect("a free port")
    }

    /// `None`: the address is not free.
    fn at(place: &Place, address: &str) -> Option<Self> {
        Self::with(place, address, &[])
    }

    fn with(place: &Place, address: &str, options: &[&str]) -> Option<Self> {
        let mut child = place
            .command()
            .args(["--json", "serve", "--listen", address])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("its output");
        BufReader::new(out)
            .read_line(&mut line)
            .expect("it says where it is");
        let Ok(said) = serde_json::from_str::<Value>(&line) else {
            let _ = child.wait();
            return None;
        };
        let url = said["url"].as_str().expect("a URL").to_owned();
        Some(Self { child, url })
    }

    /// The same address again.
    fn again(&self, place: &Place) -> Self {
        let address = self.url.strip_prefix("http://").expect("a URL").to_owned();
        let mut server = None;
        eventually("the address is free again", || {
            server = Self::at(place, &address);
            server.is_some()
        });
        server.expect("it was made")
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("it is ours");
    }

    /// A command that knows only the server.
    fn command(&self, place: &Place, args: &str) -> Command {
        let mut command = place.command();
        command
            .env("LEASEHOLD_STORE", &self.url)
            .args(args.split_whitespace());
        command
    }

    fn ok(&self, place: &Place, args: &str) -> Ran {
        let ran = run(&mut self.command(place, args), b"");
        assert_eq!(ran.code, 0, "{args}: {ran:?}");
        ran
    }

    fn json(&self, place: &Place, args: &str) -> Value {
        let ran = self.ok(place, &format!("--json {args}"));
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job under a lease of the server; killed when dropped, with all it started.
fn job(server: &Server, place: &Place, args: &str, script: &str) -> rig::Running {
    let args = format!("--store {} {args}", server.url);
    rig::Running::start(place, &args, script)
}

#[test]
fn every_command_works_through_a_server() {
    let place = Place::new();
    let server = Server::start(&place);
    let got = server.json(&place, "acquire nightly --ttl 10m --holder a");
    let (token, session) = (
        got["token"].as_str().unwrap(),
        got["session"].as_str().unwrap(),
    );
    assert_eq!(token, "1");
    let ran = run(
        &mut server.command(&place, "acquire nightly --holder b"),
        b"",
    );
    ran.fails(75, "busy: ", "nightly is held by a with token 1");
    server.ok(
        &place,
        &format!("put latest first --lease nightly --token {token}"),
    );
    assert_eq!(server.ok(&place, "get latest").out, "first");
    let ran = run(&mut server.command(&place, "put latest plain"), b"");
    ran.fails(76, "refused: ", "latest is fenced by nightly");
    server.ok(
        &place,
        &format!("renew nightly --token {token} --session {session}"),
    );
    server.ok(&place, &format!("check nightly --token {token}"));
    assert_eq!(server.json(&place, "list")["holder"], "a");
    assert_eq!(server.json(&place, "status nightly")["renewals"], 1);
    server.ok(
        &place,
        &format!("release nightly --token {token} --session {session}"),
    );
    let history = server.ok(&place, "--json history nightly");
    let words: Vec<_> = history
        .objects()
        .iter()
        .map(|event| event["event"].clone())
        .collect();
    assert_eq!(words, ["granted", "refused", "released"]);
    let ran = run(&mut server.command(&place, "doctor"), b"");
    assert!(
        ran.code == 0 && ran.out.contains("behind the server"),
        "{ran:?}"
    );
    assert_eq!(
        place.json("list")["token"],
        "1",
        "the same store without the server"
    );
    assert_eq!(
        server
            .ok(&place, "run nightly -- printenv LEASEHOLD_TOKEN")
            .out,
        "2\n"
    );
}

#[test]
fn two_jobs_contend_through_a_server_and_the_second_follows() {
    let place = Place::new();
    let server = Server::start(&place);
    let (a, b, go) = (place.path("a"), place.path("b"), place.path("go"));
    let script = |mine: &std::path::Path| {
        format!(
            "echo $LEASEHOLD_TOKEN > {0}.new; mv {0}.new {0}; while ! [ -e {1} ]; do sleep 0.05; done",
            mine.display(),
            go.display()
        )
    };
    let mut first = job(&server, &place, "nightly --ttl 30s", &script(&a));
    eventually("the first works", || a.exists());
    let mut second = job(&server, &place, "nightly --ttl 30s", &script(&b));
    eventually("the second waits at the server", || {
        let ran = run(
            Command::new("curl").args(["-s", &format!("{}/v1/leases/nightly", server.url)]),
            b"",
        );
        ran.out.contains("\"waiting\":1")
    });
    assert!(!b.exists());
    fs::write(&go, "").unwrap();
    assert_eq!((first.code(), second.code()), (0, 0));
    let token = |file| fs::read_to_string(file).unwrap().trim().to_owned();
    assert_eq!((token(&a), token(&b)), ("1".into(), "2".into()));
}

/// INV-7, and the outage is shorter than the ttl: the holder finds its server again and nothing is lost.
#[test]
fn a_job_outlives_the_death_of_its_server() {
    let place = Place::new();
    let mut server = Server::start(&place);
    let go = place.path("go");
    let script = format!(
        "touch {}; while ! [ -e {} ]; do sleep 0.05; done",
        place.path("works").display(),
        go.display()
    );
    let mut job = job(&server, &place, "nightly --ttl 30s", &script);
    eventually("it works", || place.path("works").exists());
    server.kill();
    sleep(Duration::from_secs(1));
    let again = server.again(&place);
    let renewals = || {
        again.json(&place, "status nightly")["renewals"]
            .as_u64()
            .unwrap()
    };
    let before = renewals();
    eventually("it is renewed by the new server", || renewals() > before);
    fs::write(&go, "").unwrap();
    assert_eq!(job.code(), 0, "it was never lost");
    assert_eq!(
        again.json(&place, "acquire nightly")["token"],
        "2",
        "tokens go on"
    );
}

/// P-TIME: the outage is longer than the ttl, so the job is dead before anybody else can hold.
#[test]
fn a_job_is_dead_in_time_when_its_server_stays_away() {
    let place = Place::new();
    let mut server = Server::start(&place);
    let file = place.path("beats");
    let mut job = job(&server, &place, "nightly --ttl 4s", &beats(&file, "a"));
    eventually("it works", || times(&file, "a").len() > 3);
    let killed = SystemTime::now();
    server.kill();
    let gone = SystemTime::now();
    assert_eq!(job.code(), 124, "the lease was lost, and the job stopped");
    assert_eq!(job.left(), [] as [i32; 0]);
    // What the server answered last it was asked before it died, and the ttl counts from then.
    let deadline = gone.duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_secs(4);
    let last = times(&file, "a").into_iter().max().unwrap();
    assert!(
        last < deadline.as_nanos(),
        "it acted {} ms too late",
        (last - deadline.as_nanos()) / 1_000_000
    );
    assert!(
        last > killed
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_nanos(),
        "it went on for a while"
    );
    let again = server.again(&place);
    let next = again.json(&place, "acquire nightly --wait 50s");
    assert_eq!(next["token"], "2");
}

#[test]
fn a_server_that_is_told_to_end_answers_who_waits_and_ends_well() {
    let place = Place::new();
    let mut server = Server::start(&place);
    server.ok(&place, "acquire nightly --ttl 10m");
    let waiter = server
        .command(&place, "acquire nightly --wait 20s --holder b")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    eventually("it waits at the server", || {
        let ran = run(
            Command::new("curl").args(["-s", &format!("{}/v1/leases/nightly", server.url)]),
            b"",
        );
        ran.out.contains("\"waiting\":1")
    });
    server.signal(Signal::TERM);
    let mut end = None;
    eventually("it ends", || {
        end = server.child.try_wait().unwrap();
        end.is_some()
    });
    assert_eq!(end.unwrap().code(), Some(0));
    let waiter = finish(waiter);
    assert_ne!(waiter.code, 0, "nobody released: {waiter:?}");
}

#[test]
fn what_would_be_open_to_others_is_refused_and_what_cannot_be_served_too() {
    let place = Place::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        place
            .args(["serve", "--listen", address])
            .fails(2, "error: ", "--insecure");
    }
    place
        .args(["serve", "--listen", "localhost"])
        .fails(2, "error: ", "--listen");
    place
        .args(["--store", "http://127.0.0.1:1", "serve"])
        .fails(2, "error: ", "serve a store itself");
    let server = Server::start(&place);
    let taken = server.url.strip_prefix("http://").unwrap();
    place
        .args(["serve", "--listen", taken])
        .fails(125, "error: ", "cannot listen on");
    for url in [
        "http://",
        "http://a/path",
        "http://user:secret@a",
        "http://a:99999",
        "https://a",
    ] {
        let ran = place.args(["--store", url, "list"]);
        ran.fails(2, "error: ", "not allowed");
        assert!(!ran.err.contains("secret"), "{ran:?}");
    }
    place.args(["--store", "http://127.0.0.1:1", "list"]).fails(
        125,
        "error: ",
        "the server was not reached",
    );
}

/// Each caller does what the file gives, and the file keeps no secret.
#[test]
fn a_server_with_credentials_asks_who_calls() {
    let place = Place::new();
    place
        .args(["token", "create", "ci", "--file", "callers"])
        .fails(2, "error: ", "without a right");
    place
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--credentials",
            "callers",
        ])
        .fails(2, "error: ", "callers");
    let secret = place.ok("token create ci --hold ci/ --file callers").out;
    let secret = secret.trim();
    let kept = fs::read_to_string(place.path("callers")).unwrap();
    assert!(
        secret.starts_with("leasehold_") && !kept.contains(&secret["leasehold_".len()..]),
        "{kept}"
    );
    assert_eq!(common::mode(&place.path("callers")), 0o600);

    let server =
        Server::with(&place, "127.0.0.1:0", &["--credentials", "callers"]).expect("a free port");
    let as_nobody = run(&mut server.command(&place, "list ci/"), b"");
    as_nobody.fails(2, "error: ", "credential");
    let with_secret = |args: &str| {
        run(
            server
                .command(&place, args)
                .env("LEASEHOLD_CREDENTIAL", secret),
            b"",
        )
    };
    let ran = with_secret("run ci/deploy -- printenv LEASEHOLD_TOKEN");
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n"), "{ran:?}");
    with_secret("acquire other").fails(2, "error: ", "no right");
    with_secret("admin force-release ci/deploy").fails(2, "error: ", "no right");
    assert_eq!(
        place.json("list")["lease"],
        "ci/deploy",
        "nothing else was taken"
    );

    let path = place.path("callers");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    place
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--credentials",
            "callers",
        ])
        .fails(2, "error: ", "others may write it");
}
