//! The SQLite store keeps the contract of every store, in real time and on a clock that is moved by hand.

use std::time::Duration;

use leasehold::store::{
    contract::{self, Time},
    sqlite::SqliteStore,
};

use crate::ask::{clock_at, place, store_of};

#[tokio::test]
async fn it_keeps_the_contract_in_real_time() {
    let (_folder, path) = place();
    let store = SqliteStore::open(path).await.unwrap();
    let report = contract::all(&*store, Time::Real).await;
    let skipped: Vec<_> = report.skipped.iter().map(|(test, _)| *test).collect();
    assert_eq!(
        skipped,
        ["a_forgotten_name_never_repeats_a_token"],
        "the other test runs it"
    );
}

#[tokio::test]
async fn it_keeps_the_contract_when_days_pass() {
    let (_folder, path) = place();
    let clock = clock_at(7);
    let store = store_of(&path, &clock, "a boot").await;
    let advance = |by: Duration| clock.advance(by);
    let report = contract::all(&*store, Time::Virtual(&advance)).await;
    assert_eq!(report.skipped, []);
}
