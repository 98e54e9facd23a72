//! What a person on call needs, in the text format that Prometheus reads. Events are counted from the one stream, so they
//! include what other servers and programs did to the same store since this server began.

use std::{
    sync::{Mutex, atomic::Ordering},
    time::Duration,
};

use leasehold::{
    BootTime,
    core::{State, What},
    store::http::reply::{LostView, RefusalView},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use serde::Serialize;

use crate::app::App;

/// How long a count of holders is good for: counting reads all leases.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// How many leases are counted, at most.
const COUNTED: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    route: String,
    status: u32,
}

pub(crate) struct Metrics {
    registry: Registry,
    grants: Counter,
    releases: Counter,
    losses: Family<Reason, Counter>,
    refusals: Family<Reason, Counter>,
    requests: Family<Answer, Counter>,
    failures: Counter,
    refused_connections: Counter,
    renewal: Histogram,
    holders: Gauge,
    leases: Gauge,
    waiters: Gauge,
    watchers: Gauge,
    counted: Mutex<Option<BootTime>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("leasehold");
        macro_rules! metric {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
        }
        let seconds = || Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        Self {
            grants: metric!("grants", "Leases granted", Counter::default()),
            releases: metric!("releases", "Leases given back", Counter::default()),
            losses: metric!(
                "losses",
                "Leases that ended without a release, by reason",
                Family::<Reason, Counter>::default()
            ),
            refusals: metric!(
                "refusals",
                "Writes that a fence refused, by reason",
                Family::<Reason, Counter>::default()
            ),
            requests: metric!(
                "requests",
                "Requests answered, by route and status",
                Family::<Answer, Counter>::default()
            ),
            failures: metric!(
                "store_failures",
                "Calls the store gave no answer to",
                Counter::default()
            ),
            refused_connections: metric!(
                "connections_refused",
                "Connections refused because there were too many",
                Counter::default()
            ),
            renewal: metric!(
                "renewal_seconds",
                "How long renewals took in the store",
                seconds()
            ),
            holders: metric!("holders", "Leases that somebody holds", Gauge::default()),
            leases: metric!("leases", "Leases that are remembered", Gauge::default()),
            waiters: metric!(
                "waiters",
                "Requests that wait for a lease",
                Gauge::default()
            ),
            watchers: metric!("watchers", "Open streams of events", Gauge::default()),
            counted: Mutex::new(None),
            registry,
        }
    }

    pub(crate) fn renewed(&self, took: Duration) {
        self.renewal.observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }

    pub(crate) fn refused_connection(&self) {
        self.refused_connections.inc();
    }

    pub(crate) fn answered(&self, route: &str, status: u16) {
        let answer = Answer {
            route: route.to_owned(),
            status: status.into(),
        };
        self.requests.get_or_create(&answer).inc();
    }

    pub(crate) fn happened(&self, what: &What) {
        match what {
            What::Granted { .. } => _ = self.grants.inc(),
            What::Released { .. } => _ = self.releases.inc(),
            What::Expired { .. } => self.lost("ran_out"),
            What::Forced { .. } => self.lost("forced"),
            What::Quarantined { .. } => self.lost("quarantined"),
            What::Lost { why, .. } => {
                let word = word(&LostView::from(why.clone()).reason);
                self.lost(&format!("told_{word}"));
            }
            What::Refused { why, .. } => {
                let reason = word(&RefusalView::from(why.clone()).reason);
                self.refusals.get_or_create(&Reason { reason }).inc();
            }
        }
    }

    fn lost(&self, reason: &str) {
        let reason = reason.to_owned();
        self.losses.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) async fn text(&self, app: &App) -> String {
        self.waiters.set(app.waiters.count() as i64);
        self.watchers
            .set(app.feed.watching.load(Ordering::Relaxed) as i64);
        self.count(app).await;
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            tracing::error!(%error, "the metrics cannot be written");
        }
        text
    }

    async fn count(&self, app: &App) {
        let now = app.clock.now();
        {
            let mut counted = self
                .counted
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            if counted.is_some_and(|at| now.since(at) < COUNT_EVERY) {
                return;
            }
            *counted = Some(now);
        }
        match app.store.list("", COUNTED).await {
            Ok(leases) => {
                let held = leases.iter().filter(|lease| lease.state == State::Held);
                self.holders.set(held.count() as i64);
                self.leases.set(leases.len() as i64);
            }
            Err(error) => tracing::debug!(%error, "the holders were not counted"),
        }
    }
}

/// As the wire spells it.
fn word(reason: &impl Serialize) -> String {
    let value = serde_json::to_value(reason).unwrap_or_default();
    value.as_str().unwrap_or("other").to_owned()
}
