//! The ledger: work is begun by one, done once, and remembered.

use leasehold_core::{Fingerprint, Refusal, Unfinished, Verdict, WallTime};

use super::{
    Suite,
    ask::{Asker, attempt, begin, text},
};

/// I5, INV-25.
pub(super) async fn work_is_begun_once_and_done_once(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("work"), Asker::new("a"), Asker::new("b"));
    let token = suite.granted(&name, &a, suite.long()).await.token;
    let mine = begin(&name, "charge:1", &a, token);
    assert_eq!(suite.begin(mine.clone()).await, Verdict::Begun);
    assert_eq!(
        suite.begin(mine.clone()).await,
        Verdict::Resumed,
        "its reply was lost"
    );
    let mut other = mine.clone();
    other.attempt = attempt();
    assert_eq!(suite.begin(other.clone()).await, Verdict::InProgress);
    let stranger = suite.complete(&other, token, "not mine").await;
    assert_eq!(stranger, Verdict::InProgress);
    for _ in 0..2 {
        assert_eq!(
            suite.complete(&mine, token, "paid").await,
            Verdict::Completed
        );
    }
    other.fingerprint = Fingerprint([2; 32]);
    assert_eq!(suite.begin(other).await, Verdict::Mismatch);

    suite.release(&name, &a, token).await;
    let next = suite.granted(&name, &b, suite.long()).await.token;
    for (who, token) in [(&a, token), (&b, next)] {
        let again = suite.begin(begin(&name, "charge:1", who, token)).await;
        let Verdict::AlreadyDone(entry) = again else {
            panic!("{} would do it again: {again:?}", who.holder)
        };
        assert_eq!(entry.done.map(|done| done.response), Some(text("paid")));
        assert_eq!(entry.holder, a.holder);
    }
    let abandon = suite.abandon(&mine).await;
    assert!(
        matches!(abandon, Verdict::AlreadyDone(_)),
        "done stays done: {abandon:?}"
    );
    let entry = suite
        .store
        .entry(&mine.work)
        .await
        .expect("an entry is read");
    assert!(entry.is_some_and(|entry| entry.done.is_some()));
}

/// I6, I7: the token decides, never a timeout.
pub(super) async fn unfinished_work_goes_to_the_larger_token(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("unfinished"), Asker::new("a"), Asker::new("b"));
    let old = suite.granted(&name, &a, suite.short()).await.token;
    let crashed = begin(&name, "charge:2", &a, old);
    assert_eq!(suite.begin(crashed.clone()).await, Verdict::Begun);
    suite.outlast(suite.short()).await;
    let fresh = suite.begin(begin(&name, "charge:3", &a, old)).await;
    assert_eq!(fresh, Verdict::Refused(Refusal::Expired { token: old }));

    let new = suite.granted(&name, &b, suite.long()).await.token;
    let mut next = begin(&name, "charge:2", &b, new);
    next.unfinished = Unfinished::Leave;
    let left = suite.begin(next.clone()).await;
    assert!(
        matches!(&left, Verdict::LeftUnfinished(entry) if entry.token == old),
        "{left:?}"
    );
    next.unfinished = Unfinished::TakeOver;
    assert_eq!(
        suite.begin(next.clone()).await,
        Verdict::TookOver { from: old }
    );
    let stale = Verdict::Refused(Refusal::Stale {
        token: old,
        highest: new,
    });
    assert_eq!(suite.complete(&crashed, old, "late").await, stale);
    assert_eq!(suite.begin(crashed.clone()).await, stale);
    assert_eq!(suite.abandon(&crashed).await, stale);
    assert_eq!(suite.abandon(&next).await, Verdict::Abandoned);
    let nothing = suite.complete(&next, new, "late").await;
    assert_eq!(nothing, Verdict::NotBegun);
    assert_eq!(
        suite.begin(next.clone()).await,
        Verdict::Begun,
        "a failed run is run again"
    );

    suite.release(&name, &b, new).await;
    let done = suite.complete(&next, new, "done").await;
    assert_eq!(
        done,
        Verdict::Completed,
        "what was done is recorded, though the lease is over"
    );
}

/// I9.
pub(super) async fn what_the_ledger_forgot_is_refused_by_age(suite: &Suite<'_>) {
    let (name, a) = (suite.lease("age"), Asker::new("a"));
    let token = suite.granted(&name, &a, suite.long()).await.token;
    let mut asked = begin(&name, "charge:4", &a, token);
    suite.store.collect().await.expect("collected");
    asked.born = Some(WallTime::ZERO);
    let old = suite.begin(asked.clone()).await;
    assert!(
        matches!(old, Verdict::TooOld { kept_from } if kept_from > WallTime::ZERO),
        "{old:?}"
    );
    asked.born = Some(WallTime::MAX);
    assert_eq!(suite.begin(asked).await, Verdict::Begun);
}
