//! `renew`: keeps a lease that `acquire` took, from now on for another ttl. A late one is refused (L5).

use leasehold::{LeaseName, Token, Ttl};

use crate::{
    app::App,
    ask,
    exit::{Exit, Failure},
    identity::{self, SessionArgs},
    out, parse, show,
    view::{Done, millis},
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
NAME and the token may come from the environment, as `leasehold acquire` printed it. A lease \
that ran out is lost, even if nobody took it (exit code 76): acquire it anew, and get a larger \
token.

Examples:
  leasehold renew nightly --token 1 --session-file nightly.key
  leasehold renew --ttl 1h")]
pub(crate) struct Renew {
    /// The lease
    #[arg(env = identity::LEASE, hide_env_values = true, value_parser = parse::lease_name())]
    name: LeaseName,
    /// Its token [env: LEASEHOLD_TOKEN]
    #[arg(long, value_name = "N", value_parser = parse::token(), allow_hyphen_values = true)]
    token: Option<Token>,
    /// How long from now on, 500ms to 24h; by default as long as before
    #[arg(long, value_parser = parse::ttl(), allow_hyphen_values = true)]
    ttl: Option<Ttl>,
    #[command(flatten)]
    session: SessionArgs,
}

impl Renew {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let token = identity::token(self.token, &self.name)?;
        let session = self.session.required()?;
        let store = app.open().await?;
        let ttl = ask::renew(app, &*store, &self.name, (token, session), self.ttl).await?;
        if app.json {
            out::json(&Done {
                outcome: "renewed",
                lease: Some(self.name.as_str()),
                token: Some(token.to_string()),
                ttl_ms: Some(millis(ttl.get())),
                ..Done::default()
            })?;
        } else {
            out::line(&format!(
                "{} renewed for {}",
                self.name,
                show::span(ttl.get())
            ))?;
        }
        Ok(Exit::DONE)
    }
}
