//! `check`: what the store says of a token, and inside a job the supervisor.

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    thread,
    time::Duration,
};

use common::{Place, run};

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
