//! A file that was put back from a copy, replaced, deleted or moved: no token is ever issued twice (A9, SQ3, INV-8).

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use leasehold::{
    Store, StoreError, Token, WallTime,
    clock::Clock,
    core::{Answer, What},
    store::sqlite::{HostClock, SqliteStore},
    testing::VirtualClock,
};

use crate::ask::{acquire, answer, clock_at, granted, name, place, release, store_of, ttl};

const BOOT: &str = "the same boot";

/// Takes and gives the lease so often; the last token.
async fn turns(store: &dyn Store, lease: &str, count: u64) -> Token {
    let mut last = Token::FIRST;
    for turn in 1..=count {
        last = granted(store, lease, u128::from(turn), ttl(1_000)).await;
        store
            .apply(release(lease, last, u128::from(turn)))
            .await
            .unwrap();
    }
    last
}

/// A whole copy of a store that may be in use.
fn back_up(path: &Path) -> PathBuf {
    let copy = path.with_extension("backup");
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
        .unwrap();
    copy
}

/// Waits until the store's threads have let go of its files.
async fn close(store: Arc<SqliteStore>, path: &Path) {
    drop(store);
    let log = path.with_extension("db-wal");
    for _ in 0..500 {
        if !log.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the store does not close");
}

/// In quarantine for one ttl, then granted with a token above `last`.
async fn goes_on_above(store: &dyn Store, clock: &VirtualClock, lease: &str, last: Token) {
    let now = answer(store.apply(acquire(lease, "b", 99, ttl(1_000))).await);
    assert!(matches!(now, Answer::Quarantined { .. }), "{now:?}");
    clock.advance(Duration::from_secs(1));
    let next = granted(store, lease, 99, ttl(1_000)).await;
    assert!(next > last, "INV-8: {next} after {last}");
    let history = store.history(Some(&name(lease)), 0, 1_000).await.unwrap();
    let told = history
        .iter()
        .any(|one| matches!(one.event.what, What::Quarantined { .. }));
    assert!(told, "{history:?}");
}

/// FB-7, A9. Over the old file, and in its place.
#[tokio::test]
async fn a_file_put_back_from_a_copy_never_repeats_a_token() {
    for same_inode in [true, false] {
        let (_folder, path) = place();
        let clock = clock_at(100);
        let store = store_of(&path, &clock, BOOT).await;
        turns(&*store, "a", 5).await;
        let copy = back_up(&path);
        let last = turns(&*store, "a", 20).await;
        close(store, &path).await;
        if !same_inode {
            fs::remove_file(&path).unwrap();
        }
        fs::copy(copy, &path).unwrap();
        let store = store_of(&path, &clock, BOOT).await;
        goes_on_above(&*store, &clock, "a", last).await;
        let new = granted(&*store, "never heard of", 1, ttl(1_000)).await;
        assert!(new > last, "the floor holds for new names: {new}");
    }
}

/// A renewal that the copy does not know was a promise as well.
#[tokio::test]
async fn a_copy_that_lacks_only_a_renewal_is_noticed() {
    let (_folder, path) = place();
    let clock = clock_at(100);
    let store = store_of(&path, &clock, BOOT).await;
    let token = granted(&*store, "a", 1, ttl(1_000)).await;
    let copy = back_up(&path);
    store
        .apply(crate::ask::renew("a", token, 1, 1, ttl(60_000)))
        .await
        .unwrap();
    close(store, &path).await;
    fs::copy(copy, &path).unwrap();
    let store = store_of(&path, &clock, BOOT).await;
    goes_on_above(&*store, &clock, "a", token).await;
}

#[tokio::test]
async fn a_file_replaced_while_open_grants_nothing_and_then_goes_on_above() {
    let (_folder, path) = place();
    let clock = clock_at(100);
    let store = store_of(&path, &clock, BOOT).await;
    turns(&*store, "a", 5).await;
    let copy = back_up(&path);
    let last = turns(&*store, "a", 20).await;
    fs::rename(&copy, &path).unwrap();
    let refused = store.apply(acquire("a", "b", 50, ttl(1_000))).await;
    let text = refused
        .as_ref()
        .expect_err("granted in a file that nobody sees")
        .to_string();
    assert!(
        matches!(refused, Err(StoreError::Unavailable { .. })),
        "{text}"
    );
    assert!(
        text.contains("replaced") && text.contains(path.to_str().unwrap()),
        "{text}"
    );
    // The old log is not the new file's.
    for ending in ["db-wal", "db-shm"] {
        let _ = fs::remove_file(path.with_extension(ending));
    }
    goes_on_above(&*store, &clock, "a", last).await;
}

#[tokio::test]
async fn a_file_deleted_while_open_grants_nothing_and_is_not_made_again() {
    let (_folder, path) = place();
    let clock = clock_at(100);
    let store = store_of(&path, &clock, BOOT).await;
    let last = turns(&*store, "a", 5).await;
    let copy = back_up(&path);
    fs::remove_file(&path).unwrap();
    for _ in 0..3 {
        let refused = store.apply(acquire("a", "b", 50, ttl(1_000))).await;
        let text = refused
            .expect_err("granted in a file that nobody sees")
            .to_string();
        assert!(text.contains("deleted"), "{text}");
        assert!(store.status(&name("a")).await.is_err());
    }
    assert!(!path.exists());
    for ending in ["db-wal", "db-shm"] {
        let _ = fs::remove_file(path.with_extension(ending));
    }
    fs::rename(copy, &path).unwrap();
    let next = granted(&*store, "a", 51, ttl(1_000)).await;
    assert!(next > last, "what was put back lacks nothing: {next}");
    assert_eq!(Some(next), last.next());
}

#[tokio::test]
async fn a_new_file_in_place_of_a_lost_one_goes_on_above() {
    let (_folder, path) = place();
    let clock = clock_at(100);
    let store = store_of(&path, &clock, BOOT).await;
    let last = turns(&*store, "a", 20).await;
    close(store, &path).await;
    fs::remove_file(&path).unwrap();
    let store = store_of(&path, &clock, BOOT).await;
    let next = granted(&*store, "a", 50, ttl(1_000)).await;
    assert!(next > last, "the side file remembers: {next}");
}

/// What the side file proved is gone with it, so the store must doubt.
#[tokio::test]
async fn a_side_file_removed_or_foreign_is_a_reason_to_doubt() {
    for foreign in [false, true] {
        let (_folder, path) = place();
        let clock = clock_at(100);
        let store = store_of(&path, &clock, BOOT).await;
        let last = turns(&*store, "a", 5).await;
        let side = path.with_extension("db.lock");
        if foreign {
            let (_other_folder, other) = place();
            let another = store_of(&other, &clock, BOOT).await;
            turns(&*another, "a", 2).await;
            close(another, &other).await;
            close(store, &path).await;
            fs::copy(other.with_extension("db.lock"), &side).unwrap();
        } else {
            // While it is in use.
            fs::remove_file(&side).unwrap();
            drop(store);
        }
        let store = store_of(&path, &clock, BOOT).await;
        goes_on_above(&*store, &clock, "a", last).await;
        let last = granted(&*store, "b", 1, ttl(1_000)).await;
        close(store, &path).await;
        let store = store_of(&path, &clock, BOOT).await;
        store.apply(release("b", last, 1)).await.unwrap();
        assert_eq!(
            Some(granted(&*store, "b", 2, ttl(1_000)).await),
            last.next(),
            "once is enough"
        );
    }
}

/// All files put back together agree with each other, but the side file has another inode.
#[tokio::test]
async fn a_whole_folder_put_back_is_noticed() {
    let (folder, path) = place();
    let clock = clock_at(100);
    let store = store_of(&path, &clock, BOOT).await;
    turns(&*store, "a", 5).await;
    close(store, &path).await;
    let copy = tempfile::tempdir_in(folder.path()).unwrap();
    for ending in ["db", "db.lock"] {
        let from = path.with_extension(ending);
        fs::copy(&from, copy.path().join(from.file_name().unwrap())).unwrap();
    }
    let store = store_of(&path, &clock, BOOT).await;
    let last = turns(&*store, "a", 20).await;
    close(store, &path).await;
    let put_back = copy.path().join("leases.db");
    let store = store_of(&put_back, &clock, BOOT).await;
    goes_on_above(&*store, &clock, "a", last).await;
}

/// Closed and opened, killed between commit and side file, or back from a power loss: no reason to doubt.
#[tokio::test]
async fn an_honest_file_keeps_its_dense_tokens() {
    let (_folder, path) = place();
    let clock = clock_at(100);
    let side = path.with_extension("db.lock");
    let mut older = None;
    for turn in 1..=5 {
        let store = store_of(&path, &clock, BOOT).await;
        let token = granted(&*store, "a", turn, ttl(1_000)).await;
        assert_eq!(u128::from(token.get()), turn);
        store.apply(release("a", token, turn)).await.unwrap();
        close(store, &path).await;
        // The same file with what it said a turn ago: the last write did not reach the disk.
        let now = fs::read(&side).unwrap();
        if let Some(older) = older.replace(now) {
            fs::write(&side, older).unwrap();
        }
    }
}

/// A10: a clock that is behind the history cannot judge a number.
#[tokio::test]
async fn with_a_wrong_clock_no_safe_token_is_made_up() {
    #[derive(Debug)]
    struct Past(Arc<VirtualClock>);
    impl Clock for Past {
        fn now(&self) -> leasehold::BootTime {
            self.0.now()
        }
        fn wall(&self) -> WallTime {
            WallTime::from_nanos(1_000_000_000)
        }
    }
    let (_folder, path) = place();
    let clock = clock_at(100);
    let store = store_of(&path, &clock, BOOT).await;
    let last = turns(&*store, "a", 5).await;
    close(store, &path).await;
    fs::remove_file(path.with_extension("db.lock")).unwrap();
    let host = HostClock::with(Arc::new(Past(clock.clone())), BOOT);
    let store = SqliteStore::open_with(&path, host).await.unwrap();
    let refused = store
        .apply(acquire("a", "b", 50, ttl(1_000)))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("clock"), "{refused}");
    drop(store);
    let store = store_of(&path, &clock, BOOT).await;
    goes_on_above(&*store, &clock, "a", last).await;
}
