//! A server on a free port, and requests to it as bytes on a socket. Every answer is held against the description that the
//! server serves.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use leasehold::{SharedStore, Store, store::http::HttpStore};
use leasehold_server::Config;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use crate::described;

/// Longer than anything takes, unless it hangs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// One server.
pub struct Server {
    pub at: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Server {
    pub async fn over(store: SharedStore) -> Self {
        Self::with(store, Config::default()).await
    }

    pub async fn with(store: SharedStore, config: Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(leasehold_server::run(listener, store, config, async move {
            let _ = stopped.await;
        }));
        Self {
            at,
            stop: Some(stop),
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    pub async fn client(&self) -> Arc<dyn Store> {
        HttpStore::connect(&self.url()).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Got {
        self.ask("GET", path, "", b"").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Got {
        let body = body.to_string();
        self.ask(
            "POST",
            path,
            "content-type: application/json\r\n",
            body.as_bytes(),
        )
        .await
    }

    /// Sends it, and holds the answer against the description.
    pub async fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Got {
        let got = self
            .raw(&request(self.at, method, path, headers, body))
            .await;
        described::check(method, path, &got);
        got
    }

    /// Sends bytes, and reads until the server closes.
    pub async fn raw(&self, bytes: &[u8]) -> Got {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        // The server may have answered and closed before the end.
        let _ = stream.write_all(bytes).await;
        read(stream).await
    }

    /// Stops it as SIGTERM would.
    pub fn tell_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Stops it and waits for its end.
    pub async fn stop(mut self) {
        if self.stop.is_some() {
            self.tell_to_stop();
        }
        timeout(LIMIT, self.task).await.unwrap().unwrap().unwrap();
    }
}

/// Reads one answer to its end, which the server sets by closing.
pub async fn read(mut stream: TcpStream) -> Got {
    let mut bytes = Vec::new();
    let _ = timeout(LIMIT, stream.read_to_end(&mut bytes))
        .await
        .expect("it ends");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Got {
        status,
        head,
        body: bytes[end + 4..].to_vec(),
    }
}

pub fn request(at: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// An id of 32 hex digits, never zero.
pub fn id(number: u32) -> String {
    format!("f{number:031x}")
}

/// The body of an acquire.
pub fn wish(number: u32, ttl_ms: u64, wait_ms: u64) -> Value {
    json!({
        "session": id(number), "request_id": id(number + 1_000_000), "holder": format!("h{number}"),
        "ttl_ms": ttl_ms, "wait_ms": wait_ms,
    })
}
