//! How a command ends: every exit code and every error, in one place.
//!
//! An error is one line on standard error, or with `--json` one object: `{"error": KIND, "code": CODE, "message": TEXT}`
//! and what else the kind has. Nothing was changed, except where the kind is `unknown`.

use std::{fmt, process::ExitCode};

use leasehold::{Invalid, Refusal, StoreError};
use serde_json::{Map, Value, json};

/// Done.
pub(crate) const DONE: u8 = 0;
/// Asked and the answer is no: `get` found nothing, `doctor` found a fault.
pub(crate) const NO: u8 = 1;
/// The arguments or the set-up are wrong.
pub(crate) const USAGE: u8 = 2;
/// Somebody else holds the lease.
pub(crate) const BUSY: u8 = 75;
/// The token is stale, lost or not yours.
pub(crate) const REFUSED: u8 = 76;
/// It may have happened or not, and may yet.
pub(crate) const UNKNOWN: u8 = 77;
/// The lease was lost, and `run` stopped the command.
pub(crate) const LOST: u8 = 124;
/// Leasehold or the store failed.
pub(crate) const FAILED: u8 = 125;

/// A command that ended as it should; the code is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const DONE: Exit = Exit(DONE);
}

/// A command that did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// `None`: everything was said.
    kind: Option<&'static str>,
    message: String,
    details: Map<String, Value>,
}

impl Failure {
    fn new(kind: &'static str, code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            kind: Some(kind),
            message: message.into(),
            details: Map::new(),
        }
    }

    /// Ends without a word.
    pub(crate) fn silent(code: u8) -> Self {
        Self {
            kind: None,
            ..Self::new("", code, "")
        }
    }

    /// What was typed, or the set-up, is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", USAGE, message)
    }

    /// What was looked for is not there.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new("missing", NO, message)
    }

    /// Somebody else holds.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new("busy", BUSY, message)
    }

    /// The token is stale, lost or not yours.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new("refused", REFUSED, message)
    }

    /// It may have happened or not.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new("unknown", UNKNOWN, message)
    }

    /// Work of the ledger was begun and not finished.
    pub(crate) fn unfinished(message: impl Into<String>) -> Self {
        Self::new("unfinished", UNKNOWN, message)
    }

    /// The lease was lost and the command stopped.
    pub(crate) fn lost_and_stopped(message: impl Into<String>) -> Self {
        Self::new("lost", LOST, message)
    }

    /// We or the store failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new("failed", FAILED, message)
    }

    /// A signal told us to stop; as shells say it.
    pub(crate) fn stopped(signal: u8) -> Self {
        Self::silent(128 + signal)
    }

    /// With the exit code that the user wants for a lease that somebody else holds.
    pub(crate) fn busy_code(mut self, code: u8) -> Self {
        if self.code == BUSY {
            self.code = code;
        }
        self
    }

    /// With more to say.
    pub(crate) fn also(mut self, text: &str) -> Self {
        self.kind.get_or_insert("unknown");
        if !self.message.is_empty() {
            self.message += "; ";
        }
        self.message += text;
        self
    }

    /// With a field for programs.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Says what went wrong, and goes on.
    pub(crate) fn print(&self, json: bool) {
        let Some(kind) = self.kind else { return };
        // An error that cannot be printed leaves the exit code.
        if json {
            let mut object = json!({ "error": kind, "code": self.code, "message": self.message });
            if let Some(fields) = object.as_object_mut() {
                fields.extend(self.details.clone());
            }
            crate::out::complain(&object.to_string());
        } else {
            let word = match kind {
                "busy" | "refused" => kind,
                _ => "error",
            };
            crate::out::complain(&format!("{}: {}", crate::out::red(word), self.message));
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}

impl std::error::Error for Failure {}

/// Says what went wrong, if anything, and ends the process with the right code.
pub(crate) fn finish(end: Result<Exit, Failure>, json: bool) -> ExitCode {
    match end {
        Ok(Exit(code)) => ExitCode::from(code),
        Err(failure) => {
            failure.print(json);
            ExitCode::from(failure.code())
        }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::usage(invalid.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let failure = Self::refused(refusal.to_string());
        match refusal {
            Refusal::Stale { token, highest } => failure
                .with("reason", "stale")
                .with("token", token.to_string())
                .with("highest", highest.to_string()),
            Refusal::Expired { token } => failure
                .with("reason", "expired")
                .with("token", token.to_string()),
            Refusal::Released { token } => failure
                .with("reason", "released")
                .with("token", token.to_string()),
            Refusal::NeverIssued { token } => failure
                .with("reason", "never_issued")
                .with("token", token.to_string()),
            Refusal::NotRaised { token, highest } => failure
                .with("reason", "not_raised")
                .with("token", token.to_string())
                .with("highest", highest.to_string()),
            Refusal::TooFar { token, highest } => failure
                .with("reason", "too_far")
                .with("token", token.to_string())
                .with("highest", highest.to_string()),
            Refusal::Fenced { key, by } => failure
                .with("reason", "fenced")
                .with("key", key.as_str())
                .with("lease", by.as_str()),
            Refusal::OtherLease { by } => failure
                .with("reason", "other_lease")
                .with("lease", by.as_str()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::Invalid { .. } => Self::usage(message),
            StoreError::Unknown { .. } => Self::unknown(message),
            StoreError::Unavailable { .. } | StoreError::BlockedBy { .. } => Self::failed(message),
        }
    }
}
