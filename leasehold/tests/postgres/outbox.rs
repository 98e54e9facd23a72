//! The outbox of the examples against a real server (I8): the relay runs under a lease, and every message has one effect.

#[allow(dead_code, reason = "its main")]
#[path = "../../examples/outbox.rs"]
mod example;

use leasehold::{Keeper, LeaseName, Refusal, fence::FenceError};

use crate::{server::Server, session::Session};

/// The example as it is typed; again, as after a crash of everything.
#[tokio::test]
async fn the_example_runs() {
    let Some(server) = Server::ready().await else {
        return;
    };
    for times in 1..3 {
        example::run(&server.url()).await.expect("it runs");
        let look = Session::open(&server).await;
        let sql = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM parcel), \
                   (SELECT count(*) FROM outbox WHERE sent_under IS NULL)";
        let placed = 3 * times;
        assert_eq!(look.must(sql).await, format!("{placed} {placed} 0"));
    }
}

/// I8, F9, INV-25: a relay freezes between delivery and mark. Its successor delivers again; there is one parcel, and the
/// mark of the one that wakes is refused.
#[tokio::test]
async fn a_relay_that_froze_marks_nothing_and_nothing_has_two_effects() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let other = Session::open(&server).await;
    other.must(example::TABLES).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let keeper = |name| Keeper::new(store.clone(), LeaseName::new(name).unwrap());
    let orders = keeper("orders").acquire().await.unwrap();
    let mut ours = Session::open(&server).await;
    example::place(&mut ours.client, &orders, "a book")
        .await
        .unwrap();
    other
        .must("SELECT leasehold.force_release('orders', true)")
        .await;
    let late = example::place(&mut ours.client, &orders, "a lamp").await;
    assert!(
        matches!(late, Err(FenceError::Refused(Refusal::Stale { .. }))),
        "{late:?}"
    );
    assert_eq!(
        other.must("SELECT body FROM outbox").await,
        "a book",
        "INV-22"
    );

    let first = keeper("relay").acquire().await.unwrap();
    let mut theirs = Session::open(&server).await;
    let frozen = example::relay(&mut ours.client, &first, async |message, item| {
        example::receive(&mut theirs.client, message, item).await?;
        // It sleeps here for so long that the lease goes to somebody else, who does all of it.
        other
            .must("SELECT leasehold.force_release('relay', true)")
            .await;
        let second = keeper("relay").acquire().await.unwrap();
        let (mut mine, mut theirs) = (Session::open(&server).await, Session::open(&server).await);
        let sent = example::relay(&mut mine.client, &second, async |message, item| {
            example::receive(&mut theirs.client, message, item).await
        });
        assert_eq!(sent.await.unwrap(), 1);
        Ok(())
    });
    let frozen = frozen.await;
    assert!(
        matches!(frozen, Err(FenceError::Refused(Refusal::Stale { .. }))),
        "{frozen:?}"
    );
    assert!(first.is_lost());
    assert_eq!(other.must("SELECT item FROM parcel").await, "a book");
    let newest = other.must("SELECT sent_under > 1 FROM outbox").await;
    assert_eq!(newest, "t", "the successor's mark stands");
}
