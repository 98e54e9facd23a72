//! `put`: stores a value, plain or under a lease. The check of the token and the write are one step of the store (F2).

use std::{
    ffi::OsString,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
};

use leasehold::{
    Key, LeaseName, Token, Value,
    core::{Op, Outcome, Proof},
};

use crate::{
    app::App,
    ask,
    exit::{Exit, Failure},
    identity, out, parse,
    view::Done,
};

/// The lease that a write runs under.
#[derive(Debug, clap::Args)]
pub(crate) struct ProofArgs {
    /// Write under this lease: accepted only while the token is its own and valid
    #[arg(long, value_name = "NAME", value_parser = parse::lease_name())]
    lease: Option<LeaseName>,
    /// The token of the lease [env: LEASEHOLD_TOKEN]
    #[arg(long, value_name = "N", value_parser = parse::token(), requires = "lease", allow_hyphen_values = true)]
    token: Option<Token>,
}

impl ProofArgs {
    pub(crate) fn proof(self) -> Result<Option<Proof>, Failure> {
        let Some(lease) = self.lease else {
            return Ok(None);
        };
        let token = identity::token(self.token, &lease)?;
        Ok(Some(Proof { lease, token }))
    }
}

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The first write under a lease binds KEY to it: from then on only holders of that lease write it, \
until one of them deletes it. A write with an old token is refused (exit code 76), whoever sends \
it and however late.

Examples:
  leasehold put report \"$(date)\"
  leasehold put report done --lease nightly --token 2
  ./report.sh | leasehold put report - --lease nightly  # inside `run nightly`")]
pub(crate) struct Put {
    /// The key
    #[arg(value_parser = parse::key())]
    key: Key,
    /// The value, up to 64 KiB; `-` reads it from standard input
    #[arg(allow_negative_numbers = true)]
    value: OsString,
    #[command(flatten)]
    proof: ProofArgs,
}

impl Put {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let proof = self.proof.proof()?;
        let value = match self.value.as_bytes() {
            b"-" => from_stdin()?,
            bytes => Value::new(bytes)?,
        };
        let put = Op::Put {
            key: self.key.clone(),
            value,
            proof: proof.clone(),
        };
        write(app, put).await?;
        tell(app, "stored", &self.key, proof.as_ref())
    }
}

/// Sends one write, once: a second one could undo what somebody else wrote in between.
pub(crate) async fn write(app: &App, op: Op) -> Result<(), Failure> {
    match app.open().await?.apply(op).await? {
        Outcome::Done => Ok(()),
        Outcome::Refused(refusal) => Err(refusal.into()),
        other => Err(match ask::answer(other) {
            Ok(answer) => ask::unexpected(&answer),
            Err(error) => error.into(),
        }),
    }
}

pub(crate) fn tell(
    app: &App,
    outcome: &str,
    key: &Key,
    proof: Option<&Proof>,
) -> Result<Exit, Failure> {
    if app.json {
        out::json(&Done {
            outcome,
            key: Some(key.as_str()),
            lease: proof.map(|proof| proof.lease.as_str()),
            token: proof.map(|proof| proof.token.to_string()),
            ..Done::default()
        })?;
    } else {
        out::line("ok")?;
    }
    Ok(Exit::DONE)
}

fn from_stdin() -> Result<Value, Failure> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(Value::MAX_LEN)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    io::stdin()
        .lock()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::failed(format!("standard input cannot be read: {error}")))?;
    Value::new(&bytes).map_err(|_| {
        Failure::usage(format!(
            "standard input has more than the {} bytes of a value",
            Value::MAX_LEN
        ))
    })
}
