//! `watch`: prints events as they happen, until a signal or until nobody reads.
//!
//! The store's ticks only make it quicker: it looks by itself once a second.

use std::time::Duration;

use leasehold::{
    LeaseName,
    store::{Recorded, Store, StoreError},
};

use crate::{
    app::App,
    exit::{Exit, Failure},
    history, out, parse, show,
    stop::Stop,
    view::EventView,
};

/// How long an event may go unseen where no tick comes.
const LOOK: Duration = Duration::from_secs(1);
/// Ticks closer than this are taken together.
const GATHER: Duration = Duration::from_millis(50);
/// How many events a store is asked for at once.
const PAGE: usize = 1000;

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A lease that runs out is seen when the next holder takes it. With --after nothing is missed over \
a restart.

Examples:
  leasehold watch
  leasehold watch nightly --json
  leasehold watch --json --after 1234")]
pub(crate) struct Watch {
    /// The lease; all leases if none is named
    #[arg(value_parser = parse::lease_name())]
    name: Option<LeaseName>,
    /// Begin after the event with this number; by default with what happens from now on
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
}

impl Watch {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let mut stop = Stop::new()?;
        let store = app.open().await?;
        let mut changes = store.changes();
        let mut after = match self.after {
            Some(after) => after,
            None => {
                let last = history::newest(&*store, None, 0, 1).await?;
                last.back().map_or(0, |event| event.number)
            }
        };
        if !app.json && out::has_a_person() {
            out::note("watching; Ctrl-C ends it");
        }
        let mut failing = false;
        loop {
            match self.news(&*store, &mut after).await {
                Ok(events) => {
                    failing = false;
                    events.iter().try_for_each(|event| tell(app, event))?;
                }
                Err(StoreError::Unavailable { what }) => {
                    if !std::mem::replace(&mut failing, true) {
                        out::note(&format!("the store is unavailable, trying on: {what}"));
                    }
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                signal = stop.asked() => return Err(Failure::stopped(signal)),
                () = async {
                    tokio::time::sleep(GATHER).await;
                    changes.changed().await;
                } => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            if out::reader_is_gone() {
                return Ok(Exit::DONE);
            }
        }
    }

    async fn news(&self, store: &dyn Store, after: &mut u64) -> Result<Vec<Recorded>, StoreError> {
        let mut events = Vec::new();
        loop {
            let page = store.history(self.name.as_ref(), *after, PAGE).await?;
            let full = page.len() >= PAGE;
            *after = page.iter().map(|event| event.number).fold(*after, u64::max);
            events.extend(page);
            if !full {
                return Ok(events);
            }
        }
    }
}

fn tell(app: &App, recorded: &Recorded) -> Result<(), Failure> {
    if app.json {
        return out::json(&EventView::of(recorded));
    }
    out::line(&format!(
        "{}  {}  {}",
        show::moment(recorded.event.at),
        recorded.event.lease,
        show::what(recorded)
    ))
}
