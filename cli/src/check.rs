//! `check`: is a token the lease's own, and valid for long enough? Inside `run` the supervisor answers, which knows when
//! it will stop the job; elsewhere the store. No answer is a no.

use std::{env, path::Path, time::Duration};

use leasehold::{
    LeaseName, Refusal, Token,
    core::{State, Status},
};

use crate::{
    app::App,
    exit::{Exit, Failure},
    identity, out, parse, show,
    socket::{self, Question, Reply},
    view::{Done, millis},
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0: the token is the lease's own and good for that long; 76: it is not. A check is no \
fence: between it and what you do next the process may freeze. Send the token along with the \
write where the receiver can compare it.

Examples:
  leasehold check nightly --token 1
  leasehold check --for 10s && ./short-step.sh  # inside `leasehold run`")]
pub(crate) struct Check {
    /// The lease
    #[arg(env = identity::LEASE, hide_env_values = true, value_parser = parse::lease_name())]
    name: LeaseName,
    /// Its token [env: LEASEHOLD_TOKEN]
    #[arg(long, value_name = "N", value_parser = parse::token(), allow_hyphen_values = true)]
    token: Option<Token>,
    /// How long it must be valid still
    #[arg(long = "for", value_name = "TIME", value_parser = parse::duration(), allow_hyphen_values = true)]
    needed: Option<Duration>,
}

impl Check {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let token = identity::token(self.token, &self.name)?;
        let needed = self.needed.unwrap_or_default();
        let socket = env::var_os(identity::SOCKET).filter(|path| !path.is_empty());
        let left = match socket.filter(|_| identity::is_ours(&self.name)) {
            Some(socket) => self.ask_supervisor(Path::new(&socket), token, needed)?,
            None => self.ask_store(app, token, needed).await?,
        };
        if app.json {
            out::json(&Done {
                outcome: "valid",
                lease: Some(self.name.as_str()),
                token: Some(token.to_string()),
                remaining_ms: Some(millis(left)),
                ..Done::default()
            })?;
        } else {
            out::line(&format!(
                "ok: token {token} of {} has {} left",
                self.name,
                show::span(left)
            ))?;
        }
        Ok(Exit::DONE)
    }

    fn ask_supervisor(
        &self,
        socket: &Path,
        token: Token,
        needed: Duration,
    ) -> Result<Duration, Failure> {
        let question = Question {
            name: self.name.clone(),
            token,
            needed,
        };
        match socket::ask(socket, &question) {
            Ok(Reply::Good(left)) => Ok(left),
            Ok(Reply::Short(left)) => Err(too_short(token, left, needed)),
            Ok(Reply::Lost(why)) => Err(Failure::refused(why).with("reason", "lost")),
            Err(error) => Err(Failure::refused(format!(
                "the supervisor of this job does not answer ({error}), so its lease counts as lost"
            ))
            .with("reason", "no_answer")),
        }
    }

    async fn ask_store(
        &self,
        app: &App,
        token: Token,
        needed: Duration,
    ) -> Result<Duration, Failure> {
        let store = app.open().await?;
        let sent = app.clock.now();
        let status = store.status(&self.name).await?;
        let status = valid(status.as_ref(), token)?;
        // The store may have answered right after it was asked: all the time since then may be gone.
        let left = status.remaining.saturating_sub(app.clock.now().since(sent));
        match left > needed {
            true => Ok(left),
            false if left.is_zero() => Err(Refusal::Expired { token }.into()),
            false => Err(too_short(token, left, needed)),
        }
    }
}

/// The same comparison as for a fenced write in the store's own data (F7).
fn valid(status: Option<&Status>, token: Token) -> Result<&Status, Refusal> {
    let never = Refusal::NeverIssued { token };
    let Some((status, stored)) = status.and_then(|status| Some((status, status.token?))) else {
        return Err(never);
    };
    match status.holder {
        _ if token < stored => Err(Refusal::Stale {
            token,
            highest: stored,
        }),
        Some(_) if token == stored && status.state == State::Held => Ok(status),
        Some(_) if token == stored && status.released => Err(Refusal::Released { token }),
        Some(_) if token == stored => Err(Refusal::Expired { token }),
        _ => Err(never),
    }
}

fn too_short(token: Token, left: Duration, needed: Duration) -> Failure {
    Failure::refused(format!(
        "token {token} has {} left, less than {}",
        show::span(left),
        show::span(needed)
    ))
    .with("reason", "short")
    .with("token", token.to_string())
    .with("remaining_ms", millis(left))
}
