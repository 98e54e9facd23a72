//! A server whose clock is set while leases are held (E16, PG8, O5): what each side sees, which promise is lost, and
//! that it is said.

use std::time::{Duration, Instant};

use leasehold::{
    Keeper, Loss, Token, Ttl, Wait,
    core::{Answer, Command, Lost},
    store::Level,
};

use crate::{
    ask::{acquire, answer, granted, granted_at_last, name, of, release, renew},
    server::Server,
    session::{Session, pass},
};

const HOUR: i64 = 3600;

/// E16, 0.2: P-TIME is lost, and doctor warns of it; P-FENCE is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_forward_ends_leases_early_and_the_fence_holds() {
    let Some(server) = Server::ready_on_a_clock().await else {
        return;
    };
    let (a, b) = (server.store().await, server.store().await);
    let session = Session::open(&server).await;
    assert_eq!(granted(&a, "job", 1, 60_000).await, 1);
    assert_eq!(granted(&a, "quiet", 1, 60_000).await, 1);
    let guard = Keeper::new(a.clone(), name("kept")).acquire().await;
    let guard = guard.unwrap();
    session.fenced("job", 1).await;
    session.must("COMMIT").await;
    let held = answer(&b, acquire("job", 2, 60_000)).await.unwrap();
    assert!(matches!(held, Answer::Held(_)), "{held:?}");

    server.set_clock(HOUR);
    session.must("BEGIN").await;
    let fence = "SELECT leasehold.fence('job', 1)";
    let refused = session.refused(fence, "LH001").await;
    assert!(refused.contains("token 1 expired"), "{refused}");
    session.must("ROLLBACK").await;
    let late = answer(&a, renew("quiet", 1, 1, 1, 60_000)).await.unwrap();
    assert_eq!(late, Answer::Lost(Lost::Expired), "L5");

    // The first holder knows of nothing yet and may believe in itself for a minute; the second is let in at once.
    assert_eq!(granted(&b, "job", 2, 60_000).await, 2);
    session.must("BEGIN").await;
    let refused = session.refused(fence, "LH001").await;
    assert!(refused.contains("token 1 is older than 2"), "{refused}");
    session.must("ROLLBACK").await;
    session.fenced("job", 2).await;
    session.must("COMMIT").await;
    let late = answer(&a, renew("job", 1, 1, 1, 60_000)).await.unwrap();
    assert!(matches!(late, Answer::Lost(Lost::Taken { .. })), "{late:?}");

    // A holder learns of it by its next renewal.
    let lost = tokio::time::timeout(Duration::from_secs(90), guard.lost()).await;
    assert_eq!(lost.expect("a renewal comes"), Loss::Store(Lost::Expired));
    let findings = b.examine().await.unwrap();
    let told = findings.iter().any(|finding| {
        finding.level == Level::Warning
            && finding.what.contains("clock differs")
            && finding
                .fix
                .as_ref()
                .is_some_and(|fix| fix.contains("expiry=both"))
    });
    assert!(told, "{findings:#?}");
}

/// E16, PG8 (ii), A17: by the store's clock it is held for an hour more; whoever watches it stand still takes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_keeps_no_dead_holders_lease() {
    let Some(server) = Server::ready_on_a_clock().await else {
        return;
    };
    let (a, b) = (server.store().await, server.store().await);
    for lease in ["dead", "waited for", "alive"] {
        assert_eq!(granted(&a, lease, 1, 2000).await, 1);
    }
    server.set_clock(-HOUR);
    let seen = Instant::now();
    match answer(&b, acquire("dead", 2, 2000)).await.unwrap() {
        // The store says an hour; this process will not wait for that (PG8).
        Answer::Held(held) => assert!(held.hint <= Duration::from_millis(2200), "{held:?}"),
        other => panic!("{other:?}"),
    }
    // Whoever renews keeps it, however often somebody looks.
    for number in 1..=3 {
        let renewed = answer(&a, renew("alive", 1, 1, number, 2000))
            .await
            .unwrap();
        assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
        let held = answer(&b, acquire("alive", 2, 2000)).await.unwrap();
        assert!(matches!(held, Answer::Held(_)), "{held:?}");
        pass(1200).await;
    }
    assert_eq!(granted_at_last(&b, "dead", 2, 2000).await, 2);
    assert!(seen.elapsed() >= Duration::from_millis(2200), "A17");
    let late = answer(&a, renew("dead", 1, 1, 1, 2000)).await.unwrap();
    assert!(matches!(late, Answer::Lost(Lost::Taken { .. })), "{late:?}");
    let guard = Keeper::new(b.clone(), name("waited for"))
        .ttl(Ttl::from_millis(2000).unwrap())
        .wait(Wait::AtMost(Duration::from_secs(60)))
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.token().get(), 2);
}

/// A2, PG8: the last ttl may be shorter than what was promised before; the longest promise is waited for.
#[tokio::test]
async fn a_lease_that_stood_still_keeps_its_longest_promise() {
    let Some(server) = Server::ready_on_a_clock().await else {
        return;
    };
    let (a, b) = (server.store().await, server.store().await);
    assert_eq!(granted(&a, "job", 1, 60_000).await, 1);
    let renewed = answer(&a, renew("job", 1, 1, 1, 500)).await.unwrap();
    assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
    server.set_clock(-HOUR);
    for _ in 0..8 {
        let held = answer(&b, acquire("job", 2, 2000)).await.unwrap();
        assert!(matches!(held, Answer::Held(_)), "{held:?}");
        pass(200).await;
    }
}

/// O5, PG8 (iii): the store's clock alone ends no lease. What was given back needs no watching.
#[tokio::test]
async fn with_expiry_both_a_clock_set_forward_ends_no_lease_early() {
    let Some(server) = Server::ready_on_a_clock().await else {
        return;
    };
    let a = server.store().await;
    let b = leasehold::connect(&format!("{}?expiry=both", server.url()))
        .await
        .unwrap();
    let leases = ["job", "doubted", "forced"];
    for lease in leases {
        assert_eq!(granted(&a, lease, 1, 2500).await, 1);
    }
    let sent = Instant::now();
    let above = Token::new(5).unwrap();
    let doubted = answer(&a, of("doubted", Command::Quarantine { above })).await;
    assert!(matches!(doubted, Ok(Answer::Bumped { .. })), "{doubted:?}");
    let forced = answer(&a, of("forced", Command::ForceRelease { now: false })).await;
    assert!(matches!(forced, Ok(Answer::Bumped { .. })), "{forced:?}");
    server.set_clock(HOUR);
    for lease in leases {
        match answer(&b, acquire(lease, 2, 2000)).await.unwrap() {
            Answer::Held(held) => assert!(held.hint > Duration::from_millis(500), "{held:?}"),
            Answer::Quarantined { .. } | Answer::Delayed { .. } => {}
            other => panic!("{lease}: {other:?}"),
        }
    }
    // A whole ttl by the waiter's own clock, from when it first looked.
    for lease in leases {
        granted_at_last(&b, lease, 2, 60_000).await;
        assert!(sent.elapsed() >= Duration::from_millis(2500), "{lease}");
    }
    let late = answer(&a, renew("job", 1, 1, 1, 2500)).await.unwrap();
    assert!(matches!(late, Answer::Lost(Lost::Taken { .. })), "{late:?}");

    assert_eq!(granted(&b, "new", 2, 60_000).await, 1, "nobody had it");
    answer(&b, release("new", 2, 1)).await.unwrap();
    assert_eq!(granted(&b, "new", 3, 60_000).await, 2, "it was given back");
    let now = Command::ForceRelease { now: true };
    answer(&b, of("new", now)).await.unwrap();
    assert_eq!(granted(&b, "new", 4, 60_000).await, 4, "it was taken away");
}
