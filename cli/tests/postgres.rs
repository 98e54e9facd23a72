//! The command over a real PostgreSQL server: holding by hand, jobs whose supervisor is killed or stopped, a server that
//! restarts in the middle, and what an operator does. No password is ever printed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // Tests may.

mod common;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the library's tests use all of it"
)]
#[path = "../../leasehold/tests/postgres/server.rs"]
mod server;

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use common::{LIMIT, Place, Ran, run};
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, Version};

/// A home folder, and a server whose URL has a password that nobody may see.
struct Rig {
    place: Place,
    server: Server,
    url: String,
}

impl Rig {
    fn new() -> Option<Rig> {
        let server = Server::start(&Version::one()?);
        let url = server.url().replace("postgres@", "postgres:s3cret@");
        Some(Rig {
            place: Place::new(),
            server,
            url,
        })
    }

    fn ready() -> Option<Rig> {
        let rig = Self::new()?;
        rig.ok("migrate");
        Some(rig)
    }

    fn command(&self) -> Command {
        let mut command = self.place.command();
        command.env("LEASEHOLD_STORE", &self.url);
        command
    }

    fn run(&self, args: &str) -> Ran {
        let ran = run(self.command().args(args.split_whitespace()), b"");
        assert!(!format!("{ran:?}").contains("s3cret"), "{args}: {ran:?}");
        ran
    }

    fn ok(&self, args: &str) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args}: {ran:?}");
        ran.out
    }

    /// `leasehold run ARGS -- sh -c SCRIPT`.
    fn job(&self, args: &str, script: &str) -> Job {
        let mut command = self.command();
        command
            .arg("run")
            .args(args.split_whitespace())
            .args(["--", "sh", "-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Job(command.spawn().unwrap())
    }

    /// A shell line that appends WORD and the token to the table of beats behind the fence.
    fn beat(&self, word: &str) -> String {
        format!(
            "printf \"BEGIN;\\nSELECT leasehold.fence('%s', %s);\\nINSERT INTO beat VALUES ('{word}', %s);\\nCOMMIT;\\n\" \
             \"$LEASEHOLD_LEASE\" \"$LEASEHOLD_TOKEN\" \"$LEASEHOLD_TOKEN\" | \
             psql -X -q -v ON_ERROR_STOP=1 -d {} >> {} 2>&1",
            self.server.url(),
            self.place.path(&format!("{word}.log")).display()
        )
    }

    fn beats(&self, word: &str) -> u64 {
        let sql = format!("SELECT count(*) FROM beat WHERE who = '{word}';");
        self.server.script(&sql).parse().unwrap()
    }

    fn log(&self, word: &str) -> String {
        fs::read_to_string(self.place.path(&format!("{word}.log"))).unwrap_or_default()
    }
}

/// A supervisor, killed when dropped; its guard kills the job.
struct Job(Child);

impl Job {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// How it ended, and what it said.
    fn end(&mut self) -> (Option<i32>, String) {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                let mut text = String::new();
                let err = self.0.stderr.as_mut().unwrap();
                err.read_to_string(&mut text).unwrap();
                return (status.code(), text);
            }
            assert!(Instant::now() < end, "leasehold run does not end");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(what: &str, mut true_by_now: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !true_by_now() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_lease_is_held_by_hand() {
    let Some(rig) = Rig::new() else { return };
    for args in ["doctor", "list", "acquire deploy"] {
        let ran = rig.run(args);
        ran.fails(2, "error: ", "leasehold migrate");
    }
    assert_eq!(
        rig.ok("migrate"),
        "created the schema leasehold, version 1\n"
    );
    assert!(rig.ok("migrate").contains("was version 1, is version 1"));
    assert!(rig.ok("doctor").contains("PostgreSQL"));
    let got: serde_json::Value =
        serde_json::from_str(&rig.ok("acquire deploy --ttl 10m --holder me --json")).unwrap();
    assert_eq!(got["token"], "1");
    let session = got["session"].as_str().unwrap();
    let busy = rig.run("acquire deploy --no-wait");
    busy.fails(75, "busy: deploy is held by me with token 1", "");
    rig.ok(&format!("renew deploy --token 1 --session {session}"));
    rig.ok("check deploy --token 1 --for 5m");
    assert!(rig.ok("list").contains("deploy  held   1      me"));
    assert!(rig.ok("status deploy").contains("renewals:    1"));
    let stranger = rig.run("release deploy --session 0123456789abcdef0123456789abcdef --token 1");
    assert_eq!(stranger.code, 76, "{stranger:?}");
    rig.ok(&format!("release deploy --session {session} --token 1"));
    let history = rig.ok("history deploy");
    assert!(
        history.contains("granted to me for 10m, token 1"),
        "{history}"
    );
    assert!(history.contains("released by me, token 1"), "{history}");
    for args in ["put latest x", "get latest", "delete latest"] {
        rig.run(args).fails(2, "error: ", "leasehold.protect");
    }
}

#[test]
fn an_operator_steps_in() {
    let Some(rig) = Rig::ready() else { return };
    rig.ok("acquire deploy --ttl 10m --holder me");
    rig.ok("admin force-release deploy --now");
    let late = rig.run("check deploy --token 1");
    assert_eq!(late.code, 76, "{late:?}");
    let token: u64 = rig
        .ok("acquire deploy --ttl 2s --json")
        .split('"')
        .skip_while(|word| *word != "token")
        .nth(2)
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(token, 3);
    assert!(rig.ok("admin evict").contains("nobody"));
    // A fenced transaction that switched its timeout off, of a lease that is over.
    let mut frozen = Command::new("psql")
        .args(["-X", "-q", "-d", &rig.server.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let script = format!(
        "BEGIN;\nSELECT leasehold.fence('deploy', {token});\nSET LOCAL idle_in_transaction_session_timeout = 0;\n\
         SELECT pg_sleep(60);\n"
    );
    std::io::Write::write_all(frozen.stdin.as_mut().unwrap(), script.as_bytes()).unwrap();
    eventually("it is evicted", || {
        rig.ok("admin evict").contains("1 of lease deploy")
    });
    frozen.kill().unwrap();
    frozen.wait().unwrap();
    rig.ok("admin bump");
    assert!(rig.ok("list").contains("in quarantine"));
    rig.ok("admin gc");
}

/// H6, INV-20, INV-22, INV-32: whatever befalls the supervisor, the job is dead or refused when the next one holds.
#[test]
fn the_next_job_goes_on_when_a_supervisor_is_killed_or_stopped() {
    let Some(rig) = Rig::ready() else { return };
    rig.server.script(
        "CREATE TABLE beat(who text, token bigint); SELECT leasehold.protect('beat', 'nightly');",
    );
    let mut before = 0;
    for (word, signal) in [("killed", Signal::KILL), ("stopped", Signal::STOP)] {
        let next = format!("after-{word}");
        let script = format!("while :; do {}; sleep 0.1; done", rig.beat(word));
        let old = rig.job("nightly --ttl 3s", &script);
        eventually("it writes", || rig.beats(word) > 2);
        old.signal(signal);
        let mut new = rig.job("nightly --ttl 3s --wait 60s", &rig.beat(&next));
        let (code, said) = new.end();
        assert_eq!(code, Some(0), "{said}\n{}", rig.log(&next));
        let was = rig.beats(word);
        assert_eq!(rig.beats(&next), 1);
        sleep(Duration::from_millis(500));
        assert_eq!(rig.beats(word), was, "it wrote after its successor");
        let order = "SELECT count(DISTINCT token) || ' ' || max(token) FROM beat;";
        before += 2;
        assert_eq!(rig.server.script(order), format!("{before} {before}"));
        if signal == Signal::STOP {
            old.signal(Signal::CONT);
            let (code, said) = { old }.end();
            assert_eq!(code, Some(124), "{said}");
            assert_eq!(rig.beats(word), was, "it wrote after it woke");
        }
    }
}

/// The server goes away and comes back within the ttl: nothing is lost, the job does not notice.
#[test]
fn a_job_outlives_a_restart_of_the_server() {
    let Some(rig) = Rig::ready() else { return };
    let done = rig.place.path("done");
    let script = format!("while [ ! -e {} ]; do sleep 0.1; done", done.display());
    let mut job = rig.job("nightly --ttl 20s", &script);
    eventually("it holds", || rig.ok("list").contains("held"));
    rig.server.stop("immediate");
    let away = rig.run("list");
    assert_eq!(away.code, 125, "{away:?}");
    rig.server.run();
    let renewals = || {
        let told: serde_json::Value =
            serde_json::from_str(&rig.ok("status nightly --json")).unwrap();
        told["renewals"].as_u64().unwrap()
    };
    let before = renewals();
    eventually("it renews again", || renewals() > before);
    fs::write(&done, "").unwrap();
    let (code, said) = job.end();
    assert_eq!(code, Some(0), "{said}");
    let history = rig.ok("history nightly");
    assert!(
        history.contains("released by") && !history.contains("token 2"),
        "{history}"
    );
}

#[test]
fn what_happens_is_watched_and_the_story_is_told() {
    let Some(rig) = Rig::ready() else { return };
    let path = rig.place.path("watched");
    let mut watch = rig
        .command()
        .args(["watch", "nightly"])
        .stdout(fs::File::create(&path).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let watched = || fs::read_to_string(&path).unwrap_or_default();
    eventually("it is watched", || {
        rig.ok("run nightly -- true");
        watched().contains("granted to") && watched().contains("released by")
    });
    watch.kill().unwrap();
    watch.wait().unwrap();
    let story = rig.ok(&format!("demo -q --store {}", rig.url));
    assert!(story.contains("a asks again: held by lease_b"), "{story}");
    assert!(
        rig.ok("list").contains("free"),
        "the story left its lease held"
    );
}

/// `leasehold sql sqlite`: the tables of `fence::sqlite`, and the statements that the help shows, as another program
/// would use them (F6, F23).
#[test]
fn the_sqlite_tables_serve_other_programs() {
    let place = Place::new();
    let script = place.ok("sql sqlite").out;
    let help = place.ok("sql --help").out;
    let (own, theirs) = (
        rusqlite::Connection::open_in_memory().unwrap(),
        rusqlite::Connection::open_in_memory().unwrap(),
    );
    own.execute_batch(&script).unwrap();
    own.execute_batch(&script).expect("twice is fine");
    leasehold::fence::sqlite::prepare(&theirs).unwrap();
    let tables = |db: &rusqlite::Connection| -> Vec<String> {
        let mut select = db
            .prepare("SELECT sql FROM sqlite_schema ORDER BY name")
            .unwrap();
        let rows = select
            .query_map([], |row| row.get::<_, Option<String>>(0))
            .unwrap();
        rows.map(|row| row.unwrap().unwrap_or_default()).collect()
    };
    assert_eq!(tables(&own), tables(&theirs));
    let shown = |start: &str| {
        let text = help
            .split_once(start)
            .unwrap_or_else(|| panic!("{start} is not in {help}"))
            .1;
        format!("{start}{}", text.split_once(';').unwrap().0)
    };
    let (check, raise) = (
        shown("SELECT 1 FROM leasehold_fence"),
        shown("INSERT INTO leasehold_fence"),
    );
    let found = |db: &rusqlite::Connection, sql: &str| db.prepare(sql).unwrap().exists([]).unwrap();
    assert!(!found(&own, &check), "not raised");
    let raised = |token: u64| {
        let sql = raise.replace(", 2)", &format!(", {token})"));
        own.query_row(&sql, [], |row| row.get::<_, i64>(0)).is_ok()
    };
    assert!(raised(2) && found(&own, &check));
    assert!(!raised(1), "a smaller token raises nothing");
    assert!(found(&own, &check) && raised(3) && !found(&own, &check));
}
