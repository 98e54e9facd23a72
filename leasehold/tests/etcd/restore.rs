//! ET10, T6, INV-8: an etcd that was restored from a copy would issue its tokens again.

use leasehold::core::Answer;

use crate::{
    asker::Asker,
    server::{Server, Version},
};

#[tokio::test]
async fn a_restored_etcd_repeats_no_token_and_keeps_old_promises() {
    let Some(version) = Version::debian() else {
        return;
    };
    let mut server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let (a, b) = (
        Asker::new(&store, "job", 3),
        Asker::new(&store, "unknown", 3),
    );
    let first = a.take().await;
    let copy = server.folder().join("copy");
    server.ctl(["snapshot", "save", copy.to_str().unwrap()]);
    // What the copy does not know.
    let second = b.take().await;
    assert!(second > first);
    server.kill();
    std::fs::remove_dir_all(server.data()).unwrap();
    let restored = server.ctl([
        "snapshot",
        "restore",
        copy.to_str().unwrap(),
        "--data-dir",
        server.data().to_str().unwrap(),
        "--name",
        "m0",
        "--initial-cluster",
        server.cluster(),
        "--initial-advertise-peer-urls",
        &server.peer_url(),
        "--initial-cluster-token",
        "restored",
    ]);
    println!("{restored}");
    server.run();
    server.ready().await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let c = Asker::new(&store, "unknown", 3);
    let answer = c.ask().await.unwrap();
    assert!(
        matches!(answer, Answer::Quarantined { .. }),
        "b's promise may still run: {answer:?}"
    );
    let renewed = Asker {
        store: store.clone(),
        ..a.clone()
    }
    .renew(first, 1)
    .await
    .unwrap();
    assert!(matches!(renewed, Answer::Lost(_)), "{renewed:?}");
    let token = c.take().await;
    assert!(token > second, "{token} after {second}");
}
