//! Fences between two real sessions: who waits for whom, and what is refused (5.5, E3 to E15).

use leasehold::{
    LeaseName, Proof, Refusal, Token,
    fence::{FenceError, postgres::check},
};

use crate::{
    server::Server,
    session::{Session, pass},
};

async fn start() -> Option<Server> {
    let server = Server::ready().await?;
    let session = Session::open(&server).await;
    session
        .must("CREATE TABLE data(v bigint); INSERT INTO data VALUES (0)")
        .await;
    Some(server)
}

/// F14, F11, INV-20, INV-21, E5, E13: when acquire returns, nothing of a smaller token is in flight.
#[tokio::test]
async fn a_takeover_waits_for_fenced_transactions_and_sees_what_they_wrote() {
    let Some(server) = start().await else { return };
    let (old, new) = (Session::open(&server).await, Session::open(&server).await);
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        old.must("UPDATE data SET v = 0").await;
        let lease = format!("job {level}");
        let token = old.granted(&lease, "old", 1000).await;
        old.must(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        old.must(&format!("SELECT leasehold.fence('{lease}', {token})"))
            .await;
        old.must("SET LOCAL idle_in_transaction_session_timeout = 0")
            .await;
        old.must("UPDATE data SET v = 100").await;
        pass(1200).await;
        let answer = {
            let waits = new.acquire(&lease, "new", 30_000);
            tokio::pin!(waits);
            tokio::select! {
                answer = &mut waits => panic!("{level}: did not wait: {answer}"),
                () = pass(1000) => {}
            }
            old.must("COMMIT").await;
            waits.await
        };
        assert_eq!(answer, format!("granted {}", token + 1), "{level}");
        assert_eq!(new.must("SELECT v FROM data").await, "100", "{level}");
        old.must("BEGIN").await;
        let stale = old
            .refused(
                &format!("SELECT leasehold.fence('{lease}', {token})"),
                "LH001",
            )
            .await;
        assert!(
            stale.contains(&format!("token {token} is older than {}", token + 1)),
            "{stale}"
        );
        old.must("ROLLBACK").await;
    }
}

/// F12, M7: the look comes after the wait, or it sees what is over.
#[tokio::test]
async fn a_fence_looks_after_it_waited() {
    let Some(server) = start().await else { return };
    let (old, new) = (Session::open(&server).await, Session::open(&server).await);
    let token = old.granted("job", "old", 60_000).await;
    new.must("BEGIN; SELECT leasehold.force_release('job', true)")
        .await;
    assert_eq!(
        new.acquire("job", "new", 60_000).await,
        format!("granted {}", token + 2)
    );
    old.must("BEGIN").await;
    let fence = format!("SELECT leasehold.fence('job', {token})");
    let refused = {
        let waits = old.run(&fence);
        tokio::pin!(waits);
        tokio::select! {
            answer = &mut waits => panic!("did not wait: {answer:?}"),
            () = pass(500) => {}
        }
        new.must("COMMIT").await;
        waits.await
    };
    assert!(
        refused
            .as_ref()
            .is_err_and(|text| text.starts_with("LH001")),
        "{refused:?}"
    );
}

/// INV-24, F16, F20: the holder's own transactions never keep it from its lease.
#[tokio::test]
async fn renewals_are_not_held_up_by_fenced_transactions() {
    let Some(server) = start().await else { return };
    let (writer, keeper) = (Session::open(&server).await, Session::open(&server).await);
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let lease = format!("job {level}");
        let token = writer.granted(&lease, "me", 30_000).await;
        writer.must(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        writer
            .must(&format!("SELECT leasehold.fence('{lease}', {token})"))
            .await;
        for number in 1..4 {
            let renewed = keeper
                .must(&format!(
                    "SELECT answer FROM leasehold.renew('{lease}', {token}, md5('me')::uuid, 30000, {number}, gen_random_uuid())"
                ))
                .await;
            assert_eq!(renewed, "renewed", "{level}");
        }
        writer.must("COMMIT").await;
    }
}

/// F15, E15: whoever is too late cannot keep the lease by overlapping transactions.
#[tokio::test]
async fn fenced_transactions_do_not_starve_a_takeover() {
    let Some(server) = start().await else { return };
    let new = Session::open(&server).await;
    let token = new.granted("job", "old", 1500).await;
    let mut writers = Vec::new();
    for _ in 0..4 {
        let session = Session::open(&server).await;
        writers.push(tokio::spawn(async move {
            for passed in 0..1000 {
                session.must("BEGIN").await;
                if let Err(text) = session
                    .run(&format!("SELECT leasehold.fence('job', {token})"))
                    .await
                {
                    assert!(text.starts_with("LH001"), "{text}");
                    return passed;
                }
                session.must("SELECT pg_sleep(0.3)").await;
                session.must("COMMIT").await;
            }
            panic!("the old holder is never refused");
        }));
    }
    assert_eq!(new.granted("job", "new", 10_000).await, token + 1);
    for writer in writers {
        assert!(writer.await.expect("no panic") > 0);
    }
}

/// E4, E13d, M1: an old snapshot fails, it does not decide.
#[tokio::test]
async fn an_old_snapshot_does_not_pass() {
    let Some(server) = start().await else { return };
    let (old, new) = (Session::open(&server).await, Session::open(&server).await);
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let lease = format!("job {level}");
        let token = old.granted(&lease, "old", 60_000).await;
        old.must(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        old.must("SELECT v FROM data").await;
        new.must(&format!("SELECT leasehold.force_release('{lease}', true)"))
            .await;
        new.granted(&lease, "new", 60_000).await;
        old.refused(
            &format!("SELECT leasehold.fence('{lease}', {token})"),
            "40001",
        )
        .await;
        old.must("ROLLBACK").await;
    }
}

/// F21, INV-12, E10: whoever freezes inside a transaction is ended by the server.
#[tokio::test]
async fn a_frozen_transaction_does_not_keep_the_lease() {
    let Some(server) = start().await else { return };
    let (frozen, new) = (Session::open(&server).await, Session::open(&server).await);
    let token = frozen.granted("job", "old", 1000).await;
    frozen.must("BEGIN").await;
    frozen
        .must(&format!("SELECT leasehold.fence('job', {token})"))
        .await;
    frozen.must("UPDATE data SET v = 1").await;
    assert_eq!(new.granted("job", "new", 5000).await, token + 1);
    assert!(frozen.run("COMMIT").await.is_err());
    assert_eq!(new.must("SELECT v FROM data").await, "0", "INV-22");

    // One that switched the timeout off is named, and ended when the lease has been over for a ttl (A19).
    let token = new.granted("other", "old", 1000).await;
    let stubborn = Session::open(&server).await;
    stubborn.fenced("other", token).await;
    pass(1100).await;
    let blocked = new.acquire("other", "new", 1000).await;
    assert!(blocked.starts_with("blocked"), "{blocked}");
    assert_eq!(new.granted("other", "new", 1000).await, token + 1);
    assert!(stubborn.run("COMMIT").await.is_err());
}

/// A19: shorter than the user's own limit, never longer.
#[tokio::test]
async fn a_fence_only_ever_shortens_the_idle_limit() {
    let Some(server) = start().await else { return };
    let session = Session::open(&server).await;
    let token = session.granted("job", "me", 60_000).await;
    for (set, expected) in [("250ms", "250ms"), ("2min", "5"), ("0", "5")] {
        session
            .must(&format!(
                "SET idle_in_transaction_session_timeout = '{set}'"
            ))
            .await;
        session.must("BEGIN").await;
        session
            .must(&format!("SELECT leasehold.fence('job', {token})"))
            .await;
        let limit = session
            .must("SHOW idle_in_transaction_session_timeout")
            .await;
        assert!(limit.starts_with(expected), "{set}: {limit}");
        session.must("COMMIT").await;
    }
}

/// A19: a call that is a transaction of its own protects nothing, and says so.
#[tokio::test]
async fn a_fence_outside_a_transaction_is_refused() {
    let Some(server) = start().await else { return };
    let session = Session::open(&server).await;
    let token = session.granted("job", "me", 60_000).await;
    let fence = format!("SELECT leasehold.fence('job', {token})");
    session.refused(&fence, "LH002").await;
    let prepared = session
        .client
        .prepare(&fence)
        .await
        .expect("it is a statement");
    let error = session
        .client
        .query(&prepared, &[])
        .await
        .expect_err("alone");
    assert_eq!(error.code().map(|code| code.code()), Some("LH002"));
    session.must("BEGIN").await;
    session
        .client
        .query(&prepared, &[])
        .await
        .expect("in a transaction");
    session.must("COMMIT").await;
    for bad in ["0", "-1", "NULL", "9223372036854775808", "'five'", "1.5"] {
        session.must("BEGIN").await;
        let text = session
            .run(&format!("SELECT leasehold.fence('job', {bad})"))
            .await;
        let text = text.expect_err("INV-13");
        assert!(
            text.starts_with("22") || text.starts_with("42"),
            "{bad}: {text}"
        );
        session.must("ROLLBACK").await;
    }
}

/// F18, F6, F11: a receiver of leases that live elsewhere.
#[tokio::test]
async fn a_raise_waits_for_the_writes_it_shuts_out() {
    let Some(server) = start().await else { return };
    let (old, new) = (Session::open(&server).await, Session::open(&server).await);
    old.must("SELECT leasehold.raise('data', 'far', 7)").await;
    old.refused("SELECT leasehold.check('data', 'far', 7)", "LH002")
        .await;
    old.must("BEGIN").await;
    old.must("SELECT leasehold.check('data', 'far', 7)").await;
    old.must("UPDATE data SET v = 7").await;
    {
        let waits = new.must("SELECT leasehold.raise('data', 'far', 8)");
        tokio::pin!(waits);
        tokio::select! {
            _ = &mut waits => panic!("did not wait"),
            () = pass(500) => {}
        }
        old.must("COMMIT").await;
        waits.await;
    }
    assert_eq!(new.must("SELECT v FROM data").await, "7");
    for (call, text) in [
        ("check('data', 'far', 7)", "token 7 is older than 8"),
        ("check('data', 'far', 9)", "raise it first"),
        ("check('data', 'near', 8)", "belongs to the lease far"),
        ("check('other', 'far', 8)", "no fence was raised"),
        ("raise('data', 'far', 7)", "token 7 is older than 8"),
        ("raise('data', 'far', 9223372036854775807)", "too far"),
    ] {
        old.must("BEGIN").await;
        let refused = old
            .refused(&format!("SELECT leasehold.{call}"), "LH001")
            .await;
        assert!(refused.contains(text), "{call}: {refused}");
        old.must("ROLLBACK").await;
    }
}

/// PG2, E2, M9: the clock goes on inside a transaction.
#[tokio::test]
async fn a_long_transaction_does_not_stop_the_clock() {
    let Some(server) = start().await else { return };
    let session = Session::open(&server).await;
    let token = session.granted("job", "me", 1000).await;
    session.must("BEGIN").await;
    session.must("SELECT pg_sleep(1.2)").await;
    let fence = format!("SELECT leasehold.fence('job', {token})");
    let refused = session.refused(&fence, "LH001").await;
    assert!(refused.contains("expired"), "{refused}");
    session.must("ROLLBACK").await;
}

/// F16: a row lock of a fence keeps a takeover out only if the token is part of a key.
#[tokio::test]
async fn the_token_is_a_key() {
    let Some(server) = start().await else { return };
    let (old, new) = (Session::open(&server).await, Session::open(&server).await);
    let token = old.granted("job", "old", 60_000).await;
    old.must("BEGIN").await;
    old.must("SELECT 1 FROM leasehold.lease WHERE name = 'job' FOR KEY SHARE")
        .await;
    let renew = format!(
        "SELECT answer FROM leasehold.renew('job', {token}, md5('old')::uuid, 60000, 1, gen_random_uuid())"
    );
    assert_eq!(new.must(&renew).await, "renewed", "INV-24");
    new.refused("SELECT leasehold.force_release('job', true)", "55P03")
        .await;
    old.must("COMMIT").await;
}

/// F9, F14: the same from Rust, with the refusal told apart.
#[tokio::test]
async fn a_transaction_of_tokio_postgres_is_fenced() {
    let Some(server) = start().await else { return };
    let (mut mine, other) = (Session::open(&server).await, Session::open(&server).await);
    let token = mine.granted("job", "old", 60_000).await;
    let proof = Proof {
        lease: LeaseName::new("job").unwrap(),
        token: Token::new(token.unsigned_abs()).unwrap(),
    };
    let step = mine.client.transaction().await.unwrap();
    check(&step, &proof).await.unwrap();
    step.batch_execute("UPDATE data SET v = 1").await.unwrap();
    step.commit().await.unwrap();
    other
        .must("SELECT leasehold.force_release('job', true)")
        .await;
    let highest = Token::new(proof.token.get() + 1).unwrap();
    let step = mine.client.transaction().await.unwrap();
    // Sent together, in one round trip: what follows a refusal is not done (F17).
    let (fenced, written) = tokio::join!(
        check(&step, &proof),
        step.execute_typed("UPDATE data SET v = 2", &[])
    );
    match fenced.unwrap_err() {
        FenceError::Refused(refusal) => {
            let token = proof.token;
            assert_eq!(refusal, Refusal::Stale { token, highest });
        }
        error => panic!("{error}"),
    }
    assert!(written.is_err());
    drop(step);
    assert_eq!(other.must("SELECT v FROM data").await, "1");
}
