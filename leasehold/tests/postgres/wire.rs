//! Answers that never come, or in part: `Unknown` if something was sent, and the same request finds its grant. Whoever
//! waits is let go in time, and the store is well again when the server is (L9, L14, INV-10).

use std::time::Duration;

use leasehold::{Keeper, Loss, StoreError, Ttl, Wait, core::Answer};
use tokio::time::timeout;

use crate::{
    ask::{Shared, acquire, answer, granted, granted_at_last, name, renew},
    relay::{Relay, Rule},
    server::Server,
    session::{Session, pass},
};

const BOUND: Duration = Duration::from_secs(60);

async fn fails(store: &Shared, lease: &str) -> StoreError {
    timeout(BOUND, answer(store, acquire(lease, 1, 60_000)))
        .await
        .expect("nobody waits for ever")
        .expect_err("no answer came")
}

/// L9, L14, PG7, FB-94: cut off after the commit, at the first, a middle and the last byte of the answer.
#[tokio::test]
async fn an_answer_that_was_cut_off_is_unknown_and_asked_for_again() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    let relay = Relay::to(&server).await;
    let store = leasehold::connect(&relay.url()).await.unwrap();
    // The last five bytes are the end of ReadyForQuery: everything is there but the word that it counts.
    let whole = answer_length(&session, &store, &relay).await;
    for cut in [0, 1, whole / 2, whole - 6, whole - 1] {
        let lease = format!("cut at {cut}");
        // The schema was looked at when the connection was made; the next bytes are the answer.
        granted(&store, "warm", 1, 60_000).await;
        relay.set(Rule::Cut(cut));
        let error = fails(&store, &lease).await;
        assert!(
            matches!(error, StoreError::Unknown { .. }),
            "{cut}: {error:?}"
        );
        relay.set(Rule::Pass);
        let row = format!("SELECT token FROM leasehold.lease WHERE name = '{lease}'");
        assert_eq!(session.must(&row).await, "1", "{cut}: it was committed");
        assert_eq!(granted(&store, &lease, 1, 60_000).await, 1, "INV-6");
    }
}

/// How many bytes a grant takes on the wire: the smallest number after which a cut goes unseen.
async fn answer_length(session: &Session, store: &Shared, relay: &Relay) -> usize {
    const MOST: usize = 100_000;
    granted(store, "warm", 1, 60_000).await;
    relay.set(Rule::Cut(MOST));
    granted(store, "measured", 1, 60_000).await;
    let left = relay.left();
    relay.set(Rule::Pass);
    session.must("SELECT 1").await;
    MOST - left
}

/// FB-24, FB-92, H10: the connection stands, and nothing comes. The holder stops by its own clock, another follows, and
/// the store that waited is well when the server is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_blocks_nobody_for_longer_than_said() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let relay = Relay::to(&server).await;
    let far = leasehold::connect(&relay.url()).await.unwrap();
    let near = server.store().await;
    let ttl = Ttl::from_millis(3000).unwrap();
    let keeper = Keeper::new(far.clone(), name("job")).ttl(ttl);
    let guard = keeper.acquire().await.unwrap();
    relay.set(Rule::Silent);
    let deadline = guard.deadline();
    let loss = timeout(BOUND, guard.lost())
        .await
        .expect("by its own clock");
    assert!(matches!(loss, Loss::NotRenewed(_)), "{loss:?}");
    assert_eq!(granted_at_last(&near, "job", 2, 60_000).await, 2);
    assert!(guard.check().is_err() && guard.remaining() == Duration::ZERO);
    assert!(guard.deadline() <= deadline, "nothing kept it alive");

    // More than the store has connections for: each is told in time that it was not even sent.
    let mut asked = Vec::new();
    for who in 0..40 {
        let far = far.clone();
        asked.push(tokio::spawn(async move {
            timeout(
                BOUND,
                answer(&far, acquire(&format!("lease {who}"), 1, 60_000)),
            )
            .await
        }));
    }
    for answer in asked {
        let error = answer
            .await
            .unwrap()
            .expect("in time")
            .expect_err("silence");
        assert!(
            matches!(
                error,
                StoreError::Unavailable { .. } | StoreError::Unknown { .. }
            ),
            "{error:?}"
        );
    }
    let first = fails(&far, "other").await;
    assert!(matches!(first, StoreError::Unavailable { .. }), "{first:?}");
    assert!(first.to_string().contains("said nothing"), "{first}");
    let error = timeout(BOUND, leasehold::connect(&relay.url()))
        .await
        .expect("in time");
    assert!(matches!(error, Err(StoreError::Unavailable { .. })));
    let url = relay.url();
    let error = timeout(BOUND, leasehold::store::postgres::migrate(&url))
        .await
        .expect("in time");
    assert!(
        matches!(error, Err(StoreError::Unavailable { .. })),
        "{error:?}"
    );

    relay.set(Rule::Pass);
    assert_eq!(granted_at_last(&far, "after", 1, 60_000).await, 1);
}

/// FB-40, FB-73, FB-74, FB-89: a lease hangs on no connection. They are all ended, none is to be had for a while, and
/// the holder keeps it; a server that is restarted under it keeps it as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_its_connections() {
    let Some(server) = Server::ready_with("max_connections = 12").await else {
        return;
    };
    let session = Session::open(&server).await;
    session
        .must("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA leasehold TO app")
        .await;
    let app = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
    let store = leasehold::connect(&app).await.unwrap();
    let guard = Keeper::new(store.clone(), name("job"))
        .acquire()
        .await
        .unwrap();
    let ended =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'";
    assert_ne!(session.must(ended).await, "0");
    // The users of the application take all that is left, and the store is refused for as long.
    let mut taken = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&app, tokio_postgres::NoTls).await
    {
        tokio::spawn(connection);
        taken.push(client);
        assert!(taken.len() < 100, "it has no limit");
    }
    let other = leasehold::connect(&app)
        .await
        .expect_err("there is no room");
    assert!(matches!(other, StoreError::Unavailable { .. }), "{other:?}");
    assert!(
        other.to_string().contains("too many") || other.to_string().contains("remaining"),
        "{other}"
    );
    drop(taken);
    let renewed = "SELECT renewals FROM leasehold.lease WHERE name = 'job'";
    let before = session.must(renewed).await;
    until(&session, renewed, |now| now != before).await;

    server.stop("immediate");
    server.run();
    let session = Session::open(&server).await;
    let before = session.must(renewed).await;
    until(&session, renewed, |now| now != before).await;
    assert!(
        !guard.is_lost() && guard.check().is_ok(),
        "{:?}",
        guard.loss()
    );
    let stranger = Keeper::new(store.clone(), name("job")).wait(Wait::No);
    assert!(
        stranger.acquire().await.is_err(),
        "another session is another holder"
    );
    guard.release().await.unwrap();
}

async fn until(session: &Session, sql: &str, is_so: impl Fn(&str) -> bool) {
    for _ in 0..600 {
        if is_so(&session.must(sql).await) {
            return;
        }
        pass(100).await;
    }
    panic!("it never came: {sql}");
}

/// L14, PG6: the server dies under a statement; whether it committed nobody knows. It did not, and the same one is granted.
#[tokio::test]
async fn a_server_that_dies_under_a_statement_leaves_it_unknown() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    let store = server.store().await;
    for how in ["its backend", "the server"] {
        let locker = Session::open(&server).await;
        locker.must("BEGIN; LOCK TABLE leasehold.lease").await;
        let (asker, lease) = (store.clone(), how.to_owned());
        let waits = tokio::spawn(async move { fails(&asker, &lease).await });
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        until(&session, waiting, |pid| !pid.is_empty()).await;
        if how == "the server" {
            server.stop("immediate");
        } else {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            session.must(end).await;
            locker.must("COMMIT").await;
        }
        let error = waits.await.unwrap();
        assert!(
            matches!(error, StoreError::Unknown { .. }),
            "{how}: {error:?}"
        );
        if how == "the server" {
            server.run();
        }
        assert_eq!(granted_at_last(&store, how, 1, 60_000).await, 1);
    }
    let renewed = answer(&store, renew("the server", 1, 1, 1, 60_000))
        .await
        .unwrap();
    assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
}

/// L14: a password is told to nobody, and one that is changed is an error until it is changed back.
#[tokio::test]
async fn a_password_is_in_no_error_and_no_log() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    session
        .must(
            "CREATE ROLE app LOGIN PASSWORD 'open-sesame'; GRANT USAGE ON SCHEMA leasehold TO app",
        )
        .await;
    server.admit("host all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n");
    let url = |password: &str| {
        format!(
            "postgres://app:{password}@127.0.0.1:{}/postgres",
            server.port()
        )
    };
    let mut said = Vec::new();
    for password in ["shut-sesame", ""] {
        let error = leasehold::connect(&url(password)).await.expect_err("wrong");
        assert!(
            matches!(error, StoreError::Invalid { .. }) || password.is_empty(),
            "{error:?}"
        );
        assert!(error.to_string().contains("password"), "{error}");
        said.push(format!("{error} {error:?}"));
    }
    let store = leasehold::connect(&url("open-sesame")).await.unwrap();
    assert_eq!(granted(&store, "job", 1, 60_000).await, 1);
    said.push(format!("{store:?}"));
    session.must("ALTER ROLE app PASSWORD 'new-sesame'").await;
    session
        .must("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        .await;
    let mut errors = Vec::new();
    while errors.len() < 3 {
        let error = answer(&store, acquire("job", 1, 60_000))
            .await
            .expect_err("it changed");
        errors.push(error.clone());
        said.push(format!("{error} {error:?}"));
    }
    assert!(
        matches!(errors.last(), Some(StoreError::Invalid { .. })),
        "{errors:?}"
    );
    session.must("ALTER ROLE app PASSWORD 'open-sesame'").await;
    assert_eq!(granted_at_last(&store, "job", 1, 60_000).await, 1);
    said.push(
        server
            .log()
            .lines()
            .filter(|line| !line.contains("STATEMENT"))
            .collect(),
    );
    for text in said {
        assert!(!text.contains("-sesame"), "{text}");
    }
}
