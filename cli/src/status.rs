//! `status`: one lease in full.

use leasehold::{
    LeaseName,
    core::{State, Status as Lease},
};

use crate::{
    app::App,
    exit::{Exit, Failure},
    out, parse, show,
    view::LeaseView,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold status nightly
  leasehold status nightly --json")]
pub(crate) struct Status {
    /// The lease
    #[arg(value_parser = parse::lease_name())]
    name: LeaseName,
}

impl Status {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        let lease = store.status(&self.name).await?;
        let lease = lease.unwrap_or_else(|| never_held(self.name.clone()));
        match app.json {
            true => out::json(&LeaseView::of(&lease))?,
            false => out::text_as_it_is(&text(&lease))?,
        }
        Ok(Exit::DONE)
    }
}

/// A name that nobody has asked for is free, as any other that nobody holds.
fn never_held(name: LeaseName) -> Lease {
    use leasehold::core::{Record, StoreTime};
    Lease::of(name, &Record::new(None), StoreTime::ZERO)
}

fn text(lease: &Lease) -> String {
    let mut lines = vec![("lease", lease.name.to_string())];
    let state = match (lease.token, &lease.holder) {
        (None, _) => "free, never held".to_owned(),
        _ => show::state(lease).to_owned(),
    };
    lines.push(("state", state));
    if let Some(token) = lease.token {
        lines.push(("token", token.to_string()));
    }
    let held = lease.state == State::Held;
    if let Some(holder) = &lease.holder {
        let word = if held { "holder" } else { "last holder" };
        lines.push((word, holder.to_string()));
    }
    if let (Some(hash), true) = (lease.session_hash, held) {
        lines.push(("session", format!("#{hash:08x}")));
    }
    if let Some(info) = &lease.info {
        lines.push(("info", info.to_string()));
    }
    if let (Some(since), true) = (lease.since, held) {
        lines.push(("held for", show::span(since)));
        lines.push(("renewals", lease.renewals.to_string()));
        lines.push(("ttl", show::span(lease.ttl.get())));
    }
    if lease.state != State::Free {
        let unless = if held { " unless renewed" } else { "" };
        lines.push(("free in", show::span(lease.remaining) + unless));
    }
    lines
        .iter()
        .map(|(word, value)| format!("{:<12} {value}\n", format!("{word}:")))
        .collect()
}
