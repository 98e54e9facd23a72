//! Members in processes of their own: this test program again. They are killed when their handle is dropped.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use leasehold::Store;
use leasehold_core::{Answer, Outcome};
use leasehold_raft::{Config, RaftStore};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Asker, WIDE, config};

const FOLDER: &str = "LEASEHOLD_TEST_MEMBER";
const LISTEN: &str = "LEASEHOLD_TEST_LISTEN";
const JOIN: &str = "LEASEHOLD_TEST_JOIN";

/// A member in a process of its own.
pub(crate) struct Member {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    pub(crate) folder: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) node: u64,
}

impl Member {
    /// Starts one in this folder; a new one makes a cluster, or joins that of the member at `join`.
    pub(crate) fn start(folder: &Path, listen: SocketAddr, join: Option<&str>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child::a_member_serves",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(FOLDER, folder)
            .env(LISTEN, listen.to_string())
            .env(JOIN, join.unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once("> ")
                    && sender.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let stdin = child.stdin.take().unwrap();
        let mut member = Self {
            child,
            stdin,
            lines,
            folder: folder.to_owned(),
            listen,
            node: 0,
        };
        member.node = member.line().parse().unwrap();
        member
    }

    /// The next thing it says.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(WIDE).expect("the member is silent")
    }

    /// Tells it something; it hears it when it runs.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        self.stdin.flush().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGKILL; its folder and port stay for the next.
    pub(crate) fn kill(mut self) -> (PathBuf, SocketAddr) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.folder.clone(), self.listen)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that was free a moment ago.
pub(crate) fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Serves until it is killed or nobody talks to it any more. Without a folder in the environment it is a test of nothing
/// else than that it starts.
#[tokio::test]
async fn a_member_serves() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        let folder = tempfile::tempdir().unwrap();
        let store = RaftStore::start(config(folder.path())).await.unwrap();
        store.init().await.unwrap();
        let answer = obey(&store, "take starts").await;
        assert!(answer.starts_with("granted 1"), "{answer}");
        return store.stop().await;
    };
    let listen = std::env::var(LISTEN).unwrap().parse().unwrap();
    let store = RaftStore::start(Config {
        listen: Some(listen),
        ..config(Path::new(&folder))
    });
    let store = store.await.unwrap();
    if store.report().cluster.is_none() {
        match std::env::var(JOIN).unwrap().as_str() {
            "" => store.init().await.unwrap(),
            address => store.join(address).await.unwrap(),
        }
    }
    say(&store.node().to_string());
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        say(&obey(&store, &line).await);
    }
}

async fn obey(store: &RaftStore, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["take", name] => match store.apply(Asker::new(name).acquire(600_000)).await {
            Ok(Outcome::Lease(Answer::Granted(grant))) => format!("granted {}", grant.token),
            Ok(Outcome::Lease(Answer::Held(held))) => format!("held {}", held.token),
            other => format!("{other:?}"),
        },
        ["look", name] => match store.status(&name.parse().unwrap()).await {
            Ok(Some(status)) => format!("token {}", status.token.unwrap()),
            other => format!("{other:?}"),
        },
        _ => panic!("no such word: {line}"),
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {text}")
        .and_then(|()| out.flush())
        .unwrap();
}
