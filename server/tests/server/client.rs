//! `http://` under the faults of a network: answers that are lost, servers that are gone, servers that are none.

use std::{net::SocketAddr, time::Duration};

use leasehold::{
    Keeper, StoreError, Ttl,
    core::{Acquire, Answer, Command, LockDelay, Op, Outcome, Renew},
    store::{Store, http::HttpStore, memory::MemoryStore},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

use crate::rig::{LIMIT, Server};

/// A way to a server that can swallow answers.
struct Proxy {
    at: SocketAddr,
    swallow: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (swallow, swallows) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(carry(client, server, swallows.clone()));
            }
        });
        Self { at, swallow, task }
    }
}

/// Carries what comes; an answer that is to be swallowed ends the connection after the server has done it.
async fn carry(client: TcpStream, server: TcpStream, swallows: watch::Receiver<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
        if *swallows.borrow() || to_client.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acquire(lease: &str, number: u128, ttl: u64) -> Op {
    Op::Lease {
        name: lease.parse().unwrap(),
        command: Command::Acquire(Acquire {
            session: leasehold::Session::from_bits(number).unwrap(),
            request_id: leasehold::RequestId::from_bits(number).unwrap(),
            holder: format!("h{number}").parse().unwrap(),
            info: None,
            ttl: Ttl::from_millis(ttl).unwrap(),
            lock_delay: LockDelay::NONE,
        }),
    }
}

fn renew(lease: &str, number: u128) -> Op {
    Op::Lease {
        name: lease.parse().unwrap(),
        command: Command::Renew(Renew {
            token: leasehold::Token::FIRST,
            session: leasehold::Session::from_bits(number).unwrap(),
            ttl: Ttl::DEFAULT,
            number: 1,
            renew_id: leasehold::RenewId::from_bits(number).unwrap(),
        }),
    }
}

fn token(outcome: Result<Outcome, StoreError>) -> u64 {
    match outcome {
        Ok(Outcome::Lease(Answer::Granted(grant))) => grant.token.get(),
        other => panic!("not granted: {other:?}"),
    }
}

/// L9, L14, INV-6: cut after the commit and before the answer, the most valuable single fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_unknown_and_the_same_request_finds_its_grant() {
    let server = Server::over(MemoryStore::new()).await;
    let proxy = Proxy::to(server.at).await;
    let store = HttpStore::connect(&format!("http://{}", proxy.at))
        .await
        .unwrap();
    proxy.swallow.send_replace(true);
    let lost = store.apply(acquire("a", 1, 15_000)).await;
    assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{lost:?}");
    let waited = store
        .apply_waiting(acquire("b", 2, 15_000), Duration::from_secs(1))
        .await;
    assert!(
        matches!(waited, Err(StoreError::Unknown { .. })),
        "{waited:?}"
    );
    let read = store.status(&"a".parse().unwrap()).await;
    assert!(
        matches!(read, Err(StoreError::Unavailable { .. })),
        "a read changes nothing: {read:?}"
    );
    proxy.swallow.send_replace(false);
    assert_eq!(token(store.apply(acquire("a", 1, 15_000)).await), 1);
    assert_eq!(
        token(
            store
                .apply_waiting(acquire("b", 2, 15_000), Duration::from_secs(1))
                .await
        ),
        1
    );
    let other = store.apply(acquire("a", 3, 15_000)).await;
    assert!(
        matches!(other, Ok(Outcome::Lease(Answer::Held(_)))),
        "{other:?}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_has_certainly_done_nothing() {
    let server = Server::over(MemoryStore::new()).await;
    let store = HttpStore::connect(&server.url()).await.unwrap();
    assert_eq!(token(store.apply(acquire("a", 1, 15_000)).await), 1);
    server.stop().await;
    let gone = store.apply(acquire("b", 1, 15_000)).await;
    assert!(
        matches!(
            gone,
            Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. })
        ),
        "{gone:?}"
    );
    let gone = store.apply(acquire("b", 1, 15_000)).await;
    assert!(
        matches!(gone, Err(StoreError::Unavailable { .. })),
        "nothing was sent: {gone:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_one_server_is_gone_the_next_is_asked() {
    let store = MemoryStore::new();
    let (one, two) = (Server::over(store.clone()).await, Server::over(store).await);
    let url = format!("http://{},{}", one.at, two.at);
    let client = HttpStore::connect(&url).await.unwrap();
    assert_eq!(token(client.apply(acquire("a", 1, 15_000)).await), 1);
    one.stop().await;
    let mut last = None;
    for _ in 0..2 {
        // The connection that was open may break with the first.
        last = Some(client.apply(acquire("a", 1, 15_000)).await);
        if last.as_ref().is_some_and(Result::is_ok) {
            break;
        }
    }
    assert_eq!(token(last.unwrap()), 1, "the same store, the same grant");
    assert!(
        HttpStore::connect(&url).await.is_ok(),
        "the first of the list is gone"
    );
    two.stop().await;
}

/// What keepers of one process ask at the same time goes in few requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_renewals_of_a_process_go_together() {
    let server = Server::over(MemoryStore::new()).await;
    let store = HttpStore::connect(&server.url()).await.unwrap();
    let names: Vec<String> = (0..1000).map(|number| format!("lease-{number}")).collect();
    let all = store
        .apply_all(names.iter().map(|name| acquire(name, 1, 60_000)).collect())
        .await;
    assert!(all.into_iter().all(|outcome| token(outcome) == 1));
    let renewals: Vec<_> = names
        .iter()
        .map(|name| {
            let (store, op) = (store.clone(), renew(name, 1));
            tokio::spawn(async move { store.apply(op).await })
        })
        .collect();
    for renewal in renewals {
        let outcome = renewal.await.unwrap();
        assert!(
            matches!(outcome, Ok(Outcome::Lease(Answer::Renewed { .. }))),
            "{outcome:?}"
        );
    }
    let metrics = server.get("/metrics").await.text();
    let batches = metrics.lines().find_map(|line| {
        line.strip_prefix("leasehold_requests_total{route=\"/v1/batch\",status=\"200\"} ")
    });
    let batches: u32 = batches
        .unwrap_or_else(|| panic!("{metrics}"))
        .parse()
        .unwrap();
    assert!(batches <= 500, "{batches} requests for 2000 operations");
    server.stop().await;
}

/// Two keepers over HTTP: the second waits at the server, and follows with the next token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keepers_follow_each_other_through_the_server() {
    let server = Server::over(MemoryStore::new()).await;
    let keeper = async |holder: &str| {
        let store = HttpStore::connect(&server.url()).await.unwrap();
        Keeper::new(store, "nightly".parse().unwrap()).holder(holder.parse().unwrap())
    };
    let (first, second) = (keeper("a").await, keeper("b").await);
    let guard = first.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { second.acquire().await });
    let waits = async {
        while server.get("/v1/leases/nightly").await.json()["waiting"] != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LIMIT, waits)
        .await
        .expect("the second waits at the server");
    guard.check().unwrap();
    guard.release().await.unwrap();
    let next = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(next.token().get(), 2);
    next.check().unwrap();
    next.release().await.unwrap();
    server.stop().await;
}

/// A store that says it is something else is not believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_leasehold_server_is_refused() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 301 Moved\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n",
        "SSH-2.0-nothing\r\n",
        "",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let end = timeout(LIMIT, HttpStore::connect(&format!("http://{at}")))
            .await
            .unwrap();
        let error = end.expect_err(answer);
        assert!(
            matches!(
                error,
                StoreError::Invalid { .. } | StoreError::Unavailable { .. }
            ),
            "{answer:?}: {error:?}"
        );
        task.abort();
    }
}
