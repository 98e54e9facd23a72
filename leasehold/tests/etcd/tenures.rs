//! One tenure and what can befall it.

use std::time::Duration;

use leasehold::{
    Lost,
    core::{Answer, Command, Release},
};

use crate::{
    asker::{Asker, lease},
    server::{Server, Settings, Version},
};

/// FB-49, ET5: etcd raises short ttls; what it really gave is told.
#[tokio::test]
async fn the_ttl_that_was_really_given_is_told() {
    for version in Version::all() {
        let settings = Settings {
            heartbeat: 500,
            election: 5000,
            ..Settings::default()
        };
        let server = Server::with(&version, settings).await;
        let store = leasehold::connect(&server.url()).await.unwrap();
        let asker = Asker::new(&store, "short", 2);
        let Answer::Granted(grant) = asker.ask().await.unwrap() else {
            panic!("not granted")
        };
        assert_eq!(
            grant.ttl.get(),
            Duration::from_secs(8),
            "1.5 elections, in whole seconds"
        );
        let renewed = asker.renew(grant.token, 1).await.unwrap();
        assert_eq!(renewed, Answer::Renewed { ttl: grant.ttl });
    }
}

/// FB-21, FB-62: a key that somebody deleted by hand, and an etcd lease that somebody revoked, are losses at the next
/// renewal, although etcd goes on keeping the lease of the first alive.
#[tokio::test]
async fn what_was_taken_by_hand_is_lost() {
    for version in Version::all() {
        let server = Server::start(&version).await;
        let store = leasehold::connect(&server.url()).await.unwrap();
        for revoke in [false, true] {
            let asker = Asker::new(&store, "hand", 60);
            let token = asker.take().await;
            let key = server.ctl(["get", "--prefix", "--keys-only", "hand/"]);
            let id = key
                .trim()
                .strip_prefix("hand/")
                .expect("one key")
                .to_owned();
            match revoke {
                true => server.ctl(["lease", "revoke", &id]),
                false => server.ctl(["del", key.trim()]),
            };
            let answer = asker.renew(token, 1).await.unwrap();
            assert_eq!(answer, Answer::Lost(Lost::Expired), "revoked: {revoke}");
            assert_eq!(asker.ask().await.unwrap(), Answer::AlreadyUsed);
            let next = Asker::new(&store, "hand", 60);
            let after = next.take().await;
            assert!(after > token);
            assert_eq!(next.release(after).await, Answer::Released);
        }
    }
}

/// ET7, FB-23: an old renewal never binds its successor's key, whatever the way of renewing.
#[tokio::test]
async fn a_late_renewal_touches_nothing_of_the_successor() {
    let Some(version) = Version::newest() else {
        return;
    };
    let server = Server::start(&version).await;
    for renew in ["keepalive", "raft"] {
        let store = leasehold::connect(&format!("{}?renew={renew}", server.url()))
            .await
            .unwrap();
        let (old, new) = (Asker::new(&store, renew, 60), Asker::new(&store, renew, 60));
        let token = old.take().await;
        let forced = old.say(Command::ForceRelease { now: true }).await.unwrap();
        assert!(matches!(forced, Answer::Bumped { .. }), "{forced:?}");
        let next = new.take().await;
        for number in 1..5 {
            let answer = old.renew(token, number).await.unwrap();
            assert!(
                matches!(answer, Answer::Lost(Lost::Taken { token, .. }) if token == next),
                "{answer:?}"
            );
        }
        assert_eq!(old.release(token).await, Answer::AlreadyOver);
        let answer = new.renew(next, 1).await.unwrap();
        assert!(matches!(answer, Answer::Renewed { .. }), "{answer:?}");
    }
}

/// L9: a waiter that gives up leaves no place behind; nor does a store that is closed.
#[tokio::test]
async fn who_gives_up_waits_no_longer() {
    let Some(version) = Version::newest() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let other = leasehold::connect(&server.url()).await.unwrap();
    let (a, b, c) = (
        Asker::new(&store, "job", 600),
        Asker::new(&store, "job", 600),
        Asker::new(&other, "job", 600),
    );
    let token = a.take().await;
    for asker in [&b, &b, &c, &c] {
        assert!(matches!(asker.ask().await.unwrap(), Answer::Held(_)));
    }
    let places = || {
        server
            .ctl(["get", "--prefix", "--keys-only", "job/"])
            .split_whitespace()
            .count()
    };
    assert_eq!(places(), 3);
    let (session, request_id) = (b.session, b.request_id);
    let gone = b
        .say(Command::Release(Release::Request {
            session,
            request_id,
        }))
        .await
        .unwrap();
    assert_eq!(gone, Answer::AlreadyOver);
    drop((c, other));
    for _ in 0..600 {
        if places() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(places(), 1);
    assert_eq!(a.release(token).await, Answer::Released);
}

/// A name under which the store keeps its own, and a damaged note: refused with what to do.
#[tokio::test]
async fn what_cannot_be_read_is_refused_with_its_name() {
    let Some(version) = Version::debian() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let error = Asker::new(&store, ".leasehold/lease", 5)
        .ask()
        .await
        .unwrap_err();
    assert!(error.to_string().contains(".leasehold/"), "{error}");
    for text in ["", "{", "[]", "{\"key\":1}", "\u{1}", &"x".repeat(100_000)] {
        server.ctl(["put", ".leasehold/lease/job", "--", text]);
        let error = Asker::new(&store, "job", 5).ask().await.unwrap_err();
        assert!(
            error.to_string().contains(".leasehold/lease/job"),
            "{error}"
        );
    }
    server.ctl(["del", ".leasehold/lease/job"]);
    Asker::new(&store, "job", 5).take().await;
    assert!(store.status(&lease("job")).await.unwrap().is_some());
}

/// A1, FB-97: a waiter that the store holds back is granted in order, hears how long it waited, and asks seldom.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_held_back_until_its_turn() {
    let Some(version) = Version::newest() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let (a, b) = (Asker::new(&store, "job", 60), Asker::new(&store, "job", 60));
    let token = a.take().await;
    let waiting = tokio::spawn(async move { b.ask_for(Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished(), "it is held back");
    assert_eq!(a.release(token).await, Answer::Released);
    let answer = waiting.await.unwrap().unwrap();
    let Answer::Granted(grant) = answer else {
        panic!("{answer:?}")
    };
    assert!(
        grant.token > token && grant.waited >= Duration::from_secs(1),
        "{grant:?}"
    );
}
