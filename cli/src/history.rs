//! `history`: what happened, oldest first.

use std::collections::VecDeque;

use leasehold::{
    LeaseName,
    store::{Recorded, Store},
};

use crate::{
    app::App,
    exit::{Exit, Failure},
    out, parse, show,
    view::EventView,
};

/// How many events a store is asked for at once.
const PAGE: usize = 1000;

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Renewals are not listed: they would drown the rest.

Examples:
  leasehold history nightly
  leasehold history --limit 20
  leasehold history --json --after 1234  # only what came later")]
pub(crate) struct History {
    /// The lease; all leases if none is named
    #[arg(value_parser = parse::lease_name())]
    name: Option<LeaseName>,
    /// Only the newest so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Only events with a larger number than this
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        hide_default_value = true
    )]
    after: u64,
}

impl History {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let events = newest(&*store, self.name.as_ref(), self.after, limit).await?;
        if app.json {
            out::jsons(events.iter().map(EventView::of))?;
        } else if events.is_empty() {
            out::note("nothing has happened yet");
        } else {
            let rows = events.iter().map(|recorded| {
                [
                    recorded.number.to_string(),
                    show::moment(recorded.event.at),
                    recorded.event.lease.to_string(),
                    show::what(recorded),
                ]
            });
            show::table(["NUMBER", "WHEN", "LEASE", "WHAT"], rows)?;
        }
        Ok(Exit::DONE)
    }
}

/// The last `limit` events with a number above `after`. A store keeps a bounded number of them.
pub(crate) async fn newest(
    store: &dyn Store,
    name: Option<&LeaseName>,
    mut after: u64,
    limit: usize,
) -> Result<VecDeque<Recorded>, Failure> {
    let mut kept = VecDeque::new();
    loop {
        let page = store.history(name, after, PAGE).await?;
        let full = page.len() >= PAGE;
        for event in page {
            after = after.max(event.number);
            if kept.len() == limit {
                kept.pop_front();
            }
            kept.push_back(event);
        }
        if !full {
            return Ok(kept);
        }
    }
}
