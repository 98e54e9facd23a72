//! A disk that is full: refused with a clear error, nothing changed, and well again when there is room.

use std::{fs, path::PathBuf, process::Command};

use leasehold::{StoreError, core::Answer};

use crate::{
    ask::{acquire, answer, granted, release, renew},
    server::{Server, skipped},
    session::Session,
};

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
        // Lazily: the server still has its files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// L14, T4: leases and their history are on a disk of their own, which is full.
#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let Some(disk) = Small::mount(server.folder().join("small")) else {
        return skipped("no tmpfs can be mounted here (root is needed)");
    };
    server.hand_over(&disk.0);
    let session = Session::open(&server).await;
    let place = disk.0.display();
    session
        .must(&format!("CREATE TABLESPACE small LOCATION '{place}'"))
        .await;
    for table in ["lease", "event"] {
        session
            .must(&format!(
                "ALTER TABLE leasehold.{table} SET TABLESPACE small"
            ))
            .await;
    }
    let store = server.store().await;
    assert_eq!(granted(&store, "kept", 1, 600_000).await, 1);
    session
        .must("CREATE TABLE ballast (page text) TABLESPACE small; ALTER TABLE ballast ALTER page SET STORAGE PLAIN")
        .await;
    let page = "INSERT INTO ballast VALUES (repeat('x', 7000))";
    let mut pages = 0;
    while session.run(page).await.is_ok() {
        pages += 1;
        assert!(pages < 1000, "a disk of 1 MB took 8 MB");
    }
    let mut number = 0;
    let refused = loop {
        let lease = format!("job {number}");
        match answer(&store, acquire(&lease, 1, 600_000)).await {
            Ok(Answer::Granted(grant)) => assert_eq!(grant.token.get(), 1),
            Ok(other) => panic!("{lease}: {other:?}"),
            Err(error) => break error,
        }
        number += 1;
        assert!(number < 5000, "it is not full");
    };
    let StoreError::Unavailable { what } = &refused else {
        panic!("{refused:?}")
    };
    assert!(what.contains("No space left"), "{what}");
    let missing = format!("job {number}");
    let status = store.status(&crate::ask::name(&missing)).await.unwrap();
    assert!(status.is_none(), "nothing of it is there: {status:?}");

    // Its holder is told the truth: renewed, or certainly not.
    let renewal = || renew("kept", 1, 1, 1, 600_000);
    match answer(&store, renewal()).await {
        Ok(Answer::Renewed { .. }) | Err(StoreError::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    session.must("DROP TABLE ballast").await;
    let renewed = answer(&store, renewal()).await.unwrap();
    assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
    assert_eq!(granted(&store, &missing, 1, 600_000).await, 1);
    for lease in 0..number {
        let lease = format!("job {lease}");
        assert_eq!(granted(&store, &lease, 1, 600_000).await, 1, "{lease}");
    }
    answer(&store, release("kept", 1, 1)).await.unwrap();
    assert_eq!(granted(&store, "kept", 2, 600_000).await, 2);
    server.stop("fast");
    drop(disk);
}
