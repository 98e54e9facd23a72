//! Each route as somebody with curl uses it.

use std::time::Duration;

use leasehold::{
    SharedStore,
    store::{memory::MemoryStore, sqlite::SqliteStore},
};
use serde_json::json;

use crate::rig::{Server, id, wish};

async fn server() -> Server {
    Server::over(MemoryStore::new()).await
}

/// INV-6 over HTTP: each call is sent twice, as after a lost answer, and has one effect.
#[tokio::test]
async fn a_lease_is_taken_kept_and_given_back_and_each_call_can_be_repeated() {
    let server = server().await;
    for _ in 0..2 {
        let got = server
            .post("/v1/leases/team%2Fnightly/acquire", wish(1, 15_000, 0))
            .await;
        assert_eq!((got.status, &got.json()["token"]), (200, &json!("1")));
        assert_eq!(got.json()["ttl_ms"], 15_000);
    }
    let held = server
        .post("/v1/leases/team%2Fnightly/acquire", wish(2, 15_000, 0))
        .await;
    assert_eq!((held.status, &held.json()["holder"]), (409, &json!("h1")));
    assert_eq!(held.json()["type"], "urn:leasehold:held");

    for _ in 0..2 {
        let renewal = json!({"session": id(1), "token": "1", "number": 1, "renew_id": id(7), "ttl_ms": 20_000});
        let got = server
            .post("/v1/leases/team%2Fnightly/renew", renewal)
            .await;
        assert_eq!((got.status, &got.json()["ttl_ms"]), (200, &json!(20_000)));
    }
    let status = server.get("/v1/leases/team%2Fnightly").await.json();
    assert_eq!(
        (&status["lease"], &status["renewals"]),
        (&json!("team/nightly"), &json!(1))
    );

    // A copy of the holder is found out, and one who does not count is counted for.
    let copy = json!({"session": id(1), "token": "1", "number": 1, "renew_id": id(8)});
    let got = server.post("/v1/leases/team%2Fnightly/renew", copy).await;
    assert_eq!(
        (got.status, &got.json()["reason"]),
        (412, &json!("seq_mismatch"))
    );
    let uncounted = json!({"session": id(1), "token": "1", "renew_id": id(9)});
    assert_eq!(
        server
            .post("/v1/leases/team%2Fnightly/renew", uncounted)
            .await
            .status,
        200
    );

    let stranger = json!({"session": id(2), "token": "1"});
    assert_eq!(
        server
            .post("/v1/leases/team%2Fnightly/release", stranger)
            .await
            .status,
        412
    );
    let release = json!({"session": id(1), "token": "1"});
    let got = server
        .post("/v1/leases/team%2Fnightly/release", release.clone())
        .await;
    assert_eq!(got.json()["answer"], "released");
    let again = server
        .post("/v1/leases/team%2Fnightly/release", release)
        .await;
    assert_eq!(
        (again.status, &again.json()["answer"]),
        (200, &json!("already_over"))
    );

    let used = server
        .post("/v1/leases/team%2Fnightly/acquire", wish(1, 15_000, 0))
        .await;
    assert_eq!(
        (used.status, &used.json()["answer"]),
        (409, &json!("already_used"))
    );
    let list = server.get("/v1/leases?prefix=team%2F").await.json();
    assert_eq!(list["leases"].as_array().unwrap().len(), 1);
    let events = server.get("/v1/leases/team%2Fnightly/history").await.json();
    assert_eq!(events["events"][0]["event"], "granted");
    let all = server.get("/v1/history?after=1&limit=1").await.json();
    assert_eq!(all["events"][0]["number"], 2);
    assert_eq!(server.get("/v1/leases/nobody").await.status, 404);
    server.stop().await;
}

/// F7 over HTTP: the stale writer is refused from the moment of the takeover.
#[tokio::test]
async fn a_fenced_pair_refuses_a_stale_token() {
    let server = server().await;
    server
        .post("/v1/leases/nightly/acquire", wish(1, 15_000, 0))
        .await;
    let fenced = |token: &str| format!("fencing-token: name=\"nightly\", token=\"{token}\"\r\n");
    let put = server
        .ask("PUT", "/v1/kv/report", &fenced("1"), b"by a")
        .await;
    assert_eq!(put.status, 200, "{put:?}");
    server
        .post(
            "/v1/leases/nightly/release",
            json!({"session": id(1), "token": "1"}),
        )
        .await;
    let late = server
        .ask("PUT", "/v1/kv/report", &fenced("1"), b"late")
        .await;
    assert_eq!(
        (late.status, &late.json()["reason"]),
        (412, &json!("released"))
    );
    server
        .post("/v1/leases/nightly/acquire", wish(2, 15_000, 0))
        .await;
    let stale = server
        .ask("PUT", "/v1/kv/report", &fenced("1"), b"stale")
        .await;
    assert_eq!((stale.status, &stale.json()["highest"]), (412, &json!("2")));
    assert_eq!(stale.json()["detail"], "token 1 is older than 2");
    let plain = server.ask("PUT", "/v1/kv/report", "", b"plain").await;
    assert_eq!(
        (plain.status, &plain.json()["by"]),
        (412, &json!("nightly"))
    );
    let never = server
        .ask("DELETE", "/v1/kv/report", &fenced("9"), b"")
        .await;
    assert_eq!(
        (never.status, &never.json()["reason"]),
        (412, &json!("never_issued"))
    );

    let got = server.get("/v1/kv/report").await;
    assert_eq!(got.text(), "by a");
    assert!(
        got.head
            .contains("fencing-token: name=\"nightly\", token=\"1\""),
        "{got:?}"
    );
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(
        server
            .ask("PUT", "/v1/kv/report", &fenced("2"), &bytes)
            .await
            .status,
        200
    );
    assert_eq!(server.get("/v1/kv/report").await.body, bytes);
    assert_eq!(
        server
            .ask("DELETE", "/v1/kv/report", &fenced("2"), b"")
            .await
            .status,
        200
    );
    assert_eq!(server.get("/v1/kv/report").await.status, 404);
    assert_eq!(
        server
            .ask("PUT", "/v1/kv/report", "", b"plain")
            .await
            .status,
        200
    );
    server.stop().await;
}

#[tokio::test]
async fn work_is_begun_once_and_its_result_is_replayed() {
    let server = server().await;
    server
        .post("/v1/leases/nightly/acquire", wish(1, 15_000, 0))
        .await;
    let begin =
        |token: &str, attempt: u32| json!({"token": token, "attempt": id(attempt), "holder": "h1"});
    let at = "/v1/ledger/nightly/invoice%3A4711";
    assert_eq!(server.get(at).await.status, 404);
    for answer in ["begun", "resumed"] {
        let got = server.post(&format!("{at}/begin"), begin("1", 5)).await;
        assert_eq!((got.status, &got.json()["answer"]), (200, &json!(answer)));
    }
    assert_eq!(
        server
            .post(&format!("{at}/begin"), begin("1", 6))
            .await
            .status,
        409
    );
    assert_eq!(
        server
            .post(&format!("{at}/begin"), begin("9", 6))
            .await
            .status,
        412
    );
    let mut other = begin("1", 5);
    other["fingerprint"] = json!("ab".repeat(32));
    assert_eq!(server.post(&format!("{at}/begin"), other).await.status, 422);
    let complete = json!({"token": "1", "attempt": id(5), "response": "charged"});
    for _ in 0..2 {
        assert_eq!(
            server
                .post(&format!("{at}/complete"), complete.clone())
                .await
                .json()["answer"],
            "completed"
        );
    }
    let again = server.post(&format!("{at}/begin"), begin("1", 7)).await;
    assert_eq!(
        (again.status, &again.json()["entry"]["response"]),
        (200, &json!("charged"))
    );
    assert_eq!(server.get(at).await.json()["response"], "charged");
    let nothing = json!({"token": "1", "attempt": id(5)});
    assert_eq!(
        server
            .post("/v1/ledger/nightly/other/complete", nothing.clone())
            .await
            .status,
        404
    );
    assert_eq!(
        server
            .post("/v1/ledger/nightly/other/abandon", nothing)
            .await
            .status,
        200
    );
    server.stop().await;
}

/// A12: a raise waits for writes with smaller tokens that were admitted before, or says who is in the way; a smaller token
/// is admitted no more from the moment of the raise.
#[tokio::test]
async fn an_admitted_write_holds_up_the_barrier_until_it_is_done() {
    let server = server().await;
    let admit = |token: &str, attempt: u32| json!({"lease": "nightly", "token": token, "attempt": id(attempt), "ttl_ms": 60_000});
    assert_eq!(server.get("/v1/fences/db").await.status, 404);
    server
        .post("/v1/leases/nightly/acquire", wish(1, 15_000, 0))
        .await;
    for _ in 0..2 {
        assert_eq!(
            server
                .post("/v1/fences/db/admit", admit("1", 1))
                .await
                .status,
            200
        );
    }
    server
        .post(
            "/v1/leases/nightly/release",
            json!({"session": id(1), "token": "1"}),
        )
        .await;
    server
        .post("/v1/leases/nightly/acquire", wish(2, 15_000, 0))
        .await;
    let raise = json!({"lease": "nightly", "token": "2"});
    let blocked = server.post("/v1/fences/db/raise", raise.clone()).await;
    assert_eq!(
        (blocked.status, &blocked.json()["kind"]),
        (503, &json!("blocked"))
    );
    let many = server
        .post(
            "/v1/batch",
            json!({"ops": [{"op": "raise", "resource": "db", "lease": "nightly", "token": "2"}]}),
        )
        .await;
    assert_eq!(many.json()["answers"][0]["kind"], "blocked");
    assert_eq!(server.get("/v1/fences/db").await.json()["highest"], "2");
    let stale = server.post("/v1/fences/db/admit", admit("1", 3)).await;
    assert_eq!(
        (stale.status, &stale.json()["reason"]),
        (412, &json!("stale"))
    );

    let mut waiting = raise.clone();
    waiting["wait_ms"] = json!(50_000);
    let (barrier, done) = tokio::join!(server.post("/v1/fences/db/raise", waiting), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server
            .post("/v1/fences/db/done", json!({"attempt": id(1)}))
            .await
    });
    assert_eq!((barrier.status, done.status), (200, 200));
    assert_eq!(
        server
            .post("/v1/fences/db/done", json!({"attempt": id(1)}))
            .await
            .status,
        404
    );
    assert_eq!(
        server
            .post("/v1/fences/db/admit", admit("2", 4))
            .await
            .status,
        200
    );
    assert_eq!(
        server.post("/v1/fences/db/raise", raise).await.status,
        200,
        "its own write is not in its way"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_write_whose_time_is_over_holds_up_nobody() {
    let server = server().await;
    server
        .post("/v1/leases/nightly/acquire", wish(1, 15_000, 0))
        .await;
    let admit = json!({"lease": "nightly", "token": "1", "attempt": id(1), "ttl_ms": 50});
    assert_eq!(server.post("/v1/fences/db/admit", admit).await.status, 200);
    server
        .post(
            "/v1/leases/nightly/release",
            json!({"session": id(1), "token": "1"}),
        )
        .await;
    server
        .post("/v1/leases/nightly/acquire", wish(2, 15_000, 0))
        .await;
    let raise = json!({"lease": "nightly", "token": "2", "wait_ms": 50_000});
    assert_eq!(server.post("/v1/fences/db/raise", raise).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_has_an_answer_for_each_and_a_bad_one_does_nothing() {
    let server = server().await;
    let ask = |op: &str, lease: &str| json!({"op": op, "lease": lease, "session": id(1), "request_id": id(2), "holder": "h"});
    let got = server.post("/v1/batch", json!({"ops": [ask("acquire", "a"), ask("acquire", "b"),
        {"op": "put", "key": "k", "value": "v"}, {"op": "put", "key": "k2", "value_base64": "AP8="},
        {"op": "release", "lease": "a", "session": id(1), "token": "1"},
        {"op": "renew", "lease": "b", "session": id(1), "token": "2", "number": 1, "renew_id": id(4)}]})).await;
    let answers = got.json()["answers"].clone();
    let words: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["answer"].as_str().unwrap())
        .collect();
    assert_eq!(
        words,
        ["granted", "granted", "done", "done", "released", "lost"]
    );
    assert_eq!(server.get("/v1/kv/k2").await.body, [0, 255]);

    let bad = server
        .post(
            "/v1/batch",
            json!({"ops": [ask("acquire", "c"), ask("acquire", "")]}),
        )
        .await;
    assert_eq!(bad.status, 400);
    let two =
        json!({"op": "release", "lease": "c", "session": id(1), "token": "1", "request_id": id(2)});
    let bad = server
        .post("/v1/batch", json!({"ops": [ask("acquire", "c"), two]}))
        .await;
    assert!(
        bad.status == 400 && bad.text().contains("ops[1]"),
        "{bad:?}"
    );
    assert_eq!(
        server.get("/v1/leases/c").await.status,
        404,
        "nothing was done"
    );
    let many: Vec<_> = (0..1001)
        .map(|n| ask("acquire", &format!("m{n}")))
        .collect();
    assert_eq!(
        server.post("/v1/batch", json!({"ops": many})).await.status,
        400
    );
    server.stop().await;
}

#[tokio::test]
async fn an_operator_takes_a_lease_away_and_bumps() {
    let server = server().await;
    server
        .post("/v1/leases/nightly/acquire", wish(1, 15_000, 0))
        .await;
    let forced = server
        .post("/v1/leases/nightly/force-release", json!({}))
        .await;
    assert_eq!((forced.status, &forced.json()["token"]), (200, &json!("2")));
    let late = server
        .post(
            "/v1/leases/nightly/renew",
            json!({"session": id(1), "token": "1", "renew_id": id(3)}),
        )
        .await;
    assert_eq!(late.status, 412);
    let small = server.post("/v1/admin/bump", json!({"above": "1"})).await;
    assert_eq!(
        (small.status, &small.json()["reason"]),
        (409, &json!("too_small"))
    );
    assert_eq!(
        server
            .post("/v1/admin/bump", json!({"above": "1000000"}))
            .await
            .status,
        200
    );
    let waits = server
        .post("/v1/leases/nightly/acquire", wish(2, 15_000, 0))
        .await;
    assert_eq!(
        (waits.status, &waits.json()["answer"]),
        (409, &json!("quarantined"))
    );
    assert_eq!(
        server.post("/v1/admin/collect", json!({})).await.json()["removed"],
        0
    );
    assert_eq!(
        server.post("/v1/admin/evict", json!({})).await.status,
        400,
        "memory: blocks nobody"
    );
    server.stop().await;
}

#[tokio::test]
async fn what_operators_look_at_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store: SharedStore = SqliteStore::open(folder.path().join("l.db")).await.unwrap();
    let server = Server::over(store).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.get("/readyz").await.status, 200);
    assert_eq!(server.get("/v1/store").await.json()["scheme"], "sqlite");
    assert!(
        !server.get("/v1/doctor").await.json()["findings"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(server.get("/openapi.json").await.json()["openapi"], "3.1.0");
    server
        .post("/v1/leases/nightly/acquire", wish(1, 15_000, 0))
        .await;
    server
        .ask(
            "PUT",
            "/v1/kv/k",
            "fencing-token: name=\"nightly\", token=\"7\"\r\n",
            b"x",
        )
        .await;
    let seen = async {
        loop {
            let text = server.get("/metrics").await.text();
            if text.contains("leasehold_grants_total 1")
                && text.contains("leasehold_refusals_total{reason=\"never_issued\"} 1")
            {
                break text;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let text = tokio::time::timeout(crate::rig::LIMIT, seen)
        .await
        .expect("events are counted");
    assert!(
        text.contains("leasehold_requests_total{route=\"/v1/kv/{key}\",status=\"412\"} 1"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
    server.stop().await;
}
