//! `acquire`: takes a lease for a script or a unit, and prints the token and the session.
//!
//! Nothing is left behind in doubt: what was granted and cannot be used (a signal, a closed output, an answer that came
//! too late or never) is given back (L9, A4).

use std::time::Duration;

use leasehold::{
    BootTime, Holder, Info, LeaseName, LockDelay, Session, Token, Ttl,
    core::{Acquire as Request, Answer, Command, Grant, Held, Release},
    store::{SharedStore, StoreError},
};
use serde::Serialize;

use crate::{
    app::App,
    ask,
    exit::{self, Exit, Failure},
    identity::{self, SessionArgs},
    out, parse, show,
    stop::Stop,
    view::millis,
};

/// Between two questions to the store, at least (A20).
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// And at most: the store's ticks are only hints.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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
    /// Who holds, for people; by default this machine and the process that started the command
    #[arg(long, value_name = "NAME", value_parser = parse::holder())]
    holder: Option<Holder>,
    /// A line for whoever asks about the lease, such as where to reach you
    #[arg(long, value_name = "TEXT", value_parser = parse::info())]
    info: Option<Info>,
    /// How long nobody gets the lease if it runs out unreleased, up to 10m
    #[arg(long, value_name = "TIME", default_value = "0s", allow_hyphen_values = true, value_parser = parse::lock_delay())]
    lock_delay: LockDelay,
    /// The exit code if somebody else holds it
    #[arg(long, value_name = "CODE", default_value_t = exit::BUSY, value_parser = clap::value_parser!(u8).range(1..))]
    busy_exit_code: u8,
    #[command(flatten)]
    session: SessionArgs,
}

impl Acquire {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        let session = self.session.given_or_new()?;
        let mut stop = Stop::new()?;
        let mut asking = Asking {
            deadline: self.wait.map(|wait| app.clock.now().plus(wait)),
            request: Request {
                session,
                request_id: ask::new_request_id()?,
                holder: match &self.holder {
                    Some(holder) => holder.clone(),
                    None => identity::default_holder(identity::parent())?,
                },
                info: self.info.clone(),
                ttl: self.ttl,
                lock_delay: self.lock_delay,
            },
            busy_exit_code: self.busy_exit_code,
            waits_for: None,
            perhaps_granted: false,
            name: &self.name,
            store: &store,
            app,
        };
        let end = tokio::select! {
            end = asking.until_held() => end,
            signal = stop.asked() => Err(Failure::stopped(signal)),
        };
        let tenure = match end {
            Ok(tenure) => tenure,
            Err(failure) => return Err(asking.give_up(failure).await),
        };
        match self.tell(app, session, asking.request.holder.clone(), &tenure) {
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
        holder: Holder,
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

/// What the caller has now.
struct Tenure {
    token: Token,
    ttl: Ttl,
    /// It had it before.
    renewed: bool,
}

/// One logical acquire over all its polls.
struct Asking<'a> {
    app: &'a App,
    store: &'a SharedStore,
    name: &'a LeaseName,
    request: Request,
    deadline: Option<BootTime>,
    busy_exit_code: u8,
    /// Whom we have said we wait for.
    waits_for: Option<String>,
    /// An answer may be missing, or is a grant that nobody has been told of.
    perhaps_granted: bool,
}

impl Asking<'_> {
    async fn until_held(&mut self) -> Result<Tenure, Failure> {
        let mut asked_again = false;
        loop {
            // Before asking, or a release in between would go unseen.
            let mut changes = self.store.changes();
            let sent = self.app.clock.now();
            let command = Command::Acquire(self.request.clone());
            self.perhaps_granted = true;
            let answer = ask::command(self.app, &**self.store, self.name, command).await;
            self.perhaps_granted = matches!(
                answer,
                Ok(Answer::Granted(_)) | Err(StoreError::Unknown { .. })
            );
            let (busy, hint) = match answer {
                Ok(Answer::Granted(grant)) => return self.in_time(grant, sent),
                Ok(Answer::Held(held)) if held.yours => return self.keep(held.token).await,
                Ok(Answer::Held(held)) => (self.held(&held), held.hint),
                Ok(Answer::Delayed { hint }) => (self.empty("its lock delay runs", hint), hint),
                Ok(Answer::Quarantined { hint }) => (self.empty("it is in quarantine", hint), hint),
                Ok(Answer::AlreadyUsed) => {
                    self.request.request_id = ask::new_request_id()?;
                    continue;
                }
                Ok(Answer::TokenExhausted) => {
                    return Err(Failure::failed(format!(
                        "{} has no larger token left",
                        self.name
                    )));
                }
                Ok(other) => return Err(ask::unexpected(&other)),
                Err(error @ (StoreError::Unavailable { .. } | StoreError::BlockedBy { .. }))
                    if self.deadline.is_some() =>
                {
                    self.say_once("the store", &error.to_string());
                    (error.into(), LONGEST_PAUSE)
                }
                Err(error) => return Err(error.into()),
            };
            let now = self.app.clock.now();
            let left = match self.deadline {
                Some(deadline) => deadline.since(now),
                // A hint of nothing shows a holder that is gone already: asked once more before it is believed (A20).
                None if hint.is_zero() && !asked_again => SHORTEST_PAUSE,
                None => Duration::ZERO,
            };
            if left.is_zero() {
                return Err(busy);
            }
            asked_again = true;
            let pause = (hint.min(LONGEST_PAUSE) + jitter()).min(left);
            tokio::time::sleep(SHORTEST_PAUSE.min(left)).await;
            tokio::select! {
                () = changes.changed() => {}
                () = tokio::time::sleep(pause.saturating_sub(SHORTEST_PAUSE)) => {}
            }
        }
    }

    /// Our own session holds: that is a renewal.
    async fn keep(&self, token: Token) -> Result<Tenure, Failure> {
        let tenure = (token, self.request.session);
        let ttl = ask::renew(
            self.app,
            &**self.store,
            self.name,
            tenure,
            Some(self.request.ttl),
        )
        .await?;
        Ok(Tenure {
            token,
            ttl,
            renewed: true,
        })
    }

    /// A grant is worth what is left of it: the process may have slept since it asked (C3).
    fn in_time(&self, grant: Grant, sent: BootTime) -> Result<Tenure, Failure> {
        let spent = self
            .app
            .clock
            .now()
            .since(sent)
            .saturating_sub(grant.waited);
        if spent >= grant.ttl.get() {
            return Err(ask::lost(grant.token, leasehold::core::Lost::Expired));
        }
        Ok(Tenure {
            token: grant.token,
            ttl: grant.ttl,
            renewed: false,
        })
    }

    fn held(&mut self, held: &Held) -> Failure {
        let name = self.name;
        let info = held
            .info
            .as_ref()
            .map_or_else(String::new, |info| format!(" ({info})"));
        let mut text = format!(
            "{name} is held by {}{info} with token {}, free in {} unless renewed",
            held.holder,
            held.token,
            show::span(held.hint)
        );
        if held.holder == self.request.holder {
            text += "; it has your holder name but another session";
        }
        self.say_once(held.holder.as_str(), &text);
        self.busy(text, held.hint)
            .with("holder", held.holder.as_str())
            .with("token", held.token.to_string())
    }

    fn empty(&mut self, why: &str, hint: Duration) -> Failure {
        let text = format!(
            "nobody holds {}, but {why} for {}",
            self.name,
            show::span(hint)
        );
        self.say_once(why, &text);
        self.busy(text, hint)
    }

    fn busy(&self, text: String, hint: Duration) -> Failure {
        Failure::busy(self.busy_exit_code, text)
            .with("lease", self.name.as_str())
            .with("free_in_ms", millis(hint))
    }

    /// One who waits is told for whom, once.
    fn say_once(&mut self, whom: &str, text: &str) {
        if self.deadline.is_some() && !self.app.json && self.waits_for.as_deref() != Some(whom) {
            out::note(&format!("waiting: {text}"));
            self.waits_for = Some(whom.to_owned());
        }
    }

    /// Gives back whatever this request was or will be granted, and says how it ended.
    async fn give_up(&self, failure: Failure) -> Failure {
        if !self.perhaps_granted {
            return failure;
        }
        let release = Command::Release(Release::Request {
            session: self.request.session,
            request_id: self.request.request_id,
        });
        match ask::command(self.app, &**self.store, self.name, release).await {
            Ok(_) => failure,
            Err(error) => failure.also(&format!(
                "a release was not confirmed ({error}): {} may be held for up to {}",
                self.name,
                show::span(self.request.ttl.get())
            )),
        }
    }
}

/// Up to the shortest pause, so that many who wait for one do not ask at once.
fn jitter() -> Duration {
    let mut byte = [0];
    // Without random bits they may ask at once.
    let _ = getrandom::fill(&mut byte);
    SHORTEST_PAUSE * u32::from(byte[0]) / 255
}

/// As a shell reads it back.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
