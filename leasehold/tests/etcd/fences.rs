//! F24: the user's own keys, written in the user's own transaction, only while the token holds.

use std::time::Duration;

use etcd_client::{Client, Txn, TxnOp};
use leasehold::{
    Keeper, Proof, Refusal, SharedStore,
    core::{Answer, Command},
    fence::{FenceError, etcd},
    store::etcd::EtcdStore,
};

use crate::{
    asker::{Asker, lease},
    server::{Server, Version},
};

async fn value(client: &mut Client, key: &str) -> String {
    let got = client.get(key, None).await.unwrap();
    got.kvs()
        .first()
        .map_or_else(String::new, |kv| kv.value_str().unwrap().to_owned())
}

/// INV-20, INV-22: refused from the moment of the takeover on, before the successor writes anything; who waits has not
/// passed either.
#[tokio::test]
async fn a_stale_writer_and_a_waiter_are_refused_and_leave_no_trace() {
    for version in Version::all() {
        let server = Server::start(&version).await;
        let etcd_store = EtcdStore::connect(&server.url()).await.unwrap();
        let store: SharedStore = etcd_store.clone();
        let mut client = Client::connect([server.place()], None).await.unwrap();
        let (a, b) = (Asker::new(&store, "job", 60), Asker::new(&store, "job", 60));
        let old = a.take().await;
        let proof = |token| Proof {
            lease: lease("job"),
            token,
        };
        let mine = etcd::check(&etcd_store, &proof(old)).await.unwrap();
        let write = |when: &Vec<_>, text: &str| {
            Txn::new()
                .when(when.clone())
                .and_then([TxnOp::put("data", text, None)])
        };
        assert!(client.txn(write(&mine, "by a")).await.unwrap().succeeded());
        assert!(matches!(b.ask().await.unwrap(), Answer::Held(_)));
        assert!(matches!(b.ask().await.unwrap(), Answer::Held(_)));
        let waiting = client
            .get("job/", Some(etcd_client::GetOptions::new().with_prefix()))
            .await
            .unwrap();
        let revision = waiting
            .kvs()
            .iter()
            .map(|kv| kv.create_revision())
            .max()
            .unwrap();
        let early = leasehold::Token::new(revision.unsigned_abs()).unwrap();
        let error = etcd::check(&etcd_store, &proof(early)).await.unwrap_err();
        assert!(
            matches!(error, FenceError::Refused(Refusal::NeverIssued { .. })),
            "{error}"
        );

        assert_eq!(a.release(old).await, Answer::Released);
        assert!(
            !client
                .txn(write(&mine, "released"))
                .await
                .unwrap()
                .succeeded()
        );
        let new = b.take().await;
        assert!(!client.txn(write(&mine, "stale")).await.unwrap().succeeded());
        let error = etcd::written(&etcd_store, &proof(old), false)
            .await
            .unwrap_err();
        let stale = Refusal::Stale {
            token: old,
            highest: new,
        };
        assert!(
            matches!(&error, FenceError::Refused(refusal) if *refusal == stale),
            "{error}"
        );
        assert_eq!(value(&mut client, "data").await, "by a");
        let mine = etcd::check(&etcd_store, &proof(new)).await.unwrap();
        assert!(client.txn(write(&mine, "by b")).await.unwrap().succeeded());
    }
}

/// F9: the refusal ends the tenure of the guard that showed the token.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_moves_the_guard_to_lost() {
    let Some(version) = Version::newest() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = EtcdStore::connect(&server.url()).await.unwrap();
    let keeper = Keeper::new(store.clone(), lease("job"));
    let guard = keeper.acquire().await.unwrap();
    let mine = etcd::check(&store, &guard).await.unwrap();
    let shared: SharedStore = store.clone();
    let operator = Asker::new(&shared, "job", 60);
    operator
        .say(Command::ForceRelease { now: true })
        .await
        .unwrap();
    let mut client = Client::connect([server.place()], None).await.unwrap();
    let txn = Txn::new()
        .when(mine)
        .and_then([TxnOp::put("data", "stale", None)]);
    let done = client.txn(txn).await.unwrap().succeeded();
    let error = etcd::written(&store, &guard, done).await.unwrap_err();
    assert!(
        matches!(error, FenceError::Refused(Refusal::Stale { .. })),
        "{error}"
    );
    assert!(guard.is_lost());
    tokio::time::sleep(Duration::from_millis(1)).await;
    guard.check().unwrap_err();
}
