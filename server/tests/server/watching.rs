//! The stream of events: from now on, from any event on, without a gap.

use std::time::Duration;

use leasehold::store::memory::MemoryStore;
use leasehold_server::Config;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::rig::{LIMIT, Server, id, wish};

/// One who watches.
struct Watcher(BufReader<TcpStream>);

impl Watcher {
    async fn of(server: &Server, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n",
            server.at
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut watcher = Self(BufReader::new(stream));
        watcher.line_with(": events after").await;
        watcher
    }

    async fn line_with(&mut self, start: &str) -> String {
        let look = async {
            loop {
                let mut line = String::new();
                assert!(
                    self.0.read_line(&mut line).await.unwrap() > 0,
                    "the stream ended"
                );
                if let Some(rest) = line.strip_prefix(start) {
                    return rest.trim().to_owned();
                }
            }
        };
        timeout(LIMIT, look).await.expect("a line comes")
    }

    async fn event(&mut self) -> Value {
        let number = self.line_with("id: ").await;
        let event: Value = serde_json::from_str(&self.line_with("data: ").await).unwrap();
        assert_eq!(event["number"].to_string(), number);
        event
    }
}

async fn turn(server: &Server, lease: &str, who: u32) {
    let got = server
        .post(&format!("/v1/leases/{lease}/acquire"), wish(who, 60_000, 0))
        .await;
    let release = json!({"session": id(who), "token": got.json()["token"]});
    server
        .post(&format!("/v1/leases/{lease}/release"), release)
        .await;
}

#[tokio::test]
async fn a_watcher_sees_what_happens_and_misses_nothing_when_it_comes_back() {
    let server = Server::over(MemoryStore::new()).await;
    turn(&server, "before", 1).await;
    let mut watcher = Watcher::of(&server, "/v1/watch?prefix=a", "").await;
    turn(&server, "b", 2).await;
    turn(&server, "a", 3).await;
    let granted = watcher.event().await;
    assert_eq!(
        (&granted["lease"], &granted["event"], &granted["holder"]),
        (&json!("a"), &json!("granted"), &json!("h3"))
    );
    drop(watcher);
    turn(&server, "a", 4).await;
    let last = format!("last-event-id: {}\r\n", granted["number"]);
    let mut watcher = Watcher::of(&server, "/v1/watch?prefix=a&after=0", &last).await;
    let mut words = Vec::new();
    for _ in 0..3 {
        words.push(watcher.event().await["event"].clone());
    }
    assert_eq!(words, ["released", "granted", "released"]);
    turn(&server, "a", 5).await;
    assert_eq!(
        watcher.event().await["holder"],
        "h5",
        "and goes on with what happens"
    );
    server.stop().await;
}

/// A watcher that does not read in time falls behind what is sent, and reads the history itself.
#[tokio::test]
async fn many_events_reach_a_watcher_in_order() {
    let server = Server::over(MemoryStore::new()).await;
    let mut watcher = Watcher::of(&server, "/v1/watch", "").await;
    let ops: Vec<_> = (0..1000)
        .map(|n| json!({"op": "acquire", "lease": format!("l{n}"), "session": id(1), "request_id": id(2), "holder": "h"}))
        .collect();
    for part in 0..3 {
        let mut ops = ops.clone();
        for op in &mut ops {
            op["lease"] = json!(format!("{part}-{}", op["lease"].as_str().unwrap()));
        }
        assert_eq!(
            server.post("/v1/batch", json!({ "ops": ops })).await.status,
            200
        );
    }
    let mut last = 0;
    for _ in 0..3000 {
        let number = watcher.event().await["number"].as_u64().unwrap();
        assert_eq!(number, last + 1);
        last = number;
    }
    server.stop().await;
}

#[tokio::test]
async fn more_watchers_than_are_allowed_are_told_so() {
    let config = Config {
        watchers: 1,
        ..Config::default()
    };
    let server = Server::with(MemoryStore::new(), config).await;
    let watcher = Watcher::of(&server, "/v1/watch", "").await;
    assert_eq!(server.get("/v1/watch").await.status, 429);
    drop(watcher);
    let again = async {
        loop {
            turn(&server, "a", 1).await;
            if server
                .get("/metrics")
                .await
                .text()
                .contains("leasehold_watchers 0")
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, again)
        .await
        .expect("one who is gone is noticed");
    Watcher::of(&server, "/v1/watch", "").await;
    for bad in ["last-event-id: x\r\n", "last-event-id: -1\r\n"] {
        assert_eq!(server.ask("GET", "/v1/watch", bad, b"").await.status, 400);
    }
    server.stop().await;
}
