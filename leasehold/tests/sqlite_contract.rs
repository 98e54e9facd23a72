//! The SQLite store keeps the contract of every store, in real time and on a clock that is moved by hand.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    BootTime, WallTime,
    clock::Clock,
    store::{
        contract::{self, Time},
        sqlite::{HostClock, SqliteStore},
    },
};

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(1_796_000_000_000_000_000 + self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn it_keeps_the_contract_in_real_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("leases.db"))
        .await
        .unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::default());
    let host = HostClock::with(clock.clone(), "a boot for tests");
    let store = SqliteStore::open_with(folder.path().join("leases.db"), host)
        .await
        .unwrap();
    let advance = |by: Duration| {
        clock.0.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    };
    let report = contract::all(&*store, Time::Virtual(&advance)).await;
    assert_eq!(report.skipped, []);
}
