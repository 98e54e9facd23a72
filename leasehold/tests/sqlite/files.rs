//! Files that are no store, or not safe as one: one clear error that names the file, and nothing changed (issue 2, "Bad
//! input"). What can be judged without SQLite is tested beside `place.rs`.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use leasehold::{
    Store, StoreError, connect,
    store::{HISTORY_KEPT, Level, sqlite::SqliteStore},
};
use rusqlite::Connection;

use crate::ask::{granted, name, place, random, release, skipped, ttl};

async fn is_refused(path: &Path, why: &str) {
    let before = fs::read(path).ok();
    let refused = SqliteStore::open(path).await;
    let Err(StoreError::Invalid { what }) = &refused else {
        panic!("{refused:?}")
    };
    assert!(
        what.contains(why) && what.contains(path.to_str().unwrap()),
        "{what}"
    );
    assert_eq!(fs::read(path).ok(), before, "it was changed");
}

#[tokio::test]
async fn what_is_no_store_is_refused_and_left_alone() {
    let (folder, path) = place();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    is_refused(&at("folder"), "it is a folder").await;

    fs::write(at("text"), "This is not a database at all. ".repeat(100)).unwrap();
    is_refused(&at("text"), "not a SQLite database").await;

    let other = Connection::open(at("other.db")).unwrap();
    other
        .execute_batch("CREATE TABLE users(name TEXT); INSERT INTO users VALUES ('a')")
        .unwrap();
    drop(other);
    is_refused(&at("other.db"), "database of another program").await;

    drop(SqliteStore::open(&path).await.unwrap());
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 7).unwrap();
    drop(newer);
    let refused = SqliteStore::open(&path).await.unwrap_err().to_string();
    assert!(
        refused.contains("version 7") && refused.contains("newer leasehold"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_read_only_file_system_is_refused() {
    let (folder, path) = place();
    drop(SqliteStore::open(&path).await.unwrap());
    let at = folder.path().join("read-only");
    fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "ro", "leasehold-test"])
        .arg(&at)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skipped("no file system can be mounted here (root is needed)");
    }
    let refused = SqliteStore::open(at.join("leases.db")).await;
    let _ = Command::new("umount").arg("-l").arg(&at).output();
    let Err(StoreError::Invalid { what }) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        what.contains("cannot be made") && what.contains("ead-only"),
        "{what}"
    );
}

#[tokio::test]
async fn a_store_is_made_for_its_user_alone() {
    let (folder, _) = place();
    let path = folder.path().join("new/folder/leases.db");
    let store = connect(&format!("sqlite:{}", path.display()))
        .await
        .unwrap();
    granted(&*store, "a", 1, ttl(10_000)).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for ending in ["db", "db-wal", "db-shm", "db.lock", "db.wake"] {
        assert_eq!(mode(&path.with_extension(ending)), 0o600, "{ending}");
    }
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let findings = store.examine().await.unwrap();
    assert!(
        findings.iter().all(|finding| finding.level == Level::Good),
        "{findings:?}"
    );
}

#[tokio::test]
async fn doctor_sees_files_that_everybody_may_write() {
    let (folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    granted(&*store, "a", 1, ttl(10_000)).await;
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let findings = store.examine().await.unwrap();
    let faults: Vec<_> = findings
        .iter()
        .filter(|one| one.level == Level::Fault)
        .collect();
    assert_eq!(faults.len(), 2, "{findings:?}");
    assert!(
        faults
            .iter()
            .all(|fault| fault.fix.as_ref().unwrap().contains("chmod o-w"))
    );
}

#[tokio::test]
async fn doctor_sees_damage() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    for lease in 0..300 {
        granted(&*store, &format!("lease-{lease}"), 1, ttl(10_000)).await;
    }
    drop(store);
    let log = path.with_extension("db-wal");
    for _ in 0..1_000 {
        if !log.exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(!log.exists(), "the store does not close");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 4096;
    bytes[last..].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let findings = store.examine().await.unwrap();
    let fault = findings.iter().find(|one| one.level == Level::Fault);
    assert!(
        fault.is_some_and(|fault| fault.what.contains("damaged")),
        "{findings:?}"
    );
}

#[tokio::test]
async fn doctor_tells_of_clock_and_file_system() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    let findings = store.examine().await.unwrap();
    for word in [
        "SQLite 3.",
        "boot time of boot",
        "file system is a local one",
        "side file agrees",
    ] {
        assert!(
            findings.iter().any(|one| one.what.contains(word)),
            "{word}: {findings:?}"
        );
    }
}

#[tokio::test]
async fn doctor_sees_a_restore() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    granted(&*store, "a", 1, ttl(10_000)).await;
    fs::remove_file(path.with_extension("db.lock")).unwrap();
    fs::write(path.with_extension("db.lock"), "").unwrap();
    let findings = store.examine().await.unwrap();
    let told = findings
        .iter()
        .any(|one| one.what.contains("put back from a copy"));
    assert!(told, "{findings:?}");
}

/// One that has turned its log off, as some tools do with copies, is put right.
#[tokio::test]
async fn a_file_without_its_log_gets_it_back() {
    let (_folder, path) = place();
    drop(SqliteStore::open(&path).await.unwrap());
    let db = Connection::open(&path).unwrap();
    for _ in 0..100 {
        if db.pragma_update(None, "journal_mode", "DELETE").is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    drop(db);
    let store = SqliteStore::open(&path).await.unwrap();
    granted(&*store, "a", 1, ttl(10_000)).await;
    let db = Connection::open(&path).unwrap();
    let mode: String = db
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn two_stores_of_one_process_share_a_file() {
    let (_folder, path) = place();
    let (one, two) = (
        SqliteStore::open(&path).await.unwrap(),
        SqliteStore::open(&path).await.unwrap(),
    );
    for _ in 1..20 {
        for store in [&one, &two] {
            let id = random();
            let token = granted(&**store, "a", id, ttl(10_000)).await;
            store.apply(release("a", token, id)).await.unwrap();
        }
        // Closing one must not take the other's locks away (SQ3).
        drop(SqliteStore::open(&path).await.unwrap());
    }
    assert_eq!(
        one.status(&name("a"))
            .await
            .unwrap()
            .unwrap()
            .token
            .unwrap()
            .get(),
        38
    );
}

/// The history does not grow without end; the newest events stay.
#[tokio::test]
async fn the_history_is_bounded() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).await.unwrap();
    granted(&*store, "a", 1, ttl(10_000)).await;
    let db = Connection::open(&path).unwrap();
    let copies = HISTORY_KEPT as i64 + 500;
    db.execute(
        "WITH RECURSIVE n(x) AS (SELECT 2 UNION ALL SELECT x + 1 FROM n WHERE x < ?1) \
         INSERT INTO event SELECT x, at, lease, what FROM n, event WHERE event.number = 1",
        [copies],
    )
    .unwrap();
    for turn in 2..600 {
        let token = granted(&*store, "b", turn, ttl(10_000)).await;
        store.apply(release("b", token, turn)).await.unwrap();
    }
    let count: i64 = db
        .query_row("SELECT count(*) FROM event", [], |row| row.get(0))
        .unwrap();
    assert!(count as u64 >= HISTORY_KEPT, "{count}");
    assert!((count as u64) < HISTORY_KEPT + 1_000, "{count}");
    let newest = store.history(Some(&name("b")), 0, 10_000).await.unwrap();
    assert_eq!(newest.len(), 2 * 598);
}
