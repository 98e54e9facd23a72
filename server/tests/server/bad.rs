//! Bad requests: one clear answer each, and nothing changed. Slow, silent and many clients: nobody else waits for them.

use std::time::{Duration, Instant};

use leasehold::store::memory::MemoryStore;
use leasehold_server::Config;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::rig::{Server, id, read, request, wish};

const JSON: &str = "content-type: application/json\r\n";
const AT: &str = "/v1/leases/nightly/acquire";

async fn untouched(server: &Server) {
    assert_eq!(server.get("/v1/leases").await.json()["leases"], json!([]));
    assert_eq!(server.get("/v1/history").await.json()["events"], json!([]));
}

fn with(field: &str, value: Value) -> Value {
    let mut wish = wish(1, 15_000, 0);
    wish[field] = value;
    wish
}

#[tokio::test]
async fn every_bad_body_is_refused_by_name_and_changes_nothing() {
    let server = Server::over(MemoryStore::new()).await;
    let long = "x".repeat(201);
    let bad = [
        (with("session", json!("feed")), "session"),
        (with("session", json!("0".repeat(32))), "session"),
        (with("session", json!(7)), "string"),
        (with("request_id", Value::Null), "string"),
        (with("holder", json!("")), "holder"),
        (with("holder", json!(long)), "holder"),
        (with("holder", json!("a\u{202e}b")), "holder"),
        (with("info", json!("x".repeat(1025))), "info"),
        (with("ttl_ms", json!(499)), "ttl"),
        (with("ttl_ms", json!(-1)), "-1"),
        (with("ttl_ms", json!(1.5)), "1.5"),
        (with("ttl_ms", json!("15s")), "15s"),
        (with("ttl_ms", json!(86_400_001)), "ttl"),
        (with("ttl_ms", json!(u64::MAX)), "18446744073709551615"),
        (with("lock_delay_ms", json!(600_001)), "lock delay"),
        (with("wait_ms", json!(50_001)), "wait_ms"),
        (with("wait_ms", json!(-1)), "wait_ms"),
        (with("wait_ms", json!("1s")), "wait_ms"),
        (with("lease", json!("other")), "path"),
        (with("op", json!("release")), "path"),
        (with("ttl", json!(15_000)), "ttl"),
        (json!({}), "missing"),
    ];
    for (body, named) in bad {
        let got = server.post(AT, body.clone()).await;
        assert_eq!(got.status, 400, "{body}: {got:?}");
        let detail = got.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.contains(named) && !detail.contains('\u{202e}'),
            "{body}: {detail}"
        );
    }
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\"x\"",
        b"\xff\xfe",
        b"{\"session\":}",
        b"{}{}",
    ];
    for body in bodies {
        assert_eq!(
            server.ask("POST", AT, JSON, body).await.status,
            400,
            "{body:?}"
        );
    }
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert_eq!(server.ask("POST", AT, JSON, &deep).await.status, 400);
    untouched(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn every_bad_path_query_and_header_is_refused() {
    let server = Server::over(MemoryStore::new()).await;
    let long = "x".repeat(201);
    for name in [
        "%00",
        "%20a",
        "a%0A",
        "%FF",
        "%E2%80%AE",
        "%1B%5B31m",
        long.as_str(),
    ] {
        let got = server
            .post(&format!("/v1/leases/{name}/acquire"), wish(1, 15_000, 0))
            .await;
        assert_eq!(got.status, 400, "{name}: {got:?}");
        assert_eq!(
            server.get(&format!("/v1/kv/{name}")).await.status,
            400,
            "{name}"
        );
    }
    for query in [
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=100002",
        "what=1",
        "limit=1&limit=2",
    ] {
        assert_eq!(
            server.get(&format!("/v1/leases?{query}")).await.status,
            400,
            "{query}"
        );
    }
    assert_eq!(server.get("/v1/history?after=-1").await.status, 400);
    for token in [
        "0",
        "-1",
        "+5",
        "05",
        "9223372036854775808",
        "1.0",
        "",
        "five",
    ] {
        let header = format!("fencing-token: name=\"nightly\", token=\"{token}\"\r\n");
        let got = server.ask("PUT", "/v1/kv/k", &header, b"x").await;
        assert_eq!(got.status, 400, "INV-13 {token}: {got:?}");
        let body = json!({"session": id(1), "token": token, "renew_id": id(2)});
        assert_eq!(
            server.post("/v1/leases/nightly/renew", body).await.status,
            400,
            "{token}"
        );
    }
    for number in [json!(1), json!(1.0), Value::Null] {
        let body = json!({"session": id(1), "token": number});
        assert_eq!(
            server.post("/v1/leases/nightly/release", body).await.status,
            400
        );
    }
    let twice = "fencing-token: name=\"a\", token=\"1\"\r\n".repeat(2);
    assert_eq!(
        server.ask("PUT", "/v1/kv/k", &twice, b"x").await.status,
        400
    );
    for (method, path, status) in [
        ("GET", "/nothing", 404),
        ("GET", "/v1/leases/a/b", 404),
        ("GET", "/v1/leases/a/acquire", 405),
        ("DELETE", "/v1/leases/a", 405),
        ("POST", "/v1/kv/a", 405),
        ("PATCH", "/v1/kv/a", 405),
        ("TRACE", "/", 404),
    ] {
        let got = server.ask(method, path, "", b"").await;
        assert_eq!(got.status, status, "{method} {path}: {got:?}");
        assert!(
            got.json()["detail"]
                .as_str()
                .unwrap()
                .contains("openapi.json")
        );
    }
    untouched(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_what_is_not_json_too() {
    let server = Server::over(MemoryStore::new()).await;
    let large = vec![b'x'; 1024 * 1024 + 1];
    assert_eq!(server.ask("PUT", "/v1/kv/k", "", &large).await.status, 413);
    assert_eq!(
        server
            .ask("PUT", "/v1/kv/k", "", &large[..64 * 1024 + 1])
            .await
            .status,
        400
    );
    assert_eq!(
        server
            .ask("PUT", "/v1/kv/k", "", &large[..64 * 1024])
            .await
            .status,
        200
    );
    // Without a length, in chunks.
    let mut chunked = format!("PUT /v1/kv/k2 HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n", server.at).into_bytes();
    for _ in 0..20 {
        chunked.extend_from_slice(b"10000\r\n");
        chunked.extend_from_slice(&large[..0x10000]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(server.raw(&chunked).await.status, 413);
    for kind in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
    ] {
        let body = wish(1, 15_000, 0).to_string();
        assert_eq!(
            server.ask("POST", AT, kind, body.as_bytes()).await.status,
            415,
            "{kind}"
        );
    }
    let headers = "x: y\r\n".repeat(100);
    assert_eq!(
        server
            .raw(&request(server.at, "GET", "/healthz", &headers, b""))
            .await
            .status,
        431
    );
    let long = format!("x: {}\r\n", "y".repeat(1_000_000));
    assert_eq!(
        server
            .raw(&request(server.at, "GET", "/healthz", &long, b""))
            .await
            .status,
        431
    );
    assert_eq!(server.raw(b"what is this\r\n\r\n").await.status, 400);
    assert_eq!(server.get("/v1/leases").await.json()["leases"], json!([]));
    server.stop().await;
}

/// A page of somebody else must not reach a server on loopback through the browser of its machine.
#[tokio::test]
async fn pages_of_others_and_bent_names_are_kept_out() {
    let server = Server::over(MemoryStore::new()).await;
    let body = wish(1, 15_000, 0).to_string();
    for site in ["cross-site", "same-site"] {
        let headers = format!("{JSON}sec-fetch-site: {site}\r\n");
        assert_eq!(
            server
                .ask("POST", AT, &headers, body.as_bytes())
                .await
                .status,
            403,
            "{site}"
        );
    }
    let bent = format!(
        "POST {AT} HTTP/1.1\r\nhost: evil.example:4850\r\nconnection: close\r\n{JSON}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let got = server.raw(bent.as_bytes()).await;
    assert!(
        got.status == 421 && got.text().contains("evil.example"),
        "{got:?}"
    );
    untouched(&server).await;
    let ours = bent.replace("evil.example", "LOCALHOST");
    assert_eq!(server.raw(ours.as_bytes()).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_slow_client_is_cut_off_and_keeps_nobody_waiting() {
    let config = Config {
        header_timeout: Duration::from_secs(3),
        body_timeout: Duration::from_secs(3),
        ..Config::default()
    };
    let server = Server::with(MemoryStore::new(), config).await;
    let mut silent = TcpStream::connect(server.at).await.unwrap();
    silent.write_all(b"GET /healthz HT").await.unwrap();
    let mut slow = TcpStream::connect(server.at).await.unwrap();
    let head = format!(
        "POST {AT} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{JSON}content-length: 100\r\n\r\n{{",
        server.at
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(read(slow).await.status, 408);
    // Nothing can be answered to half a header: the connection ends.
    let mut bytes = Vec::new();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut bytes);
    let _ = tokio::time::timeout(crate::rig::LIMIT, end)
        .await
        .expect("it is closed");
    untouched(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_the_others_go_on() {
    let config = Config {
        connections: 20,
        ..Config::default()
    };
    let server = Server::with(MemoryStore::new(), config).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(b"GET /healthz").await.unwrap();
        idle.push(stream);
    }
    let started = Instant::now();
    let refused = loop {
        let got = server
            .raw(&request(server.at, "GET", "/healthz", "", b""))
            .await;
        if got.status == 503 {
            break got;
        }
        assert!(started.elapsed() < crate::rig::LIMIT);
    };
    assert_eq!(refused.json()["kind"], "unavailable");
    drop(idle);
    while server
        .raw(&request(server.at, "GET", "/healthz", "", b""))
        .await
        .status
        != 200
    {
        assert!(
            started.elapsed() < crate::rig::LIMIT,
            "a place is free again"
        );
    }
    server.stop().await;
}
