//! Bad addresses, servers that say no, and answers that never came: each the right error of L14, none with a password.

use leasehold::{
    StoreError,
    core::{Answer, Outcome},
    store::{Finding, Level},
};

use crate::{
    ask,
    server::{Server, Version},
    session::{Session, pass},
};

fn acquire(name: &str) -> leasehold::core::Op {
    ask::acquire(name, 7, 60_000)
}

async fn fails(url: &str) -> StoreError {
    leasehold::connect(url).await.expect_err(url)
}

/// L14, FB-21: what no retry mends is `Invalid` and says what to do.
#[tokio::test]
async fn a_wrong_set_up_is_told() {
    let Some(version) = Version::one() else {
        return;
    };
    let server = Server::start(&version);
    let session = Session::open(&server).await;
    let at = |user: &str, database: &str| {
        format!(
            "postgres://{user}:sesame@127.0.0.1:{}/{database}",
            server.port()
        )
    };
    let cases = [
        (at("postgres", "postgres"), "leasehold migrate"),
        (at("postgres", "nowhere"), "nowhere"),
        (at("nobody", "postgres"), "nobody"),
        (
            "postgres://u:sesame@h:port/db".to_owned(),
            "postgres://USER@HOST:PORT/DATABASE",
        ),
        (at("postgres", "postgres?expiry=never"), "store or both"),
    ];
    for (url, text) in cases {
        let error = fails(&url).await;
        assert!(
            matches!(error, StoreError::Invalid { .. }),
            "{url}: {error:?}"
        );
        assert!(error.to_string().contains(text), "{url}: {error}");
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
    leasehold::store::postgres::migrate(&server.url())
        .await
        .unwrap();
    session
        .must("CREATE ROLE plain LOGIN; UPDATE leasehold.meta SET version = 99")
        .await;
    let newer = fails(&at("postgres", "postgres")).await;
    assert!(
        newer.to_string().contains("version 99") && matches!(newer, StoreError::Invalid { .. }),
        "{newer}"
    );
    let refused = leasehold::store::postgres::migrate(&server.url())
        .await
        .expect_err("a downgrade");
    assert!(refused.to_string().contains("newer program"), "{refused}");
    session.must("UPDATE leasehold.meta SET version = 1").await;
    let rights = fails(&at("plain", "postgres")).await;
    assert!(
        rights
            .to_string()
            .contains("GRANT USAGE ON SCHEMA leasehold"),
        "{rights}"
    );
    session
        .must("GRANT USAGE ON SCHEMA leasehold TO plain")
        .await;
    let store = leasehold::connect(&at("plain", "postgres")).await.unwrap();
    let outcome = store.apply(acquire("by-a-plain-role")).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Lease(Answer::Granted(_))),
        "{outcome:?}"
    );
    let standby = server.standby();
    let error = fails(&standby.url()).await;
    assert!(
        matches!(error, StoreError::Unavailable { .. }) && error.to_string().contains("standby"),
        "{error:?}"
    );
    server.stop("fast");
    let error = store.apply(acquire("other")).await.expect_err("it is gone");
    assert!(
        matches!(
            error,
            StoreError::Unavailable { .. } | StoreError::Unknown { .. }
        ),
        "{error:?}"
    );
    let error = store
        .apply(acquire("other"))
        .await
        .expect_err("nothing was sent");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
}

/// L14, INV-10: rolled back by the server is certainly not applied.
#[tokio::test]
async fn a_cancelled_statement_was_not_applied() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let (session, locker) = (Session::open(&server).await, Session::open(&server).await);
    let store = leasehold::connect(&server.url()).await.unwrap();
    locker.must("BEGIN; LOCK TABLE leasehold.lease").await;
    let waits = tokio::spawn(async move { store.apply(acquire("job")).await });
    let cancel =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for _ in 0..200 {
        if session.must(cancel).await != "0" {
            break;
        }
        pass(20).await;
    }
    let error = waits
        .await
        .unwrap()
        .expect_err("cancelled, or too long locked");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    locker.must("COMMIT").await;
    assert_eq!(
        session.must("SELECT count(*) FROM leasehold.lease").await,
        "0"
    );
}

/// What `doctor` says of a server that loses tokens, with what mends it.
#[tokio::test]
async fn a_set_up_that_loses_tokens_is_found() {
    let Some(server) = Server::ready_with("fsync = off\nsynchronous_commit = off").await else {
        return;
    };
    let session = Session::open(&server).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let told = |findings: &[Finding], level, what: &str| {
        findings.iter().any(|finding| {
            finding.level == level && finding.what.contains(what) && finding.fix.is_some()
        })
    };
    session.must("ALTER TABLE leasehold.lease SET UNLOGGED; UPDATE leasehold.meta SET policy = 'trust_sync'").await;
    let findings = store.examine().await.unwrap();
    for what in ["unlogged", "fsync is off", "trust_sync"] {
        assert!(told(&findings, Level::Fault, what), "{what}: {findings:#?}");
    }
    assert!(
        told(&findings, Level::Warning, "synchronous_commit"),
        "{findings:#?}"
    );
    session
        .must("CREATE ROLE keeper; ALTER FUNCTION leasehold.evict(text) OWNER TO keeper")
        .await;
    let findings = store.examine().await.unwrap();
    assert!(told(&findings, Level::Warning, "keeper"), "{findings:#?}");
}
