//! `release`: gives back a lease that `acquire` took. What is over already stays so and is no error; what belongs to
//! somebody else is left alone (L7, A21).

use leasehold::{
    LeaseName, Token,
    core::{Answer, Command, Release as Request},
};

use crate::{
    app::App,
    ask,
    exit::{Exit, Failure},
    identity::{self, SessionArgs},
    out, parse,
    view::Done,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
NAME and the token may come from the environment, as `leasehold acquire` printed it. Releasing \
what has ended is fine (exit code 0); releasing what another session holds is refused (76).

Examples:
  leasehold release nightly --token 1 --session-file nightly.key
  leasehold release")]
pub(crate) struct Release {
    /// The lease
    #[arg(env = identity::LEASE, hide_env_values = true, value_parser = parse::lease_name())]
    name: LeaseName,
    /// Its token [env: LEASEHOLD_TOKEN]
    #[arg(long, value_name = "N", value_parser = parse::token(), allow_hyphen_values = true)]
    token: Option<Token>,
    #[command(flatten)]
    session: SessionArgs,
}

impl Release {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let token = identity::token(self.token, &self.name)?;
        let session = self.session.required()?;
        let store = app.open().await?;
        let release = Command::Release(Request::Tenure { token, session });
        let (outcome, text) = match ask::command(app, &*store, &self.name, release).await? {
            Answer::Released => ("released", "released"),
            Answer::AlreadyOver => ("already_over", "was over already"),
            Answer::Lost(why) => return Err(ask::lost(token, why)),
            other => return Err(ask::unexpected(&other)),
        };
        if app.json {
            out::json(&Done {
                outcome,
                lease: Some(self.name.as_str()),
                token: Some(token.to_string()),
                ..Done::default()
            })?;
        } else {
            out::line(&format!("{} {text}", self.name))?;
        }
        Ok(Exit::DONE)
    }
}
