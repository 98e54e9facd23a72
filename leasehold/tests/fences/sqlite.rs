//! The fence in a transaction: what it refuses, what it waits for, what it demands.

use std::{cell::Cell, sync::mpsc::channel, thread, time::Duration};

use leasehold::{
    LeaseName, Refusal, Resource, Token,
    core::Proof,
    fence::{
        FenceError,
        sqlite::{barrier, check, prepare, raise},
    },
    store::sqlite::SqliteStore,
};
use rusqlite::{Connection, TransactionBehavior::Deferred};

use crate::{Told, append, begin, database, list, open, proof, reports, token};

fn refusal<T: std::fmt::Debug>(result: Result<T, FenceError>) -> Refusal {
    match result {
        Err(FenceError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// INV-20, INV-22, F9: a holder that froze wakes up and writes, row after row.
#[test]
fn a_frozen_writer_that_wakes_is_refused_and_leaves_no_trace() {
    let (_folder, path) = database();
    let (mut a, mut b) = (open(&path), open(&path));
    barrier(&mut a, &reports(), &proof(1)).unwrap();
    let tx = begin(&mut a);
    check(&tx, &reports(), &proof(1)).unwrap();
    append(&tx, 1, "by a");
    tx.commit().unwrap();
    // a freezes here, b takes the lease.
    barrier(&mut b, &reports(), &proof(2)).unwrap();
    let tx = begin(&mut b);
    check(&tx, &reports(), &proof(2)).unwrap();
    append(&tx, 2, "by b");
    tx.commit().unwrap();

    let tx = begin(&mut a);
    let told = Told(proof(1), Cell::default());
    append(&tx, 1, "before the check");
    let stale = Refusal::Stale {
        token: token(1),
        highest: token(2),
    };
    assert_eq!(refusal(check(&tx, &reports(), &told)), stale);
    assert_eq!(
        told.1.take(),
        Some(stale),
        "the bearer learns that its tenure is over"
    );
    drop(tx);
    assert_eq!(list(&a), [(1, "by a".into()), (2, "by b".into())]);
    assert!(matches!(
        barrier(&mut a, &reports(), &proof(1)),
        Err(FenceError::Refused(_))
    ));
}

/// F10, F11, INV-21: the barrier waits for the writer in flight, and the first read after it sees what that wrote.
#[test]
fn the_barrier_waits_for_a_writer_in_flight() {
    let (_folder, path) = database();
    let (mut a, mut b) = (open(&path), open(&path));
    barrier(&mut a, &reports(), &proof(1)).unwrap();
    let tx = begin(&mut a);
    check(&tx, &reports(), &proof(1)).unwrap();
    append(&tx, 1, "by a");
    let (done, barrier_done) = channel();
    let successor = thread::spawn(move || {
        barrier(&mut b, &reports(), &proof(2)).unwrap();
        done.send(()).unwrap();
        list(&b)
    });
    let waited = barrier_done.recv_timeout(Duration::from_millis(300));
    assert!(waited.is_err(), "the barrier did not wait");
    tx.commit().unwrap();
    assert_eq!(successor.join().unwrap(), [(1, "by a".into())], "INV-21");
}

/// F10: a barrier that cannot be reached is an error, and the fence is where it was.
#[test]
fn a_barrier_that_does_not_get_through_raises_nothing() {
    let (_folder, path) = database();
    let (mut a, mut b) = (open(&path), open(&path));
    b.busy_timeout(Duration::from_millis(50)).unwrap();
    barrier(&mut a, &reports(), &proof(1)).unwrap();
    let tx = begin(&mut a);
    check(&tx, &reports(), &proof(1)).unwrap();
    assert!(matches!(
        barrier(&mut b, &reports(), &proof(2)),
        Err(FenceError::Sqlite(_))
    ));
    append(&tx, 1, "by a");
    tx.commit().unwrap();
    let tx = begin(&mut a);
    check(&tx, &reports(), &proof(1)).unwrap();
}

/// F2, F12: a check that does not commit with its effect is refused.
#[test]
fn a_check_outside_of_a_writing_transaction_is_refused() {
    let (_folder, path) = database();
    let mut db = open(&path);
    barrier(&mut db, &reports(), &proof(1)).unwrap();
    for ask in [check, raise] {
        assert!(matches!(
            ask(&db, &reports(), &proof(1)),
            Err(FenceError::NotInTransaction)
        ));
        let tx = db.transaction_with_behavior(Deferred).unwrap();
        assert!(matches!(
            ask(&tx, &reports(), &proof(1)),
            Err(FenceError::NotImmediate)
        ));
        let _: i64 = tx
            .query_row("SELECT count(*) FROM list", [], |row| row.get(0))
            .unwrap();
        assert!(matches!(
            ask(&tx, &reports(), &proof(1)),
            Err(FenceError::NotImmediate)
        ));
    }
    let tx = begin(&mut db);
    check(&tx, &reports(), &proof(1)).unwrap();
}

/// F3, F6, T2, T10.
#[test]
fn the_fence_takes_only_tokens_that_can_be_true() {
    let (_folder, path) = database();
    let mut db = open(&path);
    let tx = begin(&mut db);
    assert!(matches!(
        check(&tx, &reports(), &proof(1)),
        Err(FenceError::NotRaised(_))
    ));
    let absurd = refusal(raise(
        &tx,
        &reports(),
        &Proof {
            token: Token::MAX,
            ..proof(1)
        },
    ));
    assert!(matches!(absurd, Refusal::TooFar { .. }), "{absurd:?}");
    tx.commit().unwrap();

    barrier(&mut db, &reports(), &proof(5)).unwrap();
    barrier(&mut db, &reports(), &proof(5)).expect("again is fine");
    let tx = begin(&mut db);
    let newer = refusal(check(&tx, &reports(), &proof(6)));
    assert_eq!(
        newer,
        Refusal::NotRaised {
            token: token(6),
            highest: token(5)
        }
    );
    let other = Proof {
        lease: LeaseName::new("hourly").unwrap(),
        ..proof(6)
    };
    for asked in [
        raise(&tx, &reports(), &other),
        check(&tx, &reports(), &other),
    ] {
        assert_eq!(refusal(asked), Refusal::OtherLease { by: proof(1).lease });
    }
    assert_eq!(
        refusal(raise(&tx, &reports(), &proof(4))),
        Refusal::Stale {
            token: token(4),
            highest: token(5)
        }
    );
    // Beyond any unix time in ms is the next token after a restore.
    raise(&tx, &reports(), &proof(1_796_000_000_000)).unwrap();
    raise(&tx, &Resource::new("another").unwrap(), &other)
        .expect("each resource has a fence of its own");
    tx.commit().unwrap();
}

/// A raise that is rolled back did not happen.
#[test]
fn a_raise_counts_when_it_is_committed() {
    let (_folder, path) = database();
    let mut db = open(&path);
    barrier(&mut db, &reports(), &proof(1)).unwrap();
    let tx = begin(&mut db);
    raise(&tx, &reports(), &proof(2)).unwrap();
    drop(tx);
    let tx = begin(&mut db);
    check(&tx, &reports(), &proof(1)).unwrap();
}

/// A8: user data in the lease file would let a stopped writer keep everybody from their leases.
#[tokio::test]
async fn the_file_of_a_store_takes_no_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let refused = prepare(&Connection::open(&path).unwrap()).unwrap_err();
    assert!(matches!(refused, FenceError::IsStore), "{refused}");
}

#[test]
fn a_damaged_fence_lets_nothing_through() {
    let (_folder, path) = database();
    let mut db = open(&path);
    barrier(&mut db, &reports(), &proof(1)).unwrap();
    db.execute("UPDATE leasehold_fence SET lease = ''", [])
        .unwrap();
    let tx = begin(&mut db);
    assert!(matches!(
        check(&tx, &reports(), &proof(1)),
        Err(FenceError::Damaged(_))
    ));
    assert!(matches!(
        raise(&tx, &reports(), &proof(2)),
        Err(FenceError::Damaged(_))
    ));
}
