//! The ledger in the user's own transaction: one effect per key, for any schedule of retries, takeovers and crashes.

use leasehold::{
    AttemptId, Fingerprint, Holder, LeaseName, Refusal, Value, WallTime, WorkKey,
    core::{Abandon, Begin, Complete, Unfinished, Verdict, Work},
    fence::{
        FenceError,
        sqlite::{self, Once, barrier, once},
    },
};
use rusqlite::Connection;

use crate::{append, begin, database, list, open, proof, reports, token};

fn asked(key: &str, number: u64, attempt: u128) -> Begin {
    Begin {
        work: Work {
            lease: LeaseName::new("nightly").unwrap(),
            key: WorkKey::new(key).unwrap(),
        },
        token: token(number),
        attempt: AttemptId::from_bits(attempt).unwrap(),
        holder: Holder::new(&format!("holder {number}")).unwrap(),
        fingerprint: Fingerprint([7; 32]),
        unfinished: Unfinished::TakeOver,
        born: None,
    }
}

fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).unwrap()
}

/// Charges once, and says what came of it; rolls back if `crash`.
fn charge(db: &mut Connection, asked: Begin, crash: bool) -> Result<Once, FenceError> {
    let number = asked.token.get();
    let tx = begin(db);
    let result = once(&tx, &reports(), asked, |tx| {
        append(tx, number, "charged");
        append(tx, number, "booked");
        Ok::<_, FenceError>(value(&format!("receipt of {number}")))
    });
    if !crash {
        tx.commit().unwrap();
    }
    result
}

/// INV-25, I4, I5.
#[test]
fn one_key_has_one_effect_whatever_happens() {
    let (_folder, path) = database();
    let (mut a, mut b) = (open(&path), open(&path));
    barrier(&mut a, &reports(), &proof(1)).unwrap();
    for attempt in 1..5 {
        let crashed = charge(&mut a, asked("invoice:1", 1, attempt), true).unwrap();
        assert!(matches!(crashed, Once::Done(_)), "{crashed:?}");
        assert_eq!(list(&a).len(), 0, "neither effect nor entry was committed");
    }
    assert_eq!(
        charge(&mut a, asked("invoice:1", 1, 5), false).unwrap(),
        Once::Done(value("receipt of 1"))
    );
    barrier(&mut b, &reports(), &proof(2)).unwrap();
    for number in [1, 2, 1] {
        let db = if number == 1 { &mut a } else { &mut b };
        let Once::Before(entry) = charge(db, asked("invoice:1", number, 6), false).unwrap() else {
            panic!("charged twice")
        };
        assert_eq!(entry.done.unwrap().response, value("receipt of 1"));
        assert_eq!(entry.holder.as_str(), "holder 1");
    }
    assert_eq!(list(&b).len(), 2);

    let stale = charge(&mut a, asked("invoice:2", 1, 7), false).unwrap_err();
    let refusal = Refusal::Stale {
        token: token(1),
        highest: token(2),
    };
    assert!(
        matches!(&stale, FenceError::Refused(why) if *why == refusal),
        "{stale}"
    );
    let mut other = asked("invoice:1", 2, 8);
    other.fingerprint = Fingerprint([8; 32]);
    let mismatch = charge(&mut b, other, false).unwrap_err();
    assert!(
        matches!(&mismatch, FenceError::Ledger(verdict) if **verdict == Verdict::Mismatch),
        "{mismatch}"
    );
    assert_eq!(list(&b).len(), 2);
}

/// INV-22: an effect that fails half-way leaves nothing, though its caller commits.
#[test]
fn an_effect_that_fails_leaves_nothing_and_may_be_tried_again() {
    #[derive(Debug)]
    struct Declined;
    impl From<FenceError> for Declined {
        fn from(error: FenceError) -> Self {
            panic!("{error}")
        }
    }
    let (_folder, path) = database();
    let mut db = open(&path);
    barrier(&mut db, &reports(), &proof(1)).unwrap();
    let tx = begin(&mut db);
    once(&tx, &reports(), asked("invoice:1", 1, 1), |tx| {
        append(tx, 1, "charged");
        Err(Declined)
    })
    .unwrap_err();
    tx.commit().unwrap();
    assert_eq!(list(&db), []);
    assert!(matches!(
        charge(&mut db, asked("invoice:1", 1, 2), false),
        Ok(Once::Done(_))
    ));
}

/// I6, I7: the effect is elsewhere; who may go on after a crash is decided by the token.
#[test]
fn unfinished_work_goes_to_the_larger_token() {
    let (_folder, path) = database();
    let mut db = open(&path);
    let write = |db: &mut Connection, asked: Begin| {
        let tx = begin(db);
        let verdict = sqlite::begin(&tx, &reports(), asked).unwrap();
        tx.commit().unwrap();
        verdict
    };
    barrier(&mut db, &reports(), &proof(1)).unwrap();
    let first = asked("invoice:1", 1, 1);
    assert_eq!(write(&mut db, first.clone()), Verdict::Begun);
    assert_eq!(write(&mut db, first.clone()), Verdict::Resumed);
    assert_eq!(
        write(&mut db, asked("invoice:1", 1, 2)),
        Verdict::InProgress
    );
    barrier(&mut db, &reports(), &proof(2)).unwrap();
    let next = asked("invoice:1", 2, 3);
    let left = write(
        &mut db,
        Begin {
            unfinished: Unfinished::Leave,
            ..next.clone()
        },
    );
    assert!(matches!(left, Verdict::LeftUnfinished(_)), "{left:?}");
    assert_eq!(
        write(&mut db, next.clone()),
        Verdict::TookOver { from: token(1) }
    );
    let tx = begin(&mut db);
    let done = |asked: &Begin| Complete {
        work: asked.work.clone(),
        token: asked.token,
        attempt: asked.attempt,
        response: value("paid"),
    };
    let late = sqlite::complete(&tx, done(&first)).unwrap();
    assert!(
        matches!(late, Verdict::Refused(Refusal::Stale { .. })),
        "{late:?}"
    );
    let Begin {
        work,
        token,
        attempt,
        ..
    } = first;
    let late = sqlite::abandon(
        &tx,
        Abandon {
            work,
            token,
            attempt,
        },
    )
    .unwrap();
    assert!(
        matches!(late, Verdict::Refused(Refusal::Stale { .. })),
        "{late:?}"
    );
    assert_eq!(
        sqlite::complete(&tx, done(&next)).unwrap(),
        Verdict::Completed
    );
    tx.commit().unwrap();
    let again = write(&mut db, asked("invoice:1", 2, 9));
    assert!(matches!(again, Verdict::AlreadyDone(_)), "{again:?}");
}

/// I9.
#[test]
fn what_was_forgotten_is_refused_by_age() {
    let (_folder, path) = database();
    let mut db = open(&path);
    barrier(&mut db, &reports(), &proof(1)).unwrap();
    charge(&mut db, asked("invoice:1", 1, 1), false).unwrap();
    let tx = begin(&mut db);
    assert_eq!(sqlite::forget(&tx, WallTime::ZERO).unwrap(), 0);
    let soon = WallTime::from_nanos(i64::MAX as u64);
    assert_eq!(sqlite::forget(&tx, soon).unwrap(), 1);
    tx.commit().unwrap();
    let mut old = asked("invoice:1", 1, 2);
    old.born = Some(WallTime::from_nanos(1));
    let refused = charge(&mut db, old, false).unwrap_err();
    assert!(
        matches!(&refused, FenceError::Ledger(verdict) if matches!(**verdict, Verdict::TooOld { .. })),
        "{refused}"
    );
    assert_eq!(list(&db).len(), 2, "charged twice");
}

/// F2 for the ledger.
#[test]
fn the_ledger_wants_a_writing_transaction() {
    let (_folder, path) = database();
    let mut db = open(&path);
    barrier(&mut db, &reports(), &proof(1)).unwrap();
    let outside = sqlite::begin(&db, &reports(), asked("invoice:1", 1, 1));
    assert!(
        matches!(outside, Err(FenceError::NotInTransaction)),
        "{outside:?}"
    );
    let outside = sqlite::forget(&db, WallTime::ZERO);
    assert!(
        matches!(outside, Err(FenceError::NotInTransaction)),
        "{outside:?}"
    );
}
