//! Lost replies and lost requests: one wish is granted once, and nothing is left behind.

use std::time::Duration;

use leasehold::{
    Holder, LeaseName, LockDelay, Session, Ttl,
    core::{Acquire, Command, State, Status, What},
    store::{SharedStore, memory::MemoryStore},
};

use super::*;
use crate::{
    app::App,
    exit::{FAILED, REFUSED, UNKNOWN},
    flaky::{Fate, Flaky, Stepping},
};

fn app(step: Duration) -> App {
    App::with_clock(Stepping::by(step))
}

fn name() -> LeaseName {
    LeaseName::new("nightly").unwrap()
}

fn request() -> Acquire {
    Acquire {
        session: Session::from_bits(7).unwrap(),
        request_id: ask::new_request_id().unwrap(),
        holder: Holder::new("a").unwrap(),
        info: None,
        ttl: Ttl::MAX,
        lock_delay: LockDelay::NONE,
    }
}

async fn status(store: &SharedStore) -> Option<Status> {
    store.status(&name()).await.unwrap()
}

async fn grants(store: &SharedStore) -> usize {
    let events = store.history(None, 0, 100).await.unwrap();
    let grants = events
        .iter()
        .filter(|event| matches!(event.event.what, What::Granted { .. }));
    grants.count()
}

/// A4, L2.1: the same request id over every retry.
#[tokio::test]
async fn a_lost_reply_is_asked_for_again_and_granted_once() {
    let inner: SharedStore = MemoryStore::new();
    for lost in [Fate::ReplyLost, Fate::RequestLost] {
        let store = Flaky::new(
            inner.clone(),
            move |call, _| if call < 3 { lost } else { Fate::Good },
        );
        let (app, name) = (app(Duration::from_millis(1)), name());
        let mut asking = Asking::new(&app, &store, &name, request(), None);
        let tenure = asking.until_held().await.unwrap();
        assert!(!tenure.renewed);
        let before = grants(&inner).await;
        assert_eq!(status(&inner).await.unwrap().token, Some(tenure.token));
        assert_eq!(before as u64, tenure.token.get(), "{lost:?}");
        asking.give_up(Failure::silent(0)).await;
    }
}

/// L9: nobody knows, so it is given back.
#[tokio::test]
async fn an_acquire_that_stays_unknown_is_released() {
    let inner: SharedStore = MemoryStore::new();
    let store = Flaky::new(inner.clone(), |_, command| match command {
        Command::Acquire(_) => Fate::ReplyLost,
        _ => Fate::Good,
    });
    let (app, name) = (app(Duration::from_secs(1)), name());
    let mut asking = Asking::new(&app, &store, &name, request(), None);
    let failure = asking.until_held().await.expect_err("nobody answers");
    assert_eq!(status(&inner).await.map(|s| s.state), Some(State::Held));
    let failure = asking.give_up(failure).await;
    assert_eq!(failure.code(), UNKNOWN);
    assert_eq!(status(&inner).await.map(|s| s.state), Some(State::Free));
}

#[tokio::test]
async fn a_release_that_is_not_confirmed_is_told() {
    let store = Flaky::new(MemoryStore::new(), |_, _| Fate::ReplyLost);
    let (app, name) = (app(Duration::from_secs(1)), name());
    let mut asking = Asking::new(&app, &store, &name, request(), None);
    let failure = asking.until_held().await.expect_err("nobody answers");
    let failure = asking.give_up(failure).await;
    assert_eq!(failure.code(), UNKNOWN);
    assert!(
        failure.to_string().contains("may be held for up to 24h"),
        "{failure}"
    );
}

/// Unavailable is no doubt: nothing was applied, and there is nothing to give back.
#[tokio::test]
async fn a_store_that_is_down_leaves_no_doubt() {
    let store = Flaky::new(MemoryStore::new(), |_, _| Fate::Down);
    let (app, name) = (app(Duration::from_millis(1)), name());
    let mut asking = Asking::new(&app, &store, &name, request(), None);
    let failure = asking.until_held().await.expect_err("it is down");
    let failure = asking.give_up(failure).await;
    assert_eq!(failure.code(), FAILED);
    assert!(!failure.to_string().contains("release"), "{failure}");
}

/// One who waits outlives a store that is down for a while.
#[tokio::test]
async fn a_waiter_asks_on_while_the_store_is_down() {
    let store = Flaky::new(MemoryStore::new(), |call, _| {
        if call < 2 { Fate::Down } else { Fate::Good }
    });
    let (app, name) = (app(Duration::from_millis(1)), name());
    let wait = Some(Duration::from_secs(60));
    let mut asking = Asking::new(&app, &store, &name, request(), wait);
    assert_eq!(
        asking
            .until_held()
            .await
            .map(|tenure| tenure.token.get())
            .ok(),
        Some(1)
    );
}

/// C3: a process that slept through its ttl after it asked has no lease.
#[tokio::test]
async fn a_grant_that_came_too_late_is_given_back() {
    let store: SharedStore = MemoryStore::new();
    let (app, name) = (app(Duration::from_secs(25 * 60 * 60)), name());
    let mut asking = Asking::new(&app, &*store, &name, request(), None);
    let failure = asking.until_held().await.expect_err("it is over");
    assert_eq!(asking.give_up(failure).await.code(), REFUSED);
    assert_eq!(status(&store).await.map(|s| s.state), Some(State::Free));
}

/// A3: one renewal over all its retries, else the lost reply would look like a second holder.
#[tokio::test]
async fn a_renewal_whose_reply_was_lost_is_no_second_holder() {
    let inner: SharedStore = MemoryStore::new();
    let (app, name, request) = (app(Duration::from_millis(1)), name(), request());
    let session = request.session;
    let tenure = Asking::new(&app, &*inner, &name, request, None)
        .until_held()
        .await
        .unwrap();
    for lost in [Fate::ReplyLost, Fate::RequestLost] {
        let store = Flaky::new(
            inner.clone(),
            move |call, _| if call == 0 { lost } else { Fate::Good },
        );
        let renewed = ask::renew(&app, &store, &name, (tenure.token, session), None).await;
        assert_eq!(renewed.ok(), Some(Ttl::MAX));
    }
    assert_eq!(status(&inner).await.map(|s| s.renewals), Some(2));
}
