//! The keeper over the store in a file, on the machine's clock.

use leasehold::{Keeper, Ttl, Wait};

use crate::rig::*;

/// FB-28: somebody else's long transaction keeps the file locked when the renewal is due. It is tried again within the
/// time that is left, and nothing is lost.
#[test]
fn a_long_writer_costs_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = now(leasehold::connect(&format!("sqlite:{}", path.display()))).unwrap();
    let ttl = Ttl::from_millis(9_000).unwrap();
    let keeper = Keeper::new(store.clone(), name()).ttl(ttl);
    let guard = keeper.acquire_blocking().unwrap();
    let first = guard.deadline();

    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.busy_timeout(seconds(5)).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::sleep(millis(3_500));
    assert_eq!(
        guard.deadline(),
        first,
        "the renewal was due and did not pass"
    );
    writer.execute_batch("COMMIT").unwrap();

    assert!(now(guard.extended(first)) > first);
    assert!(!guard.is_lost());
    let stranger = Keeper::new(store, name()).wait(Wait::No);
    assert!(stranger.acquire_blocking().is_err());
    guard.release_blocking().unwrap();
    assert_eq!(stranger.acquire_blocking().unwrap().token().get(), 2);
}
