//! Who asks, and what shows it: the holder's name for people, the session and the token for the store.
//!
//! A session is a key. It comes from a file or the environment rather than from an argument, which every user of the
//! machine can see in the list of processes; it is printed by `acquire` alone.

use std::{
    env, fs, io,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use leasehold::{Holder, Info, LeaseName, LockDelay, Session, Token};

use crate::{
    ask,
    exit::{self, Failure},
    parse,
};

/// The lease of the job that we are part of; `run` sets it, `acquire` prints it.
pub(crate) const LEASE: &str = "LEASEHOLD_LEASE";
/// Its token.
pub(crate) const TOKEN: &str = "LEASEHOLD_TOKEN";
/// Who holds it, for people; only `run` sets it.
pub(crate) const HOLDER: &str = "LEASEHOLD_HOLDER";
/// What a receiver that checks no token can tell a repetition by; only `run` sets it (I3).
pub(crate) const IDEMPOTENCY_KEY: &str = "LEASEHOLD_IDEMPOTENCY_KEY";
/// The session of a lease taken by hand. `run` never sets it.
pub(crate) const SESSION: &str = "LEASEHOLD_SESSION";
/// Where the supervisor of the job answers `check`; only `run` sets it.
pub(crate) const SOCKET: &str = "LEASEHOLD_SOCKET";

/// A session file holds 32 digits and a line end; more is another file.
const LONGEST_FILE: u64 = 64;

/// What both `acquire` and `run` say of the holder.
#[derive(Debug, clap::Args)]
pub(crate) struct HolderArgs {
    /// Who holds, for people; by default this machine and the process that keeps the lease
    #[arg(long, value_name = "NAME", value_parser = parse::holder())]
    holder: Option<Holder>,
    /// A line for whoever asks about the lease, such as where to reach you
    #[arg(long, value_name = "TEXT", value_parser = parse::info())]
    pub(crate) info: Option<Info>,
    /// How long nobody gets the lease if it runs out unreleased, up to 10m: for effects that no fence protects
    #[arg(long, value_name = "TIME", default_value = "0s", allow_hyphen_values = true, value_parser = parse::lock_delay())]
    pub(crate) lock_delay: LockDelay,
    /// The exit code if somebody else holds it
    #[arg(long, value_name = "CODE", default_value_t = exit::BUSY, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) busy_exit_code: u8,
}

impl HolderArgs {
    /// The holder that was given, or this machine and `pid`.
    pub(crate) fn holder_or(&self, pid: impl std::fmt::Display) -> Result<Holder, Failure> {
        match &self.holder {
            Some(holder) => Ok(holder.clone()),
            None => default_holder(pid),
        }
    }
}

/// How a session is given.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionArgs {
    /// The session, the key to renew and release; others see it in the list of processes [env: LEASEHOLD_SESSION]
    #[arg(long, value_name = "SESSION", value_parser = parse::session(), conflicts_with = "session_file")]
    pub(crate) session: Option<Session>,
    /// A file with the session, readable by you alone
    #[arg(long, value_name = "FILE")]
    pub(crate) session_file: Option<PathBuf>,
}

impl SessionArgs {
    /// The session that was given, in whichever way.
    pub(crate) fn required(&self) -> Result<Session, Failure> {
        self.given()?.ok_or_else(|| {
            Failure::usage(format!(
                "a session is needed: --session-file FILE, or {SESSION} in the environment, as `leasehold acquire` printed it"
            ))
        })
    }

    /// As [`Self::required`]; a session file that is not there yet is made, with a new session.
    pub(crate) fn given_or_new(&self) -> Result<Session, Failure> {
        match &self.session_file {
            Some(path) => match write_new(path)? {
                Some(session) => Ok(session),
                None => read(path),
            },
            None => Ok(match self.given()? {
                Some(session) => session,
                None => ask::new_session()?,
            }),
        }
    }

    fn given(&self) -> Result<Option<Session>, Failure> {
        if let Some(session) = self.session {
            return Ok(Some(session));
        }
        if let Some(path) = &self.session_file {
            return read(path).map(Some);
        }
        env::var_os(SESSION)
            .filter(|text| !text.is_empty())
            .map(|text| parse::env(SESSION, &text, &parse::session()))
            .transpose()
    }
}

fn parsed(text: &str, place: &str) -> Result<Session, Failure> {
    text.parse()
        .map_err(|invalid| Failure::usage(format!("{place}: {invalid}")))
}

fn read(path: &Path) -> Result<Session, Failure> {
    let mut text = String::new();
    let file = fs::File::open(path).map(|file| file.take(LONGEST_FILE));
    let end = file.and_then(|mut file| file.read_to_string(&mut text));
    end.map_err(|error| unusable(path, &error))?;
    parsed(
        text.trim_end(),
        &parse::printable(&path.to_string_lossy(), 200),
    )
}

/// Writes a new session to a new file, whole or not at all; `None` if the file is there.
fn write_new(path: &Path) -> Result<Option<Session>, Failure> {
    if path.exists() {
        return Ok(None);
    }
    let session = ask::new_session()?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // It is its user's alone, as all temporary files are.
    let written =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).and_then(|mut file| {
            writeln!(file, "{}", session.expose())?;
            file.as_file().sync_all()?;
            Ok(file.persist_noclobber(path)?)
        });
    match written {
        Ok(_) => Ok(Some(session)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let path = parse::printable(&path.to_string_lossy(), 200);
    Failure::usage(format!("the session file {path} cannot be used: {error}"))
}

/// The token that was given, or the environment's, if that is about the same lease: a token of another one means
/// nothing here (T2).
pub(crate) fn token(given: Option<Token>, name: &LeaseName) -> Result<Token, Failure> {
    if let Some(token) = given {
        return Ok(token);
    }
    match (is_ours(name), env::var_os(TOKEN)) {
        (true, Some(text)) => parse::env(TOKEN, &text, &parse::token()),
        _ => Err(Failure::usage(format!(
            "the token of {name} is needed: --token N, or {LEASE} and {TOKEN} in the environment"
        ))),
    }
}

/// Whether the job that we are part of runs under this lease.
pub(crate) fn is_ours(name: &LeaseName) -> bool {
    env::var(LEASE).is_ok_and(|lease| lease == name.as_str())
}

/// Who holds, for people, unless told otherwise: this machine and a process that lives as long as the lease is held.
fn default_holder(pid: impl std::fmt::Display) -> Result<Holder, Failure> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    Holder::new(&format!("{host}:{pid}")).or_else(|_| Ok(Holder::new(&format!("pid:{pid}"))?))
}

/// The process that started us: for a command that takes a lease and ends, the one that holds.
pub(crate) fn parent() -> i32 {
    rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get())
}
