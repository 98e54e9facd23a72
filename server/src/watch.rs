//! `GET /v1/watch`: events as server-sent events, from any place in the history on, without a gap: who comes back with the
//! `Last-Event-ID` it saw misses nothing that the store still has.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Request, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_core::Stream;
use leasehold::store::http::view::{EventView, PAGE};
use serde::Deserialize;
use tokio::{
    sync::{broadcast::error::RecvError, mpsc},
    time::timeout,
};

use crate::{app::App, body, problem::Problem};

/// A line that keeps proxies from taking a quiet stream for a dead one.
const ALIVE: Duration = Duration::from_secs(15);
/// A reader that takes nothing for this long is gone.
const SLOW: Duration = Duration::from_secs(30);
/// Messages on their way to a reader.
const AHEAD: usize = 16;

/// What is watched.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Watched {
    #[serde(default)]
    prefix: String,
    after: Option<u64>,
}

pub(crate) async fn watch(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let watched: Watched = body::query(&request)?;
    if !app.store.profile().history {
        return Err(Problem::invalid(
            "this store keeps no history, so nothing can be watched",
        ));
    }
    let after = match last_event(request.headers())?.or(watched.after) {
        Some(after) => after,
        None => app.feed.newest().await.unwrap_or(0),
    };
    let place = Watching::enter(&app.feed.watching, app.config.watchers).ok_or_else(|| {
        Problem::too_many(format!(
            "{} watch already, as many as are allowed",
            app.config.watchers
        ))
    })?;
    let (to, messages) = mpsc::channel(AHEAD);
    let watcher = Watcher {
        app: app.clone(),
        prefix: watched.prefix,
        after,
        to,
    };
    tokio::spawn(async move {
        let mut draining = watcher.app.draining.clone();
        tokio::select! {
            () = watcher.run() => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
        drop(place);
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Body::from_stream(Messages(messages))).into_response())
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(Problem::invalid(
            "the header Last-Event-ID is not the number of an event",
        )),
    }
}

struct Watcher {
    app: Arc<App>,
    prefix: String,
    after: u64,
    to: mpsc::Sender<Bytes>,
}

impl Watcher {
    /// Until the reader has gone.
    async fn run(mut self) {
        let hello = self
            .send(format!(": events after {}\n\n", self.after))
            .await;
        let mut live = self.app.feed.subscribe();
        let mut going = hello.is_some() && self.catch_up().await.is_some();
        while going {
            going = match timeout(ALIVE, live.recv()).await {
                Err(_) => self.send(": alive\n\n".to_owned()).await.is_some(),
                Ok(Ok(event)) => self.tell(&event).await.is_some(),
                Ok(Err(RecvError::Lagged(_))) => self.catch_up().await.is_some(),
                Ok(Err(RecvError::Closed)) => false,
            };
        }
    }

    /// What the history has after the last event that was sent.
    async fn catch_up(&mut self) -> Option<()> {
        loop {
            let page = match self.app.store.history(None, self.after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, "a watcher is cut off");
                    return None;
                }
            };
            for recorded in &page {
                self.tell(&EventView::from(recorded)).await?;
            }
            if page.len() < PAGE {
                return Some(());
            }
        }
    }

    async fn tell(&mut self, event: &EventView) -> Option<()> {
        if event.number <= self.after {
            return Some(());
        }
        self.after = event.number;
        if !event.lease.as_str().starts_with(&self.prefix) {
            return Some(());
        }
        let json = serde_json::to_string(event).ok()?;
        self.send(format!("id: {}\ndata: {json}\n\n", event.number))
            .await
    }

    async fn send(&self, text: String) -> Option<()> {
        timeout(SLOW, self.to.send(Bytes::from(text)))
            .await
            .ok()?
            .ok()
    }
}

/// One of those who watch.
struct Watching(Arc<AtomicUsize>);

impl Watching {
    fn enter(watching: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let before = watching.fetch_add(1, Ordering::Relaxed);
        let place = Watching(watching.clone());
        (before < most).then_some(place)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Messages(mpsc::Receiver<Bytes>);

impl Stream for Messages {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|message| message.map(Ok))
    }
}
