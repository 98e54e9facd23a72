//! `acquire`: takes a lease for a script or a unit, and prints the token and the session.
//!
//! A lease whose token cannot be told to anybody is given back.

use std::time::Duration;

use leasehold::{Holder, LeaseName, Session, Token, Ttl, core::Acquire as Request};
use serde::Serialize;

use crate::{
    app::App,
    ask,
    asking::{Asking, Tenure},
    exit::{Exit, Failure},
    identity::{self, HolderArgs, SessionArgs},
    out, parse, show,
    stop::Stop,
    view::millis,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The output sets LEASEHOLD_LEASE, LEASEHOLD_TOKEN and LEASEHOLD_SESSION, for a shell or a systemd \
EnvironmentFile. The session is the key to renew and release: it is printed here and nowhere \
else. With --session-file it goes into that file instead. Asking again with the session that \
holds NAME renews, and answers the same token.

Examples:
  lease=$(leasehold acquire nightly --ttl 10m) || exit
  set -a; eval \"$lease\"; set +a
  ./report.sh; leasehold release nightly

  leasehold acquire nightly --wait 1m --session-file nightly.key
  leasehold renew nightly --token 1 --session-file nightly.key")]
pub(crate) struct Acquire {
    /// The lease
    #[arg(value_parser = parse::lease_name())]
    name: LeaseName,
    /// How long it lasts without a renewal, 500ms to 24h
    #[arg(long, default_value = "15s", allow_hyphen_values = true, value_parser = parse::ttl())]
    ttl: Ttl,
    /// Wait this long for whoever holds it; by default not at all
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration(), conflicts_with = "no_wait")]
    wait: Option<Duration>,
    /// Answer at once, as without --wait
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    who: HolderArgs,
    #[command(flatten)]
    session: SessionArgs,
}

impl Acquire {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        let session = self.session.given_or_new()?;
        let mut stop = Stop::new()?;
        let request = Request {
            session,
            request_id: ask::new_request_id()?,
            holder: self.who.holder_or(identity::parent())?,
            info: self.who.info.clone(),
            ttl: self.ttl,
            lock_delay: self.who.lock_delay,
        };
        let holder = request.holder.clone();
        let mut asking = Asking::new(app, &*store, &self.name, request, self.wait);
        let end = tokio::select! {
            end = asking.until_held() => end,
            signal = stop.asked() => Err(Failure::stopped(signal)),
        };
        let tenure = match end {
            Ok(tenure) => tenure,
            Err(failure) => {
                return Err(asking
                    .give_up(failure)
                    .await
                    .busy_code(self.who.busy_exit_code));
            }
        };
        match self.tell(app, session, &holder, &tenure) {
            Ok(()) => Ok(Exit::DONE),
            Err(failure) if tenure.renewed => Err(failure),
            Err(_) => Err(asking
                .give_up(Failure::failed(
                    "standard output cannot be written, so the lease was given back",
                ))
                .await),
        }
    }

    fn tell(
        &self,
        app: &App,
        session: Session,
        holder: &Holder,
        tenure: &Tenure,
    ) -> Result<(), Failure> {
        let shown = self
            .session
            .session_file
            .is_none()
            .then(|| session.expose());
        if app.json {
            return out::json(&View {
                lease: self.name.as_str(),
                token: tenure.token,
                session: shown,
                holder: holder.as_str(),
                ttl_ms: millis(tenure.ttl.get()),
                renewed: tenure.renewed,
            });
        }
        let mut text = format!(
            "{}={}\n{}={}\n",
            identity::LEASE,
            quoted(self.name.as_str()),
            identity::TOKEN,
            tenure.token
        );
        if let Some(session) = shown {
            text += &format!("{}={session}\n", identity::SESSION);
        }
        out::text_as_it_is(&text)?;
        if out::has_a_person() {
            let verb = if tenure.renewed { "renewed" } else { "yours" };
            out::note(&format!(
                "{} is {verb} for {}: renew it in time, release it when done",
                self.name,
                show::span(tenure.ttl.get())
            ));
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct View<'a> {
    lease: &'a str,
    token: Token,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    holder: &'a str,
    ttl_ms: u64,
    renewed: bool,
}

/// As a shell reads it back.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
