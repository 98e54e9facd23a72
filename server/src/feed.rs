//! One stream of events for watch, metrics and dashboard, read from the store's history: so it has what other servers and
//! programs did to the same store, too. The store's ticks and this server's own calls only make it quicker.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use leasehold::store::{
    Recorded,
    http::view::{EventView, PAGE},
};
use tokio::{
    sync::{Notify, broadcast, watch},
    time::{sleep, timeout},
};

use crate::app::App;

/// How long an event may go unseen where no tick comes.
const LOOK: Duration = Duration::from_secs(1);
/// Events closer than this are read together.
const GATHER: Duration = Duration::from_millis(10);
/// Ticks closer than this wake the waiters once.
const CALM: Duration = Duration::from_millis(100);
/// How far a reader may fall behind before it must read the history itself.
const BEHIND: usize = 1024;

/// See the module.
pub(crate) struct Feed {
    events: broadcast::Sender<Arc<EventView>>,
    /// The number of the newest event that was sent; `None` until the history was read once.
    newest: watch::Sender<Option<u64>>,
    poked: Notify,
    /// How many watch now.
    pub(crate) watching: Arc<AtomicUsize>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self {
            events: broadcast::Sender::new(BEHIND),
            newest: watch::Sender::new(None),
            poked: Notify::new(),
            watching: Arc::default(),
        }
    }

    /// Something was done: there may be news.
    pub(crate) fn poke(&self) {
        self.poked.notify_one();
    }

    /// What comes from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<EventView>> {
        self.events.subscribe()
    }

    /// The number of the newest event.
    pub(crate) async fn newest(&self) -> Option<u64> {
        let mut newest = self.newest.subscribe();
        let newest = newest.wait_for(Option::is_some).await.ok()?;
        *newest
    }
}

/// Reads the history for ever, from its end on.
pub(crate) async fn pump(app: Arc<App>) {
    if !app.store.profile().history {
        return;
    }
    let mut changes = app.store.changes();
    let mut after = 0;
    let mut known = false;
    loop {
        match app.store.history(None, after, PAGE).await {
            Ok(page) => {
                let full = page.len() >= PAGE;
                for recorded in page {
                    after = after.max(recorded.number);
                    if known {
                        tell(&app, &recorded);
                    }
                }
                if full {
                    continue;
                }
                known = true;
                app.feed.newest.send_replace(Some(after));
            }
            Err(error) => tracing::debug!(%error, "the history was not read"),
        }
        let wait = async {
            tokio::select! {
                () = app.feed.poked.notified() => {}
                () = changes.changed() => {}
            }
            sleep(GATHER).await;
        };
        // Also if nobody says that there is news.
        let _ = timeout(LOOK, wait).await;
    }
}

fn tell(app: &App, recorded: &Recorded) {
    app.metrics.happened(&recorded.event.what);
    // Nobody may be listening.
    let _ = app.feed.events.send(Arc::new(EventView::from(recorded)));
}

/// Wakes the first waiters when others change the store.
pub(crate) async fn look(app: Arc<App>) {
    let mut changes = app.store.changes();
    loop {
        changes.changed().await;
        app.waiters.look();
        sleep(CALM).await;
    }
}
