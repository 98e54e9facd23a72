//! Runs the real binary in a folder of its own: nothing of the machine's user is read, nothing is left behind, and every
//! run ends by itself.
#![allow(dead_code, reason = "every test file uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "tests measure")]

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// No command of a test takes longer, unless it hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A home folder with a store.
pub(crate) struct Place {
    folder: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) raw: Vec<u8>,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The URL of the store that every command of this place uses.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("leases.db").display())
    }

    /// A command that knows nothing but this place.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("TZ", "UTC")
            .env("LEASEHOLD_STORE", self.url())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `leasehold ARGS`, where `args` are words with blanks between them.
    pub(crate) fn run(&self, args: &str) -> Ran {
        self.args(args.split_whitespace())
    }

    pub(crate) fn args<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        run(self.command().args(args), b"")
    }

    /// Runs it and expects it to do what it was asked to.
    pub(crate) fn ok(&self, args: &str) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args}: {ran:?}");
        assert_eq!(ran.err, "", "{args}");
        ran
    }

    /// Runs it with `--json` and gives the only object it prints.
    pub(crate) fn json(&self, args: &str) -> Value {
        let ran = self.ok(&format!("--json {args}"));
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
    }

    /// Takes a lease; its token and its session.
    pub(crate) fn acquire(&self, args: &str) -> (u64, String) {
        let got = self.json(&format!("acquire {args}"));
        let token = got["token"]
            .as_str()
            .expect("a token")
            .parse()
            .expect("a number");
        (
            token,
            got["session"].as_str().unwrap_or_default().to_owned(),
        )
    }

    /// Everything the store says, to see that nothing was changed.
    pub(crate) fn everything(&self) -> String {
        ["list --json", "history --json --limit 1000000"]
            .map(|args| {
                let ran = self.ok(args);
                let lines = ran.out.lines().map(|line| {
                    let mut value: Value = serde_json::from_str(line).expect("JSON");
                    for moving in ["held_for_ms", "remaining_ms"] {
                        value.as_object_mut().expect("an object").remove(moving);
                    }
                    format!("{value}\n")
                });
                lines.collect::<String>()
            })
            .concat()
    }
}

impl Ran {
    /// One line on standard error that begins and goes on like this, nothing on standard output, this code.
    pub(crate) fn fails(&self, code: i32, start: &str, contains: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with(start), "{self:?}");
        assert!(
            self.err.contains(contains),
            "{contains:?} is missing: {self:?}"
        );
        assert!(!self.err.trim_end().contains(char::is_control), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
    }

    /// The objects it printed, one a line.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let objects = self.out.lines().map(serde_json::from_str);
        objects
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// Runs a command to its end, with `input` as its standard input.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command
        .stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    if let Some(mut stdin) = child.stdin.take() {
        // It may have enough before the end.
        let _ = stdin.write_all(input);
    }
    finish(child)
}

/// Waits for the end of a child, but not for ever.
pub(crate) fn finish(mut child: Child) -> Ran {
    let out = child.stdout.take().map(collect);
    let err = child.stderr.take().map(collect);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().expect("it can be killed");
            panic!("it did not end in {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = |thread: Option<JoinHandle<Vec<u8>>>| {
        thread
            .map(|thread| thread.join().expect("it was read"))
            .unwrap_or_default()
    };
    let (raw, err) = (text(out), text(err));
    Ran {
        code: code(status),
        out: String::from_utf8_lossy(&raw).into_owned(),
        raw,
        err: String::from_utf8_lossy(&err).into_owned(),
    }
}

/// As a shell says it.
fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("it can be read");
        bytes
    })
}

/// The permission bits of a file or folder.
pub(crate) fn mode(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}
