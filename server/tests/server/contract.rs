//! `http://` keeps the contract of every store, over each kind of store behind the server.

use std::time::Duration;

use leasehold::{
    store::{
        contract::{self, Report, Time},
        memory::MemoryStore,
        sqlite::SqliteStore,
    },
    testing::VirtualClock,
};

use crate::rig::Server;

#[path = "../../../leasehold/tests/postgres/server.rs"]
#[allow(dead_code, reason = "the tests of that store use all of it")]
mod postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_over_memory_keeps_the_contract_when_days_pass() {
    let clock = VirtualClock::new();
    let server = Server::over(MemoryStore::with_clock(clock.clone())).await;
    let advance = |by: Duration| clock.advance(by);
    let report = contract::all(&*server.client().await, Time::Virtual(&advance)).await;
    assert_eq!(report.skipped, []);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_over_a_file_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("leases.db"))
        .await
        .unwrap();
    let server = Server::over(store).await;
    let report = contract::all(&*server.client().await, Time::Real).await;
    only_days_were_skipped(&report);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_over_postgresql_keeps_the_contract() {
    let Some(version) = postgres::Version::one() else {
        return;
    };
    let database = postgres::Server::start(&version);
    leasehold::store::postgres::migrate(&database.url())
        .await
        .unwrap();
    let store = leasehold::connect(&database.url()).await.unwrap();
    let server = Server::over(store).await;
    let report = contract::all(&*server.client().await, Time::Real).await;
    let skipped: Vec<_> = report.skipped.iter().map(|(_, missing)| *missing).collect();
    assert!(skipped.contains(&"no pairs"), "{skipped:?}");
    server.stop().await;
}

fn only_days_were_skipped(report: &Report) {
    let skipped: Vec<_> = report.skipped.iter().map(|(test, _)| *test).collect();
    assert_eq!(skipped, ["a_forgotten_name_never_repeats_a_token"]);
}
