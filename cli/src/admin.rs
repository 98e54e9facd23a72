//! `admin`: what an operator may do. Every act is in the history and only ever raises tokens (A21).

use leasehold::{
    LeaseName, Token,
    core::{Answer, Command, NotBumped, Op, Outcome},
    store::Store,
};

use crate::{
    app::App,
    ask,
    exit::{Exit, Failure},
    out, parse,
    view::{Done, timestamp},
};

/// See the module.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  leasehold admin force-release nightly
  leasehold admin bump  # after a restore from a backup
  leasehold admin gc")]
pub(crate) enum Admin {
    /// Take a lease from its holder: its token is dead at once, others get the lease when the old promise ends
    #[command(after_help = "\
Example:
  leasehold admin force-release nightly")]
    ForceRelease {
        /// The lease
        #[arg(value_parser = parse::lease_name())]
        name: LeaseName,
        /// Let others have it at once: the old holder may still act, and only fenced writes are safe from it
        #[arg(long)]
        now: bool,
    },
    /// After a restore: take every lease away for one ttl, and make every later token larger than any forgotten one
    #[command(after_help = "\
Example:
  leasehold admin bump")]
    Bump {
        /// A number no smaller than any token that may have been forgotten; by default the time in milliseconds
        #[arg(long, value_name = "N", value_parser = parse::token(), allow_hyphen_values = true)]
        above: Option<Token>,
    },
    /// Kill the stopped process that stands in everybody's way
    #[command(after_help = "\
Example:
  leasehold admin evict")]
    Evict,
    /// Forget leases that were free for a day, and old lines of the ledger; tokens grow on
    #[command(after_help = "\
Example:
  leasehold admin gc")]
    Gc,
}

impl Admin {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        match self {
            Admin::ForceRelease { name, now } => force_release(app, &*store, &name, now).await,
            Admin::Bump { above } => bump(app, &*store, above).await,
            Admin::Evict => evict(app, &*store).await,
            Admin::Gc => {
                let removed = store.collect().await?;
                let text = format!("{removed} forgotten");
                tell(
                    app,
                    Done {
                        outcome: "collected",
                        removed: Some(removed),
                        ..Done::default()
                    },
                    &text,
                )
            }
        }
    }
}

/// Sent once: a second one would burn another token.
async fn force_release(
    app: &App,
    store: &dyn Store,
    name: &LeaseName,
    now: bool,
) -> Result<Exit, Failure> {
    let op = Op::Lease {
        name: name.clone(),
        command: Command::ForceRelease { now },
    };
    let done = Done {
        lease: Some(name.as_str()),
        ..Done::default()
    };
    match ask::answer(store.apply(op).await?)? {
        Answer::Bumped { token } => {
            let then = match now {
                true => {
                    "it is free; its old holder may still act, and only fenced writes are safe from it"
                }
                false => "others get it when the old promise ends",
            };
            let text = format!("{name} taken away, token {token} burnt; {then}");
            tell(
                app,
                Done {
                    outcome: "forced",
                    token: Some(token.to_string()),
                    ..done
                },
                &text,
            )
        }
        Answer::AlreadyOver => tell(
            app,
            Done {
                outcome: "already_over",
                ..done
            },
            &format!("nobody holds {name}"),
        ),
        Answer::TokenExhausted => Err(ask::exhausted(name)),
        other => Err(ask::unexpected(&other)),
    }
}

/// The store refuses a number that would not do (A10).
async fn bump(app: &App, store: &dyn Store, above: Option<Token>) -> Result<Exit, Failure> {
    let above = match above {
        Some(above) => above,
        None => Token::new(app.clock.wall().as_millis())?,
    };
    match store.apply(Op::Bump { above }).await? {
        Outcome::Done => {
            let text =
                format!("every lease taken away for one ttl; every later token is above {above}");
            tell(
                app,
                Done {
                    outcome: "bumped",
                    token: Some(above.to_string()),
                    ..Done::default()
                },
                &text,
            )
        }
        Outcome::NotBumped(NotBumped::ClockBehind { newest, .. }) => Err(Failure::usage(format!(
            "this machine's clock is behind the last event, of {}: set it right first",
            timestamp(newest)
        ))),
        Outcome::NotBumped(why) => Err(Failure::usage(why.to_string())),
        other => Err(Failure::failed(format!(
            "the store gave an answer that makes no sense here: {other:?}"
        ))),
    }
}

async fn evict(app: &App, store: &dyn Store) -> Result<Exit, Failure> {
    match store.evict().await? {
        Some(who) => tell(
            app,
            Done {
                outcome: "evicted",
                ..Done::default()
            },
            &format!("killed {who}"),
        ),
        None => tell(
            app,
            Done {
                outcome: "nobody",
                ..Done::default()
            },
            "nobody stands in the way",
        ),
    }
}

fn tell(app: &App, done: Done<'_>, text: &str) -> Result<Exit, Failure> {
    match app.json {
        true => out::json(&done)?,
        false => out::line(text)?,
    }
    Ok(Exit::DONE)
}
