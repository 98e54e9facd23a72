//! One member: the whole contract, and what a restart keeps.

use std::time::Duration;

use leasehold::{
    Store,
    store::contract::{self, Time},
    testing::VirtualClock,
};
use leasehold_raft::{Config, RaftStore};

use crate::rig::{Asker, alone, quick};

#[tokio::test]
async fn one_member_keeps_the_contract_in_real_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = alone(folder.path()).await;
    let report = contract::all(&*store, Time::Real).await;
    let skipped: Vec<_> = report.skipped.iter().map(|(test, _)| *test).collect();
    assert_eq!(
        skipped,
        ["a_forgotten_name_never_repeats_a_token"],
        "the other test runs it"
    );
    store.stop().await;
}

/// Log time goes by the clock of the leader alone.
#[tokio::test]
async fn one_member_keeps_the_contract_when_days_pass() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new();
    let store = RaftStore::start(Config {
        clock: clock.clone(),
        ..quick(folder.path())
    });
    let store = store.await.unwrap();
    store.init().await.unwrap();
    let advance = |by: Duration| clock.advance(by);
    let report = contract::all(&*store, Time::Virtual(&advance)).await;
    assert_eq!(report.skipped, []);
    store.stop().await;
}

/// INV-7. Nothing that was answered is missing after a restart, and the next token is the next one.
#[tokio::test]
async fn a_restart_forgets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = alone(folder.path()).await;
    let holder = Asker::new("nightly");
    let grant = holder.granted(&*store, 60_000).await;
    let before = store.status(&holder.name).await.unwrap().unwrap();
    store.stop().await;
    drop(store);

    let store = RaftStore::start(quick(folder.path())).await.unwrap();
    let after = store.status(&holder.name).await.unwrap().unwrap();
    assert_eq!(
        (after.token, after.session_hash),
        (before.token, before.session_hash)
    );
    assert_eq!(after.token, Some(grant.token));
    let history = store.history(None, 0, 10).await.unwrap();
    assert_eq!(history.len(), 1, "{history:?}");
    store.stop().await;
}
