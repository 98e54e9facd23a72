//! A stand-in for an API server: Leases of one namespace in memory, over HTTP/1.1, with one version counter for all of
//! them. It says what a real one says to the requests of the store, and can go wrong on command.
//!
//! It is for faults that a real API server cannot be made to show. It knows nothing of rights.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// What to do wrong with the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Done, and the answer never comes.
    LoseAnswer,
    /// Not done; answered with this status.
    Refuse(u16),
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    uids: u64,
    leases: BTreeMap<String, Value>,
    /// Every change with its version, for watches.
    events: Vec<(u64, Value)>,
    faults: VecDeque<Fault>,
    requests: u64,
}

/// A running stand-in. Its threads end with the test's process.
#[derive(Debug)]
pub struct Double {
    state: Arc<Mutex<State>>,
    folder: TempDir,
}

impl Double {
    /// Empty, at a version that a cluster may have after a while.
    pub fn start() -> Double {
        let state = Arc::new(Mutex::new(State {
            version: 1000,
            ..State::default()
        }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serves = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = serves.clone();
                thread::spawn(move || serve(&stream, &state));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        });
        std::fs::write(folder.path().join("kubeconfig"), config.to_string()).unwrap();
        Double { state, folder }
    }

    /// Of its namespace `default`, with more options.
    pub fn url(&self, options: &str) -> String {
        let path = self.folder.path().join("kubeconfig");
        format!("kubernetes:default?kubeconfig={}{options}", path.display())
    }

    /// The Lease as `kubectl get -o json` shows it.
    pub fn lease(&self, name: &str) -> Option<Value> {
        self.state.lock().unwrap().leases.get(name).cloned()
    }

    /// As somebody else writes it: the version moves on.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock().unwrap();
        let mut lease = state
            .leases
            .get(name)
            .cloned()
            .unwrap_or_else(|| json!({"metadata": {"name": name}, "spec": {}}));
        change(&mut lease);
        if lease["metadata"]["uid"].is_null() {
            state.uids += 1;
            lease["metadata"]["uid"] = json!(format!("uid-{}", state.uids));
        }
        state.store(name, lease, "MODIFIED");
    }

    /// As `kubectl delete lease`.
    pub fn delete(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        let lease = state.leases.remove(name).unwrap();
        state.version += 1;
        let version = state.version;
        state
            .events
            .push((version, json!({"type": "DELETED", "object": lease})));
    }

    /// The next write goes wrong like this.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().unwrap().faults.push_back(fault);
    }

    /// Everything as it was `leases` ago: an etcd restored from a backup.
    pub fn restore(&self, version: u64, name: &str, lease: Value) {
        let mut state = self.state.lock().unwrap();
        state.version = version;
        state.leases.insert(name.to_owned(), lease);
    }

    /// How many requests came so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().unwrap().requests
    }
}

impl State {
    fn store(&mut self, name: &str, mut lease: Value, kind: &str) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        lease["metadata"]["namespace"] = json!("default");
        lease["apiVersion"] = json!("coordination.k8s.io/v1");
        lease["kind"] = json!("Lease");
        self.leases.insert(name.to_owned(), lease.clone());
        let event = json!({"type": kind, "object": lease});
        self.events.push((self.version, event));
        lease
    }

    fn answer(&mut self, method: &str, name: &str, body: Value) -> (u16, Value) {
        let known = self.leases.get(name).cloned();
        match (method, known) {
            ("GET", _) if name.is_empty() => {
                let items: Vec<_> = self.leases.values().cloned().collect();
                let metadata = json!({"resourceVersion": self.version.to_string()});
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}),
                )
            }
            ("GET", Some(lease)) => (200, lease),
            ("POST", _) => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.leases.contains_key(&name) {
                    return failure(409);
                }
                self.uids += 1;
                let mut lease = body;
                lease["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
                (201, self.store(&name, lease, "ADDED"))
            }
            ("PUT", Some(lease)) => {
                let same = |field: &str| {
                    let sent = &body["metadata"][field];
                    sent.is_null() || *sent == lease["metadata"][field]
                };
                if !same("uid") || !same("resourceVersion") {
                    return failure(409);
                }
                (200, self.store(name, body, "MODIFIED"))
            }
            // As the real one: a PUT with a uid creates nothing (A6).
            ("PUT", None) if !body["metadata"]["uid"].is_null() => failure(409),
            ("PUT", None) => {
                self.uids += 1;
                let mut lease = body;
                lease["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
                (201, self.store(name, lease, "ADDED"))
            }
            _ => failure(404),
        }
    }
}

fn failure(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Other" };
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": format!("the stand-in says {code}"), "reason": reason, "code": code,
    });
    (code, body)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    while let Some((method, path, body)) = request(&mut reader) {
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        if path == "/version" {
            let version = json!({"major": "1", "minor": "37", "gitVersion": "v1.37.0", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
            respond(stream, 200, &version);
            continue;
        }
        let name = path
            .rsplit_once("/leases")
            .map_or("", |(_, name)| name.trim_start_matches('/'));
        if query.contains("watch=true") {
            watch(stream, state, query);
            return;
        }
        let mut guard = state.lock().unwrap();
        guard.requests += 1;
        let fault = if method == "GET" {
            None
        } else {
            guard.faults.pop_front()
        };
        let (code, answer) = match fault {
            Some(Fault::Refuse(code)) => failure(code),
            _ => guard.answer(&method, name, body),
        };
        drop(guard);
        if fault == Some(Fault::LoseAnswer) {
            return;
        }
        respond(stream, code, &answer);
    }
}

fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, String, Value)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(text) = header.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((
        method,
        path,
        serde_json::from_slice(&body).unwrap_or_default(),
    ))
}

fn respond(mut stream: &TcpStream, code: u16, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

fn watch(mut stream: &TcpStream, state: &Mutex<State>, query: &str) {
    let from = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion=")?.parse::<u64>().ok())
        .unwrap_or(0);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    let (mut last, mut alive) = (from, stream.write_all(head.as_bytes()).is_ok());
    while alive {
        let events = state.lock().unwrap().events.clone();
        for (version, event) in events {
            if version > last {
                last = version;
                alive &= stream.write_all(format!("{event}\n").as_bytes()).is_ok();
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}
