//! A real etcd of a test's own: free ports, a temporary folder, gone when dropped.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

/// A version of etcd on this machine.
#[derive(Clone, Debug)]
pub enum Version {
    /// Debian's, 3.4.
    Debian(PathBuf),
    /// 3.6, inside the program that `make setup` built.
    Newest(PathBuf),
}

impl Version {
    /// Both. Says SKIPPED for one that is missing.
    pub fn all() -> Vec<Version> {
        [Self::debian(), Self::newest()]
            .into_iter()
            .flatten()
            .collect()
    }

    pub fn debian() -> Option<Version> {
        let program = PathBuf::from("/usr/bin/etcd");
        program
            .exists()
            .then_some(Version::Debian(program))
            .or_else(|| skipped("no etcd in /usr/bin"))
    }

    pub fn newest() -> Option<Version> {
        interop().map(Version::Newest)
    }
}

/// The program of `interop/`.
pub fn interop() -> Option<PathBuf> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let kept = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    kept.into_iter()
        .chain([PathBuf::from("/var/cache"), home.join(".cache")])
        .map(|cache| cache.join("leasehold/interop/interop"))
        .find(|program| program.exists())
        .or_else(|| skipped("no interop program in the cache"))
}

/// Says past the capture of the test harness that something could not run; counted by `make test`.
fn skipped<T>(why: &str) -> Option<T> {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}; run `make setup`");
    None
}

/// Settings beside the defaults.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// In bytes; 0: etcd's own.
    pub quota: u64,
    /// In ms; 0: etcd's own.
    pub heartbeat: u32,
    pub election: u32,
    /// Certificate, key, authority.
    pub tls: Option<[PathBuf; 3]>,
}

/// One member.
#[derive(Debug)]
pub struct Server {
    version: Version,
    settings: Settings,
    folder: TempDir,
    name: String,
    cluster: String,
    client: u16,
    peer: u16,
    child: Option<Child>,
}

fn port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    socket.expect("a free port").port()
}

impl Server {
    /// A cluster of one, ready.
    pub async fn start(version: &Version) -> Server {
        Self::with(version, Settings::default()).await
    }

    pub async fn with(version: &Version, settings: Settings) -> Server {
        let mut server = Self::members(version, &settings, 1).remove(0);
        server.run();
        if server.settings.tls.is_none() {
            server.ready().await;
        }
        server
    }

    /// Members of one cluster, not started.
    pub fn members(version: &Version, settings: &Settings, members: usize) -> Vec<Server> {
        let mut servers: Vec<Server> = (0..members)
            .map(|number| Server {
                version: version.clone(),
                settings: settings.clone(),
                folder: TempDir::with_prefix("leasehold-etcd-").expect("a temporary folder"),
                name: format!("m{number}"),
                cluster: String::new(),
                client: port(),
                peer: port(),
                child: None,
            })
            .collect();
        let all: Vec<String> = servers
            .iter()
            .map(|one| format!("{}={}", one.name, one.peer_url()))
            .collect();
        for server in &mut servers {
            server.cluster = all.join(",");
        }
        servers
    }

    /// Starts the process.
    pub fn run(&mut self) {
        let mut command = match self.version.clone() {
            Version::Debian(program) => self.debian(&program),
            Version::Newest(program) => self.newest(&program),
        };
        // It ends when its standard input does, or with the test.
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("etcd starts"));
    }

    fn debian(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let data = self.data();
        let log = self.folder.path().join("log");
        command
            .args(["--logger", "zap", "--log-level", "warn", "--log-outputs"])
            .arg(log);
        command
            .arg("--data-dir")
            .arg(data)
            .args(["--name", &self.name]);
        for (option, url) in [
            ("--listen-client-urls", self.client_url()),
            ("--advertise-client-urls", self.client_url()),
            ("--listen-peer-urls", self.peer_url()),
            ("--initial-advertise-peer-urls", self.peer_url()),
            ("--initial-cluster", self.cluster.clone()),
        ] {
            command.args([option, &url]);
        }
        if self.settings.quota > 0 {
            command.args(["--quota-backend-bytes", &self.settings.quota.to_string()]);
        }
        if self.settings.election > 0 {
            command.args(["--heartbeat-interval", &self.settings.heartbeat.to_string()]);
            command.args(["--election-timeout", &self.settings.election.to_string()]);
        }
        if let Some([cert, key, ca]) = &self.settings.tls {
            command
                .arg("--cert-file")
                .arg(cert)
                .arg("--key-file")
                .arg(key)
                .arg("--trusted-ca-file")
                .arg(ca);
        }
        command
    }

    fn newest(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = |number: usize| {
            let files = self.settings.tls.as_ref();
            files
                .map(|files| files[number].display().to_string())
                .unwrap_or_default()
        };
        let json = format!(
            r#"{{"Name":"{}","Folder":"{}","Client":"{}","Peer":"{}","Cluster":"{}","State":"new","Quota":{},"Heartbeat":{},"Election":{},"Cert":"{}","Key":"{}","CA":"{}"}}"#,
            self.name,
            self.data().display(),
            self.client_url(),
            self.peer_url(),
            self.cluster,
            self.settings.quota,
            self.settings.heartbeat,
            self.settings.election,
            path(0),
            path(1),
            path(2),
        );
        command.args(["etcd", &json]);
        command
    }

    /// Waits until it serves.
    pub async fn ready(&self) {
        let mut last = None;
        for _ in 0..600 {
            match leasehold::connect(&self.url()).await {
                Ok(_) => return,
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd does not serve: {last:?}\n{}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// All members, as etcd's own options name them.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.client)
    }

    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    pub fn client_url(&self) -> String {
        let scheme = if self.settings.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://127.0.0.1:{}", self.client)
    }

    pub fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("it runs");
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).expect("our child");
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Runs etcdctl against it until it ends; what it printed.
    pub fn ctl<const N: usize>(&self, args: [&str; N]) -> String {
        self.ctl_all(&args)
    }

    /// The same.
    pub fn ctl_all(&self, args: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.client_url()))
            .args(args)
            .output()
            .expect("etcdctl runs");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// etcd's own client library as an opponent: a line in, a line out.
#[derive(Debug)]
pub struct Opponent {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Opponent {
    /// `kind` is mutex or election.
    pub fn start(server: &Server, kind: &str, name: &str, ttl: u32) -> Option<Opponent> {
        let mut child = Command::new(interop()?)
            .args([
                "opponent",
                &server.client_url(),
                kind,
                name,
                &ttl.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("interop starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Some(Opponent { child, lines })
    }

    /// Asks without waiting for the answer.
    pub fn ask(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{line}").expect("it reads");
    }

    /// The answer to the oldest question.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it writes");
        line.trim().to_owned()
    }

    pub fn say(&mut self, line: &str) -> String {
        self.ask(line);
        self.hear()
    }

    /// Takes the lease; its token.
    pub fn take(&mut self) -> u64 {
        revision(&self.say("take"))
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("our child");
    }
}

/// The number in `held NUMBER`.
pub fn revision(line: &str) -> u64 {
    let number = line
        .strip_prefix("held ")
        .unwrap_or_else(|| panic!("{line}"));
    number.parse().expect("a revision")
}

impl Drop for Opponent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
