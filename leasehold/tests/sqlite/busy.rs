//! Other programs that lock the file, callers that go away, and operations that fail beside others.

use std::{path::Path, time::Duration};

use leasehold::{
    Store, StoreError,
    core::{Answer, Lost, Outcome},
    store::sqlite::SqliteStore,
};
use rusqlite::Connection;

use crate::ask::{
    acquire, answer, granted, granted_within, name, place, put, random, release, renew, ttl,
};

const LONG: Duration = Duration::from_secs(60);

/// Another program that writes to the file.
fn lock(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db
}

fn unlock_after(db: Connection, time: Duration) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        db.execute_batch("ROLLBACK").unwrap();
    })
}

/// FB-28, A1: the wait fits the budget, so nothing is lost, and the grant says how long it was waited for.
#[tokio::test]
async fn a_lock_of_another_program_is_waited_for() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let token = granted(&*store, "a", 1, ttl(10_000)).await;
    let unlocked = unlock_after(lock(&path), Duration::from_secs(3));
    let (kept, new) = tokio::join!(
        store.apply(renew("a", token, 1, 1, ttl(10_000))),
        store.apply(acquire("b", "b", 2, ttl(10_000))),
    );
    unlocked.join().unwrap();
    assert_eq!(answer(kept), Answer::Renewed { ttl: ttl(10_000) });
    let Answer::Granted(grant) = answer(new) else {
        panic!("not granted")
    };
    assert!(grant.waited >= Duration::from_millis(2_500), "{grant:?}");
}

/// SQ1: expiry is judged when the lock is held, not when it was asked for.
#[tokio::test]
async fn what_expires_while_it_waits_for_the_lock_is_expired() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let token = granted(&*store, "a", 1, ttl(1_000)).await;
    let locked = lock(&path);
    tokio::time::sleep(Duration::from_millis(850)).await;
    let unlocked = unlock_after(locked, Duration::from_millis(190));
    let late = answer(store.apply(renew("a", token, 1, 1, ttl(10_000))).await);
    unlocked.join().unwrap();
    assert_eq!(late, Answer::Lost(Lost::Expired));
}

/// INV-10.
#[tokio::test]
async fn a_lock_that_outlasts_the_patience_is_named_and_nothing_is_applied_later() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    granted(&*store, "seen", 1, ttl(10_000)).await;
    let locked = lock(&path);
    let refused = store.apply(acquire("a", "a", 1, ttl(500))).await;
    let Err(StoreError::Unavailable { what }) = refused else {
        panic!("{refused:?}")
    };
    assert!(what.contains("another program"), "{what}");
    let status = tokio::time::timeout(LONG, store.status(&name("seen"))).await;
    assert!(
        status.unwrap().unwrap().is_some(),
        "readers do not wait for writers"
    );
    assert_eq!(
        store.evict().await.unwrap(),
        None,
        "a process that waits itself is not in the way"
    );
    drop(locked);
    store.apply(put("k", "v")).await.unwrap();
    assert_eq!(store.status(&name("a")).await.unwrap(), None);
}

/// FB-29: a long writer, a lost lease and many waiters; all is well again when the writer is done.
#[tokio::test]
async fn many_waiters_recover_when_a_long_writer_is_done() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    granted(&*store, "a", 1, ttl(1_000)).await;
    let unlocked = unlock_after(lock(&path), Duration::from_secs(3));
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = store.clone();
        waiters.spawn(async move {
            let token = granted_within(&*store, "a", ttl(500), LONG).await;
            (store, token)
        });
    }
    let (_, token) = waiters.join_next().await.unwrap().unwrap();
    assert_eq!(token.get(), 2, "one got it, once");
    unlocked.join().unwrap();
    waiters.shutdown().await;
}

/// FB-71: the caller goes away in the middle; nothing blocks anybody, and the same request finds what it got.
#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_orphan() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    for round in 1..20 {
        let asked = acquire("a", "a", round, ttl(1_000));
        let waited = Duration::from_micros(round as u64 * 100);
        let dropped = tokio::time::timeout(waited, store.apply(asked.clone())).await;
        let token = match answer(store.apply(asked).await) {
            Answer::Granted(grant) => grant.token,
            other => panic!("the same request was answered {other:?} after {dropped:?}"),
        };
        assert_eq!(
            u128::from(token.get()),
            round,
            "one request, one token: INV-6"
        );
        store.apply(release("a", token, round)).await.unwrap();
    }
    let locked = lock(&path);
    let gone = tokio::time::timeout(
        Duration::from_millis(300),
        store.apply(acquire("b", "a", 7, ttl(60_000))),
    );
    assert!(gone.await.is_err());
    // Longer than one try to get the lock; the next one sees that its caller has gone.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(locked);
    let stranger = granted(&*store, "b", 8, ttl(60_000)).await;
    assert_eq!(
        stranger.get(),
        1,
        "what nobody waits for any more is not granted"
    );
}

/// All that waits goes into one commit.
#[tokio::test]
async fn what_waits_together_is_committed_together() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let commits = || -> u64 {
        let db = Connection::open(&path).unwrap();
        db.query_row("SELECT commits FROM store", [], |row| row.get::<_, i64>(0))
            .unwrap() as u64
    };
    granted(&*store, "first", 1, ttl(10_000)).await;
    let (before, locked) = (commits(), lock(&path));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64 {
        let store = store.clone();
        tasks.spawn(
            async move { granted(&*store, &format!("lease-{number}"), 1, ttl(10_000)).await },
        );
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(locked);
    while let Some(granted) = tasks.join_next().await {
        assert_eq!(granted.unwrap().get(), 1);
    }
    assert_eq!(commits(), before + 1);
}

/// One that fails takes no other down.
#[tokio::test]
async fn a_damaged_row_fails_alone() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    granted(&*store, "bad", 1, ttl(10_000)).await;
    let db = Connection::open(&path).unwrap();
    db.execute("UPDATE lease SET ttl_ms = 0 WHERE name = 'bad'", [])
        .unwrap();
    drop(db);
    let ops = vec![
        acquire("good", "a", 2, ttl(10_000)),
        acquire("bad", "b", 3, ttl(10_000)),
        put("key", "value"),
        acquire("good", "b", 4, ttl(10_000)),
    ];
    let replies = store.apply_all(ops).await;
    assert!(
        matches!(replies[0], Ok(Outcome::Lease(Answer::Granted(_)))),
        "{replies:?}"
    );
    let Err(StoreError::Unavailable { what }) = &replies[1] else {
        panic!("{replies:?}")
    };
    assert!(what.contains("damaged") && what.contains("ttl"), "{what}");
    assert!(matches!(replies[2], Ok(Outcome::Done)), "{replies:?}");
    assert!(
        matches!(replies[3], Ok(Outcome::Lease(Answer::Held(_)))),
        "{replies:?}"
    );
    assert!(
        store.status(&name("bad")).await.is_err(),
        "it is not shown as something else"
    );
    assert!(store.status(&name("good")).await.unwrap().is_some());
}

/// More than one commit holds, and none at all.
#[tokio::test]
async fn a_large_batch_is_answered_in_full() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    assert!(store.apply_all(Vec::new()).await.is_empty());
    let ops = (0..2_500).map(|n| acquire(&format!("lease-{n}"), "a", random(), ttl(60_000)));
    let replies = store.apply_all(ops.collect()).await;
    assert_eq!(replies.len(), 2_500);
    assert!(
        replies
            .iter()
            .all(|reply| matches!(reply, Ok(Outcome::Lease(Answer::Granted(_)))))
    );
    let listed = store.list("lease-", 10_000).await.unwrap();
    assert_eq!(listed.len(), 2_500);
    assert!(listed.is_sorted_by(|one, next| one.name < next.name));
}
