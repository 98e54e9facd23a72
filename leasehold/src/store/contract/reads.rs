//! What readers see: status, list, history, and the tick that wakes waiters.

use std::time::Duration;

use leasehold_core::{Answer, Command, State, What};

use super::{
    Suite,
    ask::{Asker, proof, renewal, request},
};
use crate::store::Recorded;

/// L11.
pub(super) async fn status_and_list_tell_what_is(suite: &Suite<'_>) {
    let (name, a) = (suite.lease("status-1"), Asker::new("a"));
    assert_eq!(suite.store.status(&name).await.expect("a status"), None);
    let token = suite.granted(&name, &a, suite.long()).await.token;
    suite
        .renew(&name, &a, token, 1, renewal(), suite.long())
        .await;
    let status = suite
        .store
        .status(&name)
        .await
        .expect("a status")
        .expect("a lease");
    assert_eq!((status.state, status.token), (State::Held, Some(token)));
    assert_eq!(status.holder, Some(a.holder.clone()));
    let renewals = u64::from(suite.store.counts_renewals());
    assert_eq!((status.ttl, status.renewals), (suite.long(), renewals));
    assert!(
        status.since.is_some() && status.remaining > suite.long().get() / 2,
        "{status:?}"
    );
    suite.release(&name, &a, token).await;
    let status = suite
        .store
        .status(&name)
        .await
        .expect("a status")
        .expect("L8: it stays");
    assert_eq!(
        (status.state, status.remaining),
        (State::Free, Duration::ZERO)
    );
    assert!(status.released && status.token == Some(token), "{status:?}");

    let more = [suite.lease("status-2"), suite.lease("status-3")];
    for name in &more {
        suite.granted(name, &a, suite.long()).await;
    }
    let prefix = suite.lease("status-");
    let all = suite.store.list(prefix.as_str(), 10).await.expect("a list");
    let names: Vec<_> = all.iter().map(|status| status.name.clone()).collect();
    assert_eq!(names, [name, more[0].clone(), more[1].clone()]);
    let two = suite.store.list(prefix.as_str(), 2).await.expect("a list");
    assert_eq!(two.len(), 2);
    let none = suite
        .store
        .list("no such % prefix_", 10)
        .await
        .expect("a list");
    assert_eq!(none, []);
}

/// W1, FB-65. The tick is a hint, but a store that never gives it makes everybody wait for a poll.
pub(super) async fn waiters_hear_of_a_release(suite: &Suite<'_>) {
    let (name, a) = (suite.lease("tick"), Asker::new("a"));
    let token = suite.granted(&name, &a, suite.long()).await.token;
    let mut changes = suite.store.changes();
    suite.release(&name, &a, token).await;
    let heard = tokio::time::timeout(Duration::from_secs(10), changes.changed()).await;
    assert!(heard.is_ok(), "no tick within 10 s of a release");
}

pub(super) async fn history_tells_what_happened_in_order(suite: &Suite<'_>) {
    let (name, a, b) = (suite.lease("history"), Asker::new("a"), Asker::new("b"));
    let asked = a.acquire(request(), suite.short());
    let Answer::Granted(first) = suite.acquire(&name, asked.clone()).await else {
        panic!("not granted")
    };
    suite.acquire(&name, asked).await;
    suite
        .renew(&name, &a, first.token, 1, renewal(), suite.short())
        .await;
    suite.outlast(suite.short()).await;
    let second = suite.granted(&name, &b, suite.long()).await;
    suite
        .renew(&name, &a, first.token, 2, renewal(), suite.long())
        .await;
    if suite.profile().pairs {
        suite
            .refused(&suite.key("history"), proof(&name, first.token))
            .await;
    }
    suite.release(&name, &b, second.token).await;
    suite.granted(&name, &a, suite.short()).await;
    suite
        .command(&name, Command::ForceRelease { now: true })
        .await;
    let above = leasehold_core::Token::FIRST;
    suite.command(&name, Command::Quarantine { above }).await;

    let history = suite
        .store
        .history(Some(&name), 0, 100)
        .await
        .expect("a history");
    let told: Vec<_> = history
        .iter()
        .map(|recorded| word(&recorded.event.what))
        .collect();
    let mut want = vec![
        "granted",
        "expired",
        "granted",
        "lost",
        "refused",
        "released",
        "granted",
        "forced",
        "quarantined",
    ];
    want.retain(|word| *word != "refused" || suite.profile().pairs);
    assert_eq!(told, want, "polls, renewals and replays are no events");
    assert!(history.is_sorted_by(|one, next| one.number < next.number));
    assert!(history.iter().all(|recorded| recorded.event.lease == name));

    let Recorded { number, .. } = history[3];
    let later = suite
        .store
        .history(Some(&name), number, 2)
        .await
        .expect("a history");
    assert_eq!(later, history[4..6]);
    let everybody = suite
        .store
        .history(None, number, 1_000)
        .await
        .expect("a history");
    assert!(
        history[4..]
            .iter()
            .all(|recorded| everybody.contains(recorded))
    );
}

fn word(what: &What) -> &'static str {
    match what {
        What::Granted { .. } => "granted",
        What::Released { .. } => "released",
        What::Expired { .. } => "expired",
        What::Lost { .. } => "lost",
        What::Refused { .. } => "refused",
        What::Forced { .. } => "forced",
        What::Quarantined { .. } => "quarantined",
    }
}
