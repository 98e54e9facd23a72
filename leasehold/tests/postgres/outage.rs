//! What an administrator does to a server under a store in use (L14): told as what it is, and well again once it is
//! undone, for the same store.

use leasehold::StoreError;

use crate::{
    ask::{Shared, acquire, answer, granted_at_last},
    server::Server,
    session::{Session, pass},
};

/// The kind of an error.
fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Invalid { .. } => "invalid",
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::Unknown { .. } => "unknown",
        _ => "other",
    }
}

/// What is done, what is said of it, and what undoes it.
const FAULTS: [(&str, (&str, &str), &str); 5] = [
    (
        "ALTER SCHEMA leasehold RENAME TO away",
        ("invalid", "leasehold migrate"),
        "ALTER SCHEMA away RENAME TO leasehold",
    ),
    (
        "REVOKE USAGE ON SCHEMA leasehold FROM plain",
        ("invalid", "GRANT USAGE ON SCHEMA leasehold"),
        "GRANT USAGE ON SCHEMA leasehold TO plain",
    ),
    (
        "ALTER ROLE plain SET default_transaction_read_only = on",
        ("unavailable", "read-only"),
        "ALTER ROLE plain RESET default_transaction_read_only",
    ),
    (
        "ALTER ROLE plain CONNECTION LIMIT 0",
        ("unavailable", "too many connections"),
        "ALTER ROLE plain CONNECTION LIMIT -1",
    ),
    (
        "ALTER ROLE plain NOLOGIN",
        ("invalid", "not permitted to log in"),
        "ALTER ROLE plain LOGIN",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_undone_is_over_for_the_store() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let admin = Session::open(&server).await;
    admin
        .must("CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA leasehold TO plain")
        .await;
    let url = format!("postgres://plain@127.0.0.1:{}/postgres", server.port());
    let store: Shared = leasehold::connect(&url).await.unwrap();
    for (number, (cause, (is, says), undo)) in FAULTS.into_iter().enumerate() {
        granted_at_last(&store, "steady", 1, 60_000).await;
        admin.must(cause).await;
        // So that the next statement needs a new connection.
        admin
            .must("SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE usename = 'plain'")
            .await;
        let lease = format!("job-{number}");
        let error = told(&store, &lease).await;
        assert_eq!(kind(&error), is, "{cause}: {error:?}");
        assert!(error.to_string().contains(says), "{cause}: {error}");
        admin.must(undo).await;
        assert_eq!(
            granted_at_last(&store, &lease, 1, 60_000).await,
            1,
            "{cause}"
        );
    }
}

/// The error, once the store has heard that its connection is gone.
async fn told(store: &Shared, lease: &str) -> StoreError {
    for _ in 0..600 {
        match answer(store, acquire(lease, 1, 60_000)).await {
            Err(StoreError::Unknown { .. }) => pass(100).await,
            other => return other.expect_err("the fault goes unseen"),
        }
    }
    panic!("always unknown");
}
