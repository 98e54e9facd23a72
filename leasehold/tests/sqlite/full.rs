//! A disk that is full: refused with a clear error, nothing changed, and well again when there is room (SQ5).

use std::{fs, path::PathBuf, process::Command};

use leasehold::{
    Key, Store, StoreError,
    core::{Answer, Outcome},
    store::{Level, sqlite::SqliteStore},
};

use crate::ask::{acquire, answer, granted, name, place, put, release, renew, skipped, ttl};

/// A small disk in memory.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "leasehold-test"])
            .arg(&at)
            .output();
        mounted.ok()?.status.success().then_some(Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: the store's threads may still close their files.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing() {
    let (folder, _) = place();
    let Some(disk) = Small::mount(folder.path().join("small")) else {
        return skipped("no tmpfs can be mounted here (root is needed)");
    };
    let ballast = disk.0.join("ballast");
    fs::write(&ballast, vec![0; 200 << 10]).unwrap();
    let store = SqliteStore::open(disk.0.join("leases.db")).await.unwrap();
    let token = granted(&*store, "a", 1, ttl(60_000)).await;
    let large = "x".repeat(60_000);
    let mut written = 0;
    let refused = loop {
        let key = format!("key-{written}");
        match store.apply(put(&key, &large)).await {
            Ok(outcome) => assert_eq!(outcome, Outcome::Done),
            Err(error) => break error,
        }
        written += 1;
        assert!(written < 100, "a disk of 1 MB took 6 MB");
    };
    let StoreError::Unavailable { what } = &refused else {
        panic!("{refused:?}")
    };
    assert!(what.contains("the disk is full"), "{what}");
    let missing = store
        .pair(&Key::new(&format!("key-{written}")).unwrap())
        .await
        .unwrap();
    assert_eq!(missing, None, "nothing of it is there");

    // A large one that does not fit does not take a small one in the same group down.
    let filler = disk.0.join("filler");
    let replies = store
        .apply_all(vec![
            put("large", &large),
            put("large too", &large),
            put("small", "y"),
        ])
        .await;
    println!("beside large ones on a full disk: {:?}", replies[2]);
    for reply in &replies {
        assert!(
            matches!(
                reply,
                Ok(Outcome::Done) | Err(StoreError::Unavailable { .. })
            ),
            "{reply:?}"
        );
    }
    fs::write(&filler, vec![0; 2 << 20]).unwrap_err();
    for number in 0..50 {
        let now = store
            .apply(acquire(&format!("lease-{number}"), "b", 2, ttl(60_000)))
            .await;
        match now {
            Ok(outcome) => assert!(matches!(outcome, Outcome::Lease(Answer::Granted(_)))),
            Err(StoreError::Unavailable { .. }) => {
                let status = store
                    .status(&name(&format!("lease-{number}")))
                    .await
                    .unwrap();
                assert_eq!(status, None, "INV-10");
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fs::remove_file(&filler).unwrap();
    fs::remove_file(&ballast).unwrap();
    let kept = answer(store.apply(renew("a", token, 1, 1, ttl(60_000))).await);
    assert_eq!(kept, Answer::Renewed { ttl: ttl(60_000) });
    store.apply(release("a", token, 1)).await.unwrap();
    assert_eq!(
        Some(granted(&*store, "a", 2, ttl(60_000)).await),
        token.next()
    );
    let findings = store.examine().await.unwrap();
    assert!(
        findings.iter().all(|finding| finding.level < Level::Fault),
        "{findings:?}"
    );
}
