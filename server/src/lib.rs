//! A Leasehold server: leases, fences and the ledger over HTTP, on any store. [`run`] is all of it.
//!
//! The server decides nothing: every operation is one step of the store behind it. What it adds is a queue of waiters in
//! order, one stream of events, and limits on everything that comes from outside.

mod accept;
mod admissions;
mod app;
mod body;
mod data;
mod feed;
mod gate;
mod leases;
mod metrics;
mod operate;
mod problem;
mod rights;
mod routes;
mod waiters;
mod watch;

use std::{future::Future, io, sync::Arc, time::Duration};

use leasehold::{SharedStore, clock::BootClock};
use tokio::{net::TcpListener, sync::watch as signal};

use crate::{admissions::Admissions, app::App, feed::Feed, metrics::Metrics, waiters::Waiters};

pub use rights::{Credential, Credentials, Right, Rule};
pub use routes::{OPENAPI, ROUTES};

/// Limits, each with its reason.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections at a time; one more is answered 503 and closed. Each costs a file descriptor and some kilobytes.
    pub connections: usize,
    /// How long a client may take to send a header, and how long a connection may be idle between two requests.
    pub header_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How many may wait for leases at a time. Each is a connection, and a place in a queue.
    pub waiters: usize,
    /// How long the place of a waiter is kept between two of its polls.
    pub place_kept: Duration,
    /// How many may watch at a time.
    pub watchers: usize,
    /// How long requests may go on after the server was told to end.
    pub drain: Duration,
    /// Names under which a browser may reach this server, beside addresses and `localhost`: a page of somebody else whose
    /// name was bent to point here is refused.
    pub hosts: Vec<String>,
    /// Who may do what; `None`: whoever reaches the server may do everything.
    pub credentials: Option<Credentials>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections: 20_000,
            header_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(10),
            waiters: 10_000,
            place_kept: Duration::from_secs(3),
            watchers: 1_000,
            drain: Duration::from_secs(10),
            hosts: Vec::new(),
            credentials: None,
        }
    }
}

/// Serves `store` on `listener` until `shutdown` is done; then no request is begun, waiters are answered, and what is
/// under way has [`Config::drain`] to end.
///
/// # Errors
/// If the listener breaks for good.
pub async fn run(
    listener: TcpListener,
    store: SharedStore,
    config: Config,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (drain, draining) = signal::channel(false);
    let app = Arc::new(App {
        feed: Feed::new(),
        metrics: Metrics::new(),
        waiters: Waiters::new(config.waiters, config.place_kept),
        admissions: Admissions::default(),
        clock: BootClock::shared(),
        store,
        config,
        draining,
    });
    let feeding = tokio::spawn(feed::pump(app.clone()));
    let looking = tokio::spawn(feed::look(app.clone()));
    let end = accept::serve(listener, app.clone(), async {
        shutdown.await;
        drain.send_replace(true);
    })
    .await;
    feeding.abort();
    looking.abort();
    end
}
