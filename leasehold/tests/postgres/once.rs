//! The ledger in the user's own transaction, over both drivers: one effect per key, for any schedule of retries,
//! takeovers and crashes (I3 to I9, INV-25).

use std::time::Duration;

use leasehold::{
    AttemptId, Fingerprint, Guard, Holder, LeaseName, Proof, Refusal, Token, Value, WallTime,
    WorkKey,
    core::{Begin, Complete, Unfinished, Verdict, Work},
    fence::{
        Bearer, FenceError,
        postgres::{self as fence, Once, once},
    },
};
use sqlx::Connection;
use tokio_postgres::Transaction;

use crate::{
    drivers::{hold, successor},
    server::Server,
    session::{Session, pass},
};

const PRINT: Fingerprint = Fingerprint([7; 32]);

async fn start() -> Option<(Server, Session, Guard)> {
    let server = Server::ready().await?;
    let other = Session::open(&server).await;
    // The table wants the fence: once() has passed it.
    other
        .must("CREATE TABLE charge(who text); SELECT leasehold.protect('charge', 'job')")
        .await;
    let guard = hold(&server).await;
    Some((server, other, guard))
}

fn key(text: &str) -> WorkKey {
    WorkKey::new(text).unwrap()
}

fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).unwrap()
}

fn proof(token: i64) -> Proof {
    Proof {
        lease: LeaseName::new("job").unwrap(),
        token: Token::new(token.unsigned_abs()).unwrap(),
    }
}

/// What came of it: the answer to whoever asks, and whether it was done just now.
async fn charge(
    step: &Transaction<'_>,
    bearer: &impl Bearer,
    what: &str,
    who: &str,
) -> Result<(Value, bool), FenceError> {
    match once(step, bearer, &key(what), PRINT, None).await? {
        Once::Now(claim) => {
            step.batch_execute(&format!("INSERT INTO charge VALUES ('{who}')"))
                .await?;
            claim.respond(step, &value(who)).await?;
            Ok((value(who), true))
        }
        Once::Before(entry) => Ok((entry.done.unwrap().response, false)),
    }
}

async fn charges(session: &Session) -> String {
    session
        .must("SELECT string_agg(who, ' ' ORDER BY who) FROM charge")
        .await
}

/// INV-25, I4, I5: crashes before the commit, retries after it, takeovers.
#[tokio::test]
async fn one_key_has_one_effect_whatever_happens() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mut mine = Session::open(&server).await;
    for _ in 0..3 {
        let step = mine.client.transaction().await.unwrap();
        let done = charge(&step, &guard, "invoice:1", "a").await.unwrap();
        assert_eq!(done, (value("a"), true));
        step.rollback().await.unwrap();
        assert_eq!(charges(&other).await, "-", "neither effect nor entry");
    }
    let step = mine.client.transaction().await.unwrap();
    charge(&step, &guard, "invoice:1", "a").await.unwrap();
    step.commit().await.unwrap();

    let newer = proof(successor(&other).await);
    // I5: what was done is answered even to a stale token, which begins nothing new.
    let mut told = Vec::new();
    for newest in [false, true, false] {
        let step = mine.client.transaction().await.unwrap();
        told.push(match newest {
            true => charge(&step, &newer, "invoice:1", "b").await,
            false => charge(&step, &guard, "invoice:1", "b").await,
        });
        step.commit().await.unwrap();
    }
    for again in told {
        assert_eq!(again.unwrap(), (value("a"), false));
    }
    assert!(!guard.is_lost(), "it was refused nothing yet");
    let step = mine.client.transaction().await.unwrap();
    let stale = charge(&step, &guard, "invoice:2", "a").await.unwrap_err();
    assert!(
        matches!(stale, FenceError::Refused(Refusal::Stale { .. })),
        "{stale}"
    );
    assert!(guard.is_lost(), "F9");
    step.rollback().await.unwrap();
    assert_eq!(charges(&other).await, "a");
}

/// I1: the same key for something else.
#[tokio::test]
async fn a_key_with_another_fingerprint_is_refused() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mut mine = Session::open(&server).await;
    let step = mine.client.transaction().await.unwrap();
    charge(&step, &guard, "invoice:1", "a").await.unwrap();
    step.commit().await.unwrap();
    let step = mine.client.transaction().await.unwrap();
    let print = Fingerprint([8; 32]);
    let asked = once(&step, &guard, &key("invoice:1"), print, None).await;
    let error = asked.unwrap_err();
    assert!(
        matches!(&error, FenceError::Ledger(why) if **why == Verdict::Mismatch),
        "{error}"
    );
    drop(step);
    assert_eq!(charges(&other).await, "a");
}

/// I4, I6: two sessions of one holder at one key; the second waits, and finds it done or does it.
#[tokio::test]
async fn two_sessions_race_for_one_key() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let (mut a, mut b) = (Session::open(&server).await, Session::open(&server).await);
    for first_commits in [true, false] {
        let what = format!("invoice:{first_commits}");
        let first = a.client.transaction().await.unwrap();
        charge(&first, &guard, &what, "a").await.unwrap();
        let second = b.client.transaction().await.unwrap();
        let raced = {
            let waits = charge(&second, &guard, &what, "b");
            tokio::pin!(waits);
            tokio::select! {
                raced = &mut waits => panic!("did not wait: {raced:?}"),
                () = pass(500) => {}
            }
            match first_commits {
                true => first.commit().await.unwrap(),
                false => first.rollback().await.unwrap(),
            }
            waits.await.unwrap()
        };
        assert_eq!(!raced.1, first_commits, "{raced:?}");
        second.commit().await.unwrap();
    }
    assert_eq!(charges(&other).await, "a b");

    // One that does not come to an end is named, and the other's transaction lives on (I5: 409).
    let first = a.client.transaction().await.unwrap();
    charge(&first, &guard, "invoice:3", "a").await.unwrap();
    let second = b.client.transaction().await.unwrap();
    let late = charge(&second, &guard, "invoice:3", "b").await.unwrap_err();
    assert!(
        matches!(&late, FenceError::Ledger(why) if **why == Verdict::InProgress),
        "{late}"
    );
    let limit = second.query_one("SHOW lock_timeout", &[]).await.unwrap();
    assert_eq!(
        limit.get::<_, &str>(0),
        "0",
        "the limit was not the caller's"
    );
}

/// F11, I5: as long as work is in flight nobody gets the lease.
#[tokio::test]
async fn a_takeover_waits_for_work_in_flight() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mut mine = Session::open(&server).await;
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let token = other
            .must("SELECT token FROM leasehold.lease")
            .await
            .parse()
            .unwrap();
        let _ = &guard;
        let step = mine.client.transaction().await.unwrap();
        step.batch_execute(&format!("SET TRANSACTION ISOLATION LEVEL {level}"))
            .await
            .unwrap();
        charge(&step, &proof(token), level, "a").await.unwrap();
        step.batch_execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            .await
            .unwrap();
        if level == "READ COMMITTED" {
            other
                .must("SELECT leasehold.force_release('job', true)")
                .await;
        } else {
            // The row itself is locked as well.
            other
                .refused("SELECT leasehold.force_release('job', true)", "55P03")
                .await;
            step.commit().await.unwrap();
            continue;
        }
        let waits = other.granted("job", "new", 600_000);
        tokio::pin!(waits);
        tokio::select! {
            token = &mut waits => panic!("did not wait: {token}"),
            () = pass(700) => {}
        }
        step.commit().await.unwrap();
        waits.await;
    }
    assert_eq!(charges(&other).await, "a a");
}

/// I9: what was pruned is refused by its age, not done as new.
#[tokio::test]
async fn what_was_forgotten_is_refused_by_age() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mut mine = Session::open(&server).await;
    let step = mine.client.transaction().await.unwrap();
    charge(&step, &guard, "invoice:1", "a").await.unwrap();
    step.commit().await.unwrap();
    other
        .must("UPDATE leasehold.ledger SET done_at = done_at - interval '500 days'; SELECT leasehold.collect()")
        .await;
    assert_eq!(
        other.must("SELECT count(*) FROM leasehold.ledger").await,
        "0"
    );
    let now = WallTime::from_nanos(
        other
            .must("SELECT leasehold.micros(clock_timestamp()) * 1000")
            .await
            .parse()
            .unwrap(),
    );
    let day = Duration::from_secs(24 * 60 * 60);
    let born = WallTime::from_nanos(now.as_nanos() - (day * 450).as_nanos() as u64);
    let step = mine.client.transaction().await.unwrap();
    let what = key("invoice:1");
    let ask = |born| once(&step, &guard, &what, PRINT, Some(born));
    let error = ask(born).await.unwrap_err();
    assert!(
        matches!(&error, FenceError::Ledger(why) if matches!(**why, Verdict::TooOld { .. })),
        "{error}"
    );
    let young = ask(now).await.unwrap();
    assert!(matches!(young, Once::Now(_)), "a young request is new");
}

/// I6, I7: the effect is elsewhere; who may go on after a crash is decided by the token.
#[tokio::test]
async fn unfinished_work_goes_to_the_larger_token() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mut mine = Session::open(&server).await;
    let asked = |proof: &Proof, attempt| Begin {
        work: Work {
            lease: proof.lease.clone(),
            key: key("mail:1"),
        },
        token: proof.token,
        attempt: AttemptId::from_bits(attempt).unwrap(),
        holder: Holder::new("me").unwrap(),
        fingerprint: PRINT,
        unfinished: Unfinished::TakeOver,
        born: None,
    };
    let old = guard.proof();
    let first = asked(&old, 1);
    let (again, stranger) = (first.clone(), asked(&old, 2));
    for (ask, expected) in [
        (&first, Verdict::Begun),
        (&again, Verdict::Resumed),
        (&stranger, Verdict::InProgress),
    ] {
        let step = mine.client.transaction().await.unwrap();
        assert_eq!(
            fence::begin(&step, &guard, ask.clone()).await.unwrap(),
            expected
        );
        step.commit().await.unwrap();
    }
    let newer = proof(successor(&other).await);
    let step = mine.client.transaction().await.unwrap();
    let leave = Begin {
        unfinished: Unfinished::Leave,
        ..asked(&newer, 3)
    };
    let left = fence::begin(&step, &newer, leave).await.unwrap();
    assert!(
        matches!(&left, Verdict::LeftUnfinished(entry) if entry.done.is_none()),
        "{left:?}"
    );
    let took = fence::begin(&step, &newer, asked(&newer, 3)).await.unwrap();
    assert_eq!(took, Verdict::TookOver { from: old.token });
    step.commit().await.unwrap();
    let done = |ask: &Begin| Complete {
        work: ask.work.clone(),
        token: ask.token,
        attempt: ask.attempt,
        response: value("sent"),
    };
    let step = mine.client.transaction().await.unwrap();
    let late = fence::complete(&step, &guard, done(&first)).await.unwrap();
    assert!(
        matches!(late, Verdict::Refused(Refusal::Stale { .. })),
        "{late:?}"
    );
    assert!(guard.is_lost(), "F9");
    let other_token = fence::complete(&step, &newer, done(&first)).await;
    assert!(
        matches!(other_token, Err(FenceError::Store(_))),
        "{other_token:?}"
    );
    let completed = fence::complete(&step, &newer, done(&asked(&newer, 3)))
        .await
        .unwrap();
    assert_eq!(completed, Verdict::Completed);
    step.commit().await.unwrap();
    let step = mine.client.transaction().await.unwrap();
    let again = fence::begin(&step, &newer, asked(&newer, 9)).await.unwrap();
    assert!(matches!(again, Verdict::AlreadyDone(_)), "{again:?}");
}

/// The same over sqlx, from a task that may move between threads.
#[tokio::test]
async fn work_is_done_once_over_sqlx() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let url = server.url();
    let done = tokio::spawn(async move {
        let mut mine = sqlx::PgConnection::connect(&url).await.unwrap();
        let mut seen = Vec::new();
        let what = key("invoice:1");
        for _ in 0..2 {
            let mut tx = mine.begin().await.unwrap();
            match once(&mut tx, &guard, &what, PRINT, None).await.unwrap() {
                Once::Now(claim) => {
                    sqlx::query("INSERT INTO charge VALUES ('a')")
                        .execute(&mut *tx)
                        .await
                        .unwrap();
                    claim.respond(&mut tx, &value("a")).await.unwrap();
                    seen.push(None);
                }
                Once::Before(entry) => seen.push(Some(entry)),
            }
            tx.commit().await.unwrap();
        }
        (seen, guard)
    });
    let (seen, guard) = done.await.unwrap();
    assert!(seen[0].is_none());
    let entry = seen[1].clone().unwrap();
    assert_eq!(entry.done.unwrap().response, value("a"));
    assert_eq!((entry.token, entry.fingerprint), (guard.token(), PRINT));
    assert_eq!(charges(&other).await, "a");
}
