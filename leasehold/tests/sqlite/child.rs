//! Other processes: this test program again, with a role. They are killed when their handle is dropped.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use leasehold::{
    Store, Token,
    core::{Answer, Outcome},
    store::sqlite::SqliteStore,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::ask::{acquire, answer, place, put, random, release, ttl};

const ROLE: &str = "LEASEHOLD_TEST_ROLE";
const STORE: &str = "LEASEHOLD_TEST_STORE";

/// A process with a role.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this test program again; what it says with [`say`] comes out of [`Self::line`].
    pub(crate) fn start(role: &str, store: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        Self::with(Command::new(program), role, store)
    }

    /// The same through another program, such as `unshare`.
    pub(crate) fn with(mut command: Command, role: &str, store: &Path) -> Self {
        let mut child = command
            .args([
                "--exact",
                "child::a_role_is_played",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .env(STORE, store)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = lines(child.stdout.take().unwrap());
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next thing it says. Panics if it says nothing for long.
    pub(crate) fn line(&self) -> String {
        self.lines
            .recv_timeout(Duration::from_secs(60))
            .expect("the child is silent")
    }

    /// What it has said by now.
    pub(crate) fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL, and all that it had said until then.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.iter().collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines that begin with the mark, without it; the test harness says things of its own.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // A line that the harness began is ended by what the child says.
            if let Some((_, said)) = line.split_once("> ")
                && sender.send(said.to_owned()).is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {text}")
        .and_then(|()| out.flush())
        .unwrap();
}

/// Plays the role that the environment names. Without one it plays one round of each, so that a broken role is seen.
#[tokio::test]
async fn a_role_is_played() {
    match (std::env::var(ROLE), std::env::var_os(STORE)) {
        (Ok(role), Some(path)) => {
            let store = SqliteStore::open(path).await.unwrap();
            say("ready");
            play(&role, &*store, u64::MAX).await;
        }
        _ => {
            let (_folder, path) = place();
            let store = SqliteStore::open(&path).await.unwrap();
            for role in ["write", "take turns a", "hold a"] {
                play(role, &*store, 1).await;
            }
        }
    }
}

async fn play(role: &str, store: &dyn Store, rounds: u64) {
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["write"] => write(store, rounds).await,
        ["take", "turns", lease] => take_turns(store, lease, rounds).await,
        ["hold", lease] => {
            let token = answer(
                store
                    .apply(acquire(lease, "child", random(), ttl(1_000)))
                    .await,
            );
            say(&format!("{token:?}"));
            if rounds > 1 {
                std::future::pending::<()>().await;
            }
        }
        _ => panic!("no such role: {role}"),
    }
}

/// Grants, pairs and releases as fast as they go; says each when it was answered.
async fn write(store: &dyn Store, rounds: u64) {
    for round in 0..rounds {
        let id = random();
        match answer(
            store
                .apply(acquire("crash", "child", id, ttl(60_000)))
                .await,
        ) {
            Answer::Granted(grant) => {
                say(&format!("token {}", grant.token));
                store.apply(put("crash", &round.to_string())).await.unwrap();
                say(&format!("pair {round}"));
                answer(store.apply(release("crash", grant.token, id)).await);
            }
            // Of a child that was killed before.
            Answer::Held(_) => {
                let force = leasehold::core::Op::Lease {
                    name: crate::ask::name("crash"),
                    command: leasehold::core::Command::ForceRelease { now: true },
                };
                store.apply(force).await.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Takes and gives a lease that others want too; says how long each wait was, in microseconds, and the token.
async fn take_turns(store: &dyn Store, lease: &str, rounds: u64) {
    use leasehold::clock::{BootClock, Clock};
    let clock = BootClock::new();
    for _ in 0..rounds {
        let (id, asked) = (random(), clock.now());
        let token = loop {
            match store.apply(acquire(lease, "child", id, ttl(60_000))).await {
                Ok(Outcome::Lease(Answer::Granted(grant))) => break grant.token,
                Ok(Outcome::Lease(Answer::Held(_))) => {}
                other => panic!("{other:?}"),
            }
        };
        say(&format!("{} {token}", clock.now().since(asked).as_micros()));
        answer(store.apply(release(lease, token, id)).await);
    }
}

/// The number at the end of a line.
pub(crate) fn number(line: &str) -> u64 {
    line.rsplit(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .expect("a line ends in a number")
}

pub(crate) fn token(line: &str) -> Token {
    Token::new(number(line)).unwrap()
}
