//! Processes that are stopped in the middle of a write (A8), and processes that are not and want their share (SQ1).

use std::{fs::File, path::Path, thread, time::Duration};

use leasehold::{
    Store, StoreError,
    core::{Answer, Outcome},
    store::sqlite::SqliteStore,
};
use rustix::fs::{FlockOperation, flock};

use crate::{
    ask::{acquire, granted_within, name, place, put, random, ttl},
    child::{Process, number},
};

/// Stops the child at a moment when it has the turn.
fn stop_in_its_turn(child: &Process, path: &Path) {
    let side = File::open(path.with_extension("db.lock")).unwrap();
    for _ in 0..2_000 {
        child.stop();
        thread::sleep(Duration::from_millis(1));
        if flock(&side, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        flock(&side, FlockOperation::Unlock).unwrap();
        child.go_on();
        thread::sleep(Duration::from_micros((random() % 3_000) as u64));
    }
    panic!("the child was never stopped in its turn");
}

/// INV-12's exception for SQLite: it does block, and says by whom, and can be got out of the way.
#[tokio::test]
async fn a_process_stopped_in_its_turn_is_named_and_can_be_evicted() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let child = Process::start("take turns a", &path);
    assert_eq!(child.line(), "ready");
    child.line();
    stop_in_its_turn(&child, &path);

    let ask = || store.apply(acquire("b", "waiter", random(), ttl(500)));
    let blocked = tokio::time::timeout(Duration::from_secs(60), ask())
        .await
        .unwrap();
    let Err(StoreError::BlockedBy { who }) = blocked else {
        panic!("not told who is in the way: {blocked:?}")
    };
    assert!(who.contains(&format!("process {}", child.pid())), "{who}");
    assert!(who.contains("is stopped") && who.contains("evict"), "{who}");
    assert!(
        store.status(&name("a")).await.unwrap().is_some(),
        "reading goes on"
    );
    let another = SqliteStore::open(&path).await.expect("opening goes on");

    child.go_on();
    granted_within(&*store, "c", ttl(500), Duration::from_secs(60)).await;
    let status = store.status(&name("b")).await.unwrap();
    assert_eq!(
        status, None,
        "INV-10: a blocked acquire is never applied later"
    );

    stop_in_its_turn(&child, &path);
    let who = another
        .evict()
        .await
        .unwrap()
        .expect("somebody is in the way");
    assert!(who.contains(&format!("process {}", child.pid())), "{who}");
    granted_within(&*store, "d", ttl(500), Duration::from_secs(60)).await;
    assert_eq!(another.evict().await.unwrap(), None);
}

#[tokio::test]
async fn a_process_at_work_is_not_evicted() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let child = Process::start("take turns a", &path);
    assert_eq!(child.line(), "ready");
    for _ in 0..5 {
        assert_eq!(store.evict().await.unwrap(), None);
    }
    child.said();
    child.line();
}

/// Something else has locked the side file; nobody is killed for it.
#[tokio::test]
async fn who_is_not_in_a_write_is_not_evicted() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let side = File::open(path.with_extension("db.lock")).unwrap();
    flock(&side, FlockOperation::LockExclusive).unwrap();
    let refused = store.evict().await.unwrap_err().to_string();
    assert!(refused.contains("not in a write"), "{refused}");
    let blocked = store
        .apply(acquire("b", "waiter", random(), ttl(500)))
        .await;
    assert!(
        matches!(blocked, Err(StoreError::BlockedBy { .. })),
        "{blocked:?}"
    );
    flock(&side, FlockOperation::Unlock).unwrap();
    assert!(matches!(
        store.apply(put("k", "v")).await,
        Ok(Outcome::Done)
    ));
}

/// SQ1: with SQLite's own waiting one of four processes gets nothing for seconds.
#[tokio::test]
async fn of_four_busy_processes_each_has_its_share() {
    let (_folder, path) = place();
    SqliteStore::open(&path).await.unwrap();
    let children: Vec<Process> = (0..4)
        .map(|n| Process::start(&format!("take turns lease-{n}"), &path))
        .collect();
    for child in &children {
        assert_eq!(child.line(), "ready");
    }
    for child in &children {
        child.said();
    }
    thread::sleep(Duration::from_secs(3));
    let mut rounds = Vec::new();
    let mut worst = Duration::ZERO;
    for child in &children {
        let said = child.said();
        rounds.push(said.len());
        let waits = said
            .iter()
            .map(|line| number(line.split(' ').next().unwrap()));
        worst = worst.max(Duration::from_micros(waits.max().unwrap_or(u64::MAX)));
    }
    println!("rounds in 3 s: {rounds:?}, worst wait of any: {worst:?}");
    let (least, most) = (rounds.iter().min().unwrap(), rounds.iter().max().unwrap());
    assert!(
        least * 8 >= *most,
        "one of four starves: {rounds:?}, worst wait {worst:?}"
    );
}

/// FB-65: a release in one process wakes who waits in another.
#[tokio::test]
async fn a_release_in_another_process_is_heard() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let mut changes = store.changes();
    let child = Process::start("take turns a", &path);
    for _ in 0..3 {
        let heard = tokio::time::timeout(Duration::from_secs(60), changes.changed()).await;
        assert!(heard.is_ok(), "no tick");
    }
    child.kill();
    let next = granted_within(&*store, "a", ttl(60_000), Duration::from_secs(120)).await;
    let held = store.apply(acquire("a", "b", random(), ttl(500))).await;
    let Ok(Outcome::Lease(Answer::Held(held))) = held else {
        panic!("{held:?}")
    };
    assert_eq!(held.token, next);
}
