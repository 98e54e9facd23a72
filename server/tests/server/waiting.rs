//! Waiters: in order, one woken at a time, each with the time it waited, and nobody for ever.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::{
    core::{Op, Outcome},
    store::{Changes, Finding, Profile, Recorded, Store, StoreError, memory::MemoryStore},
};
use leasehold_server::Config;
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinHandle};

use crate::rig::{Got, LIMIT, Server, id, request, wish};

const AT: &str = "/v1/leases/nightly/acquire";

/// A memory store that counts how often it is asked.
#[derive(Debug)]
struct Counted {
    inner: Arc<MemoryStore>,
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl Store for Counted {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }
    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.inner.apply(op).await
    }
    async fn status(
        &self,
        name: &leasehold::LeaseName,
    ) -> Result<Option<leasehold::core::Status>, StoreError> {
        self.inner.status(name).await
    }
    async fn list(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<leasehold::core::Status>, StoreError> {
        self.inner.list(prefix, limit).await
    }
    async fn pair(
        &self,
        key: &leasehold::Key,
    ) -> Result<Option<leasehold::core::Pair>, StoreError> {
        self.inner.pair(key).await
    }
    async fn fence(
        &self,
        resource: &leasehold::Resource,
    ) -> Result<Option<leasehold::core::Fence>, StoreError> {
        self.inner.fence(resource).await
    }
    async fn entry(
        &self,
        work: &leasehold::core::Work,
    ) -> Result<Option<leasehold::core::Entry>, StoreError> {
        self.inner.entry(work).await
    }
    async fn history(
        &self,
        name: Option<&leasehold::LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.inner.history(name, after, limit).await
    }
    fn changes(&self) -> Changes {
        self.inner.changes()
    }
    async fn collect(&self) -> Result<u64, StoreError> {
        self.inner.collect().await
    }
    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.inner.examine().await
    }
}

/// Sends a wish on its own connection.
fn wait(server: &Server, body: Value) -> JoinHandle<Got> {
    let at = server.at;
    tokio::spawn(async move {
        let body = body.to_string();
        let bytes = request(
            at,
            "POST",
            AT,
            "content-type: application/json\r\n",
            body.as_bytes(),
        );
        let mut stream = TcpStream::connect(at).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes)
            .await
            .unwrap();
        crate::rig::read(stream).await
    })
}

/// Until so many wait.
async fn until_waiting(server: &Server, count: u64) {
    let started = Instant::now();
    loop {
        let status = server.get("/v1/leases/nightly").await.json();
        if status["waiting"] == json!(count) {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{count} shall wait: {status}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn release(server: &Server, who: u32, token: &Value) {
    let got = server
        .post(
            "/v1/leases/nightly/release",
            json!({"session": id(who), "token": token}),
        )
        .await;
    assert_eq!(got.json()["answer"], "released", "{got:?}");
}

/// W3: in the order in which they came, whoever asks in between.
#[tokio::test]
async fn waiters_are_served_in_order() {
    let server = Server::over(MemoryStore::new()).await;
    server.post(AT, wish(0, 60_000, 0)).await;
    let mut waiters = Vec::new();
    for number in 1..=8 {
        waiters.push(wait(&server, wish(number, 60_000, 50_000)));
        until_waiting(&server, number.into()).await;
    }
    let mut token = json!("1");
    for (number, waiter) in (1..).zip(waiters) {
        release(&server, number - 1, &token).await;
        let barger = server.post(AT, wish(100 + number, 60_000, 0)).await;
        assert_eq!(barger.status, 409, "the release handed it over already");
        let got = waiter.await.unwrap();
        assert_eq!(got.status, 200, "{got:?}");
        token = got.json()["token"].clone();
        assert_eq!(token, json!((number + 1).to_string()));
    }
    server.stop().await;
}

/// W2: only the first asks the store; a hand-over is one call, however many wait.
#[tokio::test]
async fn many_waiters_cost_no_more_calls_than_one() {
    let store = Arc::new(Counted {
        inner: MemoryStore::new(),
        asked: AtomicUsize::new(0),
    });
    let server = Server::over(store.clone()).await;
    server.post(AT, wish(0, 600_000, 0)).await;
    let waiters: Vec<_> = (1..=60)
        .map(|number| wait(&server, wish(number, 600_000, 50_000)))
        .collect();
    until_waiting(&server, 60).await;
    let before = store.asked.load(Ordering::SeqCst);
    let started = Instant::now();
    let mut holder = (0, json!("1"));
    let mut waiters: Vec<_> = waiters.into_iter().map(Some).collect();
    for _ in 0..60 {
        release(&server, holder.0, &holder.1).await;
        let (place, got) = first_done(&mut waiters).await;
        assert_eq!(got.status, 200, "{got:?}");
        holder = (place as u32 + 1, got.json()["token"].clone());
    }
    let asked = store.asked.load(Ordering::SeqCst) - before;
    // A release and the grant in it are two; the first of the queue looks once a second and when the store ticks.
    let looks = started.elapsed().as_millis() as usize / 50;
    assert!(
        asked <= 2 * 60 + 60 + looks,
        "{asked} calls for 60 hand-overs among 60 waiters"
    );
    server.stop().await;
}

async fn first_done(waiters: &mut [Option<JoinHandle<Got>>]) -> (usize, Got) {
    let started = Instant::now();
    loop {
        for (place, waiter) in waiters.iter_mut().enumerate() {
            if waiter.as_ref().is_some_and(JoinHandle::is_finished) {
                return (place, waiter.take().unwrap().await.unwrap());
            }
        }
        assert!(started.elapsed() < LIMIT, "nobody got it");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A1: the answer says how long it waited, so the ttl counts from the grant and not from the question.
#[tokio::test]
async fn a_grant_that_was_waited_for_says_how_long() {
    let server = Server::over(MemoryStore::new()).await;
    server.post(AT, wish(0, 60_000, 0)).await;
    let asked = Instant::now();
    let waiter = wait(&server, wish(1, 60_000, 50_000));
    until_waiting(&server, 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    release(&server, 0, &json!("1")).await;
    let got = waiter.await.unwrap().json();
    let waited = got["waited_ms"].as_u64().unwrap();
    assert!(waited >= 300, "{got}");
    assert!(
        u128::from(waited) <= asked.elapsed().as_millis(),
        "more than passed: {got}"
    );
    server.stop().await;
}

/// INV-11: a holder that is gone is followed when its time is over, by the first who waits.
#[tokio::test]
async fn the_first_waiter_follows_a_holder_that_died() {
    let server = Server::over(MemoryStore::new()).await;
    server.post(AT, wish(0, 700, 0)).await;
    let got = wait(&server, wish(1, 60_000, 50_000)).await.unwrap();
    assert_eq!((got.status, &got.json()["token"]), (200, &json!("2")));
    server.stop().await;
}

#[tokio::test]
async fn a_wait_ends_in_time_and_says_who_holds() {
    let server = Server::over(MemoryStore::new()).await;
    server.post(AT, wish(0, 60_000, 0)).await;
    let first = wait(&server, wish(1, 60_000, 6_000));
    until_waiting(&server, 1).await;
    let second = wait(&server, wish(2, 60_000, 5_000));
    for waiter in [first, second] {
        let got = waiter.await.unwrap();
        assert_eq!(
            (got.status, &got.json()["holder"]),
            (409, &json!("h0")),
            "{got:?}"
        );
        assert!(got.json()["hint_ms"].as_u64().unwrap() <= 60_000);
    }
    server.stop().await;
}

/// A21: granted only to an open connection. One that was closed keeps its place for a moment, and loses nothing to it.
#[tokio::test]
async fn one_who_hung_up_is_passed_over_and_its_place_is_kept() {
    let config = Config {
        place_kept: LIMIT,
        ..Config::default()
    };
    let server = Server::with(MemoryStore::new(), config).await;
    server.post(AT, wish(0, 60_000, 0)).await;
    let gone = wait(&server, wish(1, 60_000, 50_000));
    until_waiting(&server, 1).await;
    let second = wait(&server, wish(2, 60_000, 50_000));
    until_waiting(&server, 2).await;
    gone.abort();
    until_waiting(&server, 1).await;
    let back = wait(&server, wish(1, 60_000, 50_000));
    until_waiting(&server, 2).await;
    release(&server, 0, &json!("1")).await;
    let got = back.await.unwrap();
    assert_eq!(got.json()["token"], "2", "its place was kept: {got:?}");
    let gone = wait(&server, wish(3, 60_000, 50_000));
    until_waiting(&server, 2).await;
    release(&server, 1, &json!("2")).await;
    assert_eq!(second.await.unwrap().json()["token"], "3");
    gone.abort();
    until_waiting(&server, 0).await;
    release(&server, 2, &json!("3")).await;
    let status = server.get("/v1/leases/nightly").await.json();
    assert_eq!(
        status["state"], "free",
        "nobody who is gone was granted it: {status}"
    );
    server.stop().await;
}

/// A4: the answer to a waiter's grant is lost; it asks again with the same ids and has it, past all who wait.
#[tokio::test]
async fn a_lost_grant_is_found_again_though_others_wait() {
    let server = Server::over(MemoryStore::new()).await;
    server.post(AT, wish(0, 60_000, 0)).await;
    let waiters: Vec<_> = (1..4)
        .map(|number| wait(&server, wish(number, 60_000, 50_000)))
        .collect();
    until_waiting(&server, 3).await;
    release(&server, 0, &json!("1")).await;
    let mut waiters: Vec<_> = waiters.into_iter().map(Some).collect();
    let (place, lost) = first_done(&mut waiters).await;
    assert_eq!(lost.json()["token"], "2");
    let again = wait(&server, wish(place as u32 + 1, 60_000, 50_000))
        .await
        .unwrap();
    assert_eq!(again.json()["token"], "2", "{again:?}");
    let waited = again.json()["waited_ms"].as_u64().unwrap();
    assert!(waited < 45_000, "not when its wait was over: {again:?}");
    for waiter in waiters.iter().flatten() {
        waiter.abort();
    }
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_ends_answers_those_who_wait() {
    let mut server = Server::over(MemoryStore::new()).await;
    server.post(AT, wish(0, 60_000, 0)).await;
    let waiters: Vec<_> = (1..4)
        .map(|number| wait(&server, wish(number, 60_000, 50_000)))
        .collect();
    until_waiting(&server, 3).await;
    let started = Instant::now();
    server.tell_to_stop();
    for waiter in waiters {
        let got = waiter.await.unwrap();
        assert_eq!(
            (got.status, &got.json()["answer"]),
            (409, &json!("held")),
            "{got:?}"
        );
    }
    assert!(
        started.elapsed() < Duration::from_secs(40),
        "they were not waited for: {:?}",
        started.elapsed()
    );
    server.stop().await;
}

#[tokio::test]
async fn more_waiters_than_are_allowed_are_told_so() {
    let config = Config {
        waiters: 1,
        ..Config::default()
    };
    let server = Server::with(MemoryStore::new(), config).await;
    server.post(AT, wish(0, 60_000, 0)).await;
    let first = wait(&server, wish(1, 60_000, 50_000));
    until_waiting(&server, 1).await;
    let second = server.post(AT, wish(2, 60_000, 50_000)).await;
    assert_eq!(second.status, 429, "{second:?}");
    assert!(second.head.contains("retry-after: 1"));
    assert_eq!(
        server.post(AT, wish(2, 60_000, 0)).await.status,
        409,
        "who does not wait is answered"
    );
    first.abort();
    server.stop().await;
}
