//! Who is not known learns nothing but 401; who is known does what the rules give, by the prefix of names, and no more.

use leasehold::{
    StoreError,
    core::{Answer, Command, Op, Outcome, Release},
    store::{Store, http::HttpStore, memory::MemoryStore},
};
use leasehold_server::{Config, Credential, Credentials, ROUTES, Right, Rule};
use serde_json::json;

use crate::rig::{Got, Server, id, wish};

struct Callers {
    server: Server,
    reader: String,
    holder: String,
    writer: String,
    admin: String,
}

async fn server() -> Callers {
    let mut lines = String::new();
    let mut add = |number: u8, right, prefix: &str| {
        let rule = Rule {
            right,
            prefix: prefix.to_owned(),
        };
        let (credential, secret) =
            Credential::new(&format!("c{number}"), vec![rule], &[number; 32]);
        lines += &format!("{}\n", serde_json::to_string(&credential).unwrap());
        secret
    };
    let reader = add(1, Right::Read, "a/");
    let holder = add(2, Right::Hold, "a/");
    let writer = add(3, Right::Write, "a/");
    let admin = add(4, Right::Admin, "");
    let config = Config {
        credentials: Some(Credentials::parse(&lines).unwrap()),
        ..Config::default()
    };
    Callers {
        server: Server::with(MemoryStore::new(), config).await,
        reader,
        holder,
        writer,
        admin,
    }
}

impl Callers {
    async fn ask(&self, secret: &str, method: &str, path: &str, body: serde_json::Value) -> Got {
        let headers =
            format!("authorization: Bearer {secret}\r\ncontent-type: application/json\r\n");
        self.server
            .ask(method, path, &headers, body.to_string().as_bytes())
            .await
    }
}

#[tokio::test]
async fn who_is_not_known_learns_nothing_but_401() {
    let callers = server().await;
    let server = &callers.server;
    let mut answers = Vec::new();
    let routes = ROUTES
        .iter()
        .flat_map(|(methods, path)| methods.iter().map(move |method| (*method, *path)));
    let others = [
        ("get", "/nothing"),
        ("patch", "/v1/leases"),
        ("post", "/"),
        ("get", "/v1/kv/%FF"),
    ];
    for (method, path) in routes.chain(others) {
        if path == "/healthz" {
            continue;
        }
        let path = path.replace(['{', '}'], "");
        let bytes = crate::rig::request(server.at, &method.to_uppercase(), &path, "", b"{");
        let got = server.raw(&bytes).await;
        assert_eq!(got.status, 401, "{method} {path}: {got:?}");
        assert!(got.head.contains("www-authenticate: Bearer"));
        answers.push(got.body);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "every answer is the same");
    let twice = format!(
        "authorization: Bearer {0}\r\nauthorization: Bearer {0}\r\n",
        callers.admin
    );
    for headers in [
        "authorization: Bearer \r\n",
        "authorization: Bearer leasehold_00\r\n",
        "authorization: Basic YTpi\r\n",
        "authorization: \r\n",
        &format!("authorization: Basic {}\r\n", callers.admin),
        &format!("authorization: Bearer {}0\r\n", callers.admin),
        &format!("authorization: Bearer {}\r\n", callers.admin.to_uppercase()),
        &twice,
    ] {
        assert_eq!(
            server.ask("GET", "/v1/leases", headers, b"").await.status,
            401,
            "{headers}"
        );
    }
    assert_eq!(
        server.get("/healthz").await.status,
        200,
        "a probe needs no secret"
    );
    callers.server.stop().await;
}

#[tokio::test]
async fn each_right_goes_as_far_as_its_prefix() {
    let callers = server().await;
    let (reader, holder, writer, admin) = (
        &callers.reader,
        &callers.holder,
        &callers.writer,
        &callers.admin,
    );
    let take = |n| wish(n, 60_000, 0);
    for (secret, path, status) in [
        (reader, "/v1/leases/a%2Fx/acquire", 403),
        (writer, "/v1/leases/a%2Fx/acquire", 403),
        (holder, "/v1/leases/b%2Fx/acquire", 403),
        (holder, "/v1/leases/a/acquire", 403),
        (holder, "/v1/leases/%2E%2E%2Fa%2Fx/acquire", 403),
        (holder, "/v1/leases/a%2Fx/acquire", 200),
        (admin, "/v1/leases/b%2Fx/acquire", 200),
    ] {
        assert_eq!(
            callers.ask(secret, "POST", path, take(1)).await.status,
            status,
            "{path}"
        );
    }
    let none = json!({});
    for (secret, method, path, status) in [
        (reader, "GET", "/v1/leases/a%2Fx", 200),
        (reader, "GET", "/v1/leases/b%2Fx", 403),
        (reader, "GET", "/v1/leases/a%2Fx/history", 200),
        (reader, "GET", "/v1/leases/b%2Fx/history", 403),
        (reader, "GET", "/v1/leases?prefix=a%2F", 200),
        (reader, "GET", "/v1/leases", 403),
        (reader, "GET", "/v1/leases?prefix=a", 403),
        (reader, "GET", "/v1/leases?prefix=a%2F&prefix=", 403),
        (reader, "GET", "/v1/watch?prefix=b%2F", 403),
        (reader, "GET", "/v1/history", 403),
        (reader, "GET", "/metrics", 403),
        (reader, "GET", "/v1/store", 200),
        (reader, "PUT", "/v1/kv/a%2Fk", 403),
        (holder, "PUT", "/v1/kv/a%2Fk", 403),
        (writer, "PUT", "/v1/kv/b%2Fk", 403),
        (writer, "PUT", "/v1/kv/a%2Fk", 200),
        (reader, "GET", "/v1/kv/a%2Fk", 200),
        (reader, "GET", "/v1/kv/b%2Fk", 403),
        (reader, "DELETE", "/v1/kv/a%2Fk", 403),
        (holder, "POST", "/v1/leases/a%2Fx/force-release", 403),
        (holder, "POST", "/v1/ledger/a%2Fx/k/begin", 403),
        (writer, "POST", "/v1/ledger/b%2Fx/k/begin", 403),
        (holder, "POST", "/v1/fences/a%2Fr/raise", 403),
        (holder, "POST", "/v1/admin/collect", 403),
        (writer, "POST", "/v1/admin/evict", 403),
        (admin, "POST", "/v1/admin/collect", 200),
        (admin, "GET", "/metrics", 200),
        (admin, "POST", "/v1/leases/a%2Fx/force-release", 200),
        (reader, "GET", "/nothing", 404),
    ] {
        let got = callers.ask(secret, method, path, none.clone()).await;
        assert_eq!(got.status, status, "{method} {path}: {got:?}");
    }
    callers.server.stop().await;
}

#[tokio::test]
async fn in_a_batch_each_operation_is_looked_at() {
    let callers = server().await;
    let take = |lease: &str| json!({"op": "acquire", "lease": lease, "session": id(1), "request_id": id(2), "holder": "h"});
    let ops = json!({"ops": [take("b/x"), take("a/x"), {"op": "put", "key": "a/k", "value": "v"}, {"op": "bump", "above": "9"},
        {"op": "force_release", "lease": "a/x"}, take("a/y")]});
    let got = callers
        .ask(&callers.holder, "POST", "/v1/batch", ops)
        .await
        .json();
    let words: Vec<_> = got["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["answer"].as_str().unwrap())
        .collect();
    assert_eq!(
        words,
        ["error", "granted", "error", "error", "error", "granted"]
    );
    let leases = callers
        .ask(&callers.admin, "GET", "/v1/leases", json!({}))
        .await
        .json();
    assert_eq!(leases["leases"].as_array().unwrap().len(), 2, "{leases}");
    callers.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_http_store_shows_its_credential() {
    let callers = server().await;
    let url = callers.server.url();
    let unknown = HttpStore::connect(&url).await.expect_err("nobody asks");
    assert!(matches!(unknown, StoreError::Invalid { .. }), "{unknown:?}");
    let store = HttpStore::connect_as(&url, Some(&callers.holder))
        .await
        .unwrap();
    assert!(
        !format!("{store:?}").contains(&callers.holder),
        "a secret is not shown"
    );
    let release = |lease: &str| Op::Lease {
        name: lease.parse().unwrap(),
        command: Command::Release(Release::Tenure {
            token: leasehold::Token::FIRST,
            session: leasehold::Session::from_bits(1).unwrap(),
        }),
    };
    let own = store.apply(release("a/x")).await;
    assert!(
        matches!(own, Ok(Outcome::Lease(Answer::Lost(_)))),
        "{own:?}"
    );
    let other = store.apply(release("b/x")).await;
    assert!(
        matches!(&other, Err(StoreError::Invalid { what }) if what.contains("no right")),
        "{other:?}"
    );
    callers.server.stop().await;
}
