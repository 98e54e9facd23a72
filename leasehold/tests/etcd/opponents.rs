//! etcd's own Mutex and Election, and `etcdctl lock`, against our holders: never two at once, tokens rise (A11).

use std::time::Duration;

use leasehold::{Keeper, Wait, core::Answer};
use rustix::process::Signal;

use crate::{
    asker::{Asker, lease},
    server::{Opponent, Server, Version, revision},
};

/// Both directions, both kinds, both servers; whoever waits is next, and is shown who holds.
#[tokio::test(flavor = "multi_thread")]
async fn programs_of_the_peers_and_ours_exclude_each_other() {
    for version in Version::all() {
        let server = Server::start(&version).await;
        let store = leasehold::connect(&server.url()).await.unwrap();
        for kind in ["mutex", "election"] {
            let Some(mut peer) = Opponent::start(&server, kind, kind, 5) else {
                return;
            };
            let mut last = 0;
            for _ in 0..3 {
                let theirs = peer.take();
                assert!(theirs > last, "{theirs} after {last}");
                let ours = Asker::new(&store, kind, 10);
                let Answer::Held(held) = ours.ask().await.unwrap() else {
                    panic!("two hold")
                };
                assert_eq!(held.token.get(), theirs);
                assert!(
                    matches!(ours.ask().await.unwrap(), Answer::Held(_)),
                    "it waits in the queue"
                );
                assert_eq!(peer.say("give"), "given");
                let token = ours.take().await;
                assert!(token.get() > theirs, "{token} after {theirs}");
                peer.ask("take");
                tokio::time::sleep(Duration::from_millis(300)).await;
                let answer = ours.renew(token, 1).await.unwrap();
                assert!(
                    matches!(answer, Answer::Renewed { .. }),
                    "{answer:?}: it has not ended yet"
                );
                assert_eq!(ours.release(token).await, Answer::Released);
                last = revision(&peer.hear());
                assert!(last > token.get(), "{last} after {token}");
                assert_eq!(peer.say("give"), "given");
            }
        }
    }
}

/// ET8: a waiter whose place was lost while it waited is told that it does not hold.
#[tokio::test]
async fn a_waiter_whose_place_is_gone_does_not_hold() {
    let Some(version) = Version::debian() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let (a, b, c) = (
        Asker::new(&store, "job", 60),
        Asker::new(&store, "job", 60),
        Asker::new(&store, "job", 60),
    );
    let first = a.take().await;
    for asker in [&b, &b, &c, &c] {
        assert!(matches!(asker.ask().await.unwrap(), Answer::Held(_)));
    }
    let places = server.ctl(["get", "--prefix", "--keys-only", "--sort-by=CREATE", "job/"]);
    let second = places
        .lines()
        .filter(|line| !line.is_empty())
        .nth(1)
        .expect("b waits")
        .to_owned();
    server.ctl(["del", &second]);
    assert_eq!(a.release(first).await, Answer::Released);
    let token = c.take().await;
    let Answer::Held(held) = b.ask().await.unwrap() else {
        panic!("two hold")
    };
    assert_eq!(held.token, token);
}

/// FB-16: freezes on both sides, for several ttls; a keeper of ours and theirs never hold at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_opponent_loses_and_a_keeper_takes_over() {
    let Some(version) = Version::newest() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let mut last = 0;
    for _ in 0..2 {
        let Some(mut peer) = Opponent::start(&server, "mutex", "frozen", 2) else {
            return;
        };
        let theirs = peer.take();
        assert!(theirs > last);
        peer.signal(Signal::STOP);
        let keeper =
            Keeper::new(store.clone(), lease("frozen")).wait(Wait::AtMost(Duration::from_secs(60)));
        let guard = keeper.acquire().await.unwrap();
        assert!(guard.token().get() > theirs);
        peer.signal(Signal::CONT);
        assert_eq!(peer.say("lost"), "lost");
        guard.check().unwrap();
        last = guard.token().get();
        guard.release().await.unwrap();
    }
}

/// FB-51, FB-73: `etcdctl lock`, whose holder is stopped, killed, and followed by us.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_etcdctl_excludes_ours() {
    let Some(version) = Version::debian() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let mut child = std::process::Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints={}", server.client_url()))
        .args(["lock", "--ttl=2", "shell"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ours = Asker::new(&store, "shell", 5);
    let mut held = false;
    for _ in 0..600 {
        match store.status(&lease("shell")).await.unwrap() {
            Some(status) if status.state == leasehold::core::State::Held => held = true,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        if held {
            break;
        }
    }
    assert!(held, "etcdctl took it");
    assert!(matches!(ours.ask().await.unwrap(), Answer::Held(_)));
    child.kill().unwrap();
    child.wait().unwrap();
    let token = ours.take().await;
    let text = server.ctl(["get", "--prefix", "shell/", "-w", "json"]);
    assert!(
        text.contains(&format!("\"create_revision\":{token}")),
        "the token is the revision: {text}"
    );
}
