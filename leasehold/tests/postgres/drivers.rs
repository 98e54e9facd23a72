//! The frozen-holder story from Rust, over tokio-postgres and over sqlx: a stale answer ends the tenure (F9, F17).

use leasehold::{
    Guard, Keeper, LeaseName, Loss, Refusal, Ttl,
    fence::{
        FenceError,
        postgres::{check, write},
    },
};
use sqlx::{Connection, PgConnection};
use tokio_postgres::types::Type;

use crate::{
    server::Server,
    session::{Session, pass},
};

/// A server with a table of data, and a holder of the lease `job`.
async fn start() -> Option<(Server, Session, Guard)> {
    let server = Server::ready().await?;
    let other = Session::open(&server).await;
    other
        .must("CREATE TABLE data(v bigint); INSERT INTO data VALUES (0)")
        .await;
    let guard = hold(&server).await;
    Some((server, other, guard))
}

pub async fn hold(server: &Server) -> Guard {
    let store = leasehold::connect(&server.url()).await.expect("connects");
    // So long that nothing but the fence tells it of a successor while the test runs.
    Keeper::new(store, LeaseName::new("job").unwrap())
        .ttl(Ttl::MAX)
        .acquire()
        .await
        .expect("it is free")
}

/// Somebody else gets the lease while its holder is frozen; the new token.
pub async fn successor(other: &Session) -> i64 {
    other
        .must("SELECT leasehold.force_release('job', true)")
        .await;
    other.granted("job", "new", 600_000).await
}

fn is_stale(error: &FenceError) -> bool {
    matches!(error, FenceError::Refused(Refusal::Stale { .. }))
}

fn is_fenced_out(guard: &Guard) -> bool {
    matches!(guard.loss(), Some(Loss::FencedOut(Refusal::Stale { .. }))) && guard.check().is_err()
}

/// F9, INV-22, and the two together in one round trip (F17).
#[tokio::test]
async fn a_stale_check_ends_the_tenure_of_its_guard() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mut mine = Session::open(&server).await;
    let step = mine.client.transaction().await.unwrap();
    check(&step, &guard).await.unwrap();
    step.batch_execute("UPDATE data SET v = 1").await.unwrap();
    step.commit().await.unwrap();
    assert!(guard.check().is_ok() && !guard.is_lost());

    successor(&other).await;
    assert!(guard.check().is_ok(), "it has not heard of it");
    let step = mine.client.transaction().await.unwrap();
    let (fenced, written) = tokio::join!(
        biased;
        check(&step, &guard),
        step.execute_typed("UPDATE data SET v = 2", &[])
    );
    assert!(is_stale(&fenced.unwrap_err()));
    assert!(written.is_err());
    assert!(is_fenced_out(&guard), "{:?}", guard.loss());
    step.commit().await.unwrap();
    assert_eq!(other.must("SELECT v FROM data").await, "1");
}

/// F9, F14 over sqlx; its statements are not prepared by name.
#[tokio::test]
async fn a_stale_check_over_sqlx_ends_the_tenure_of_its_guard() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mut mine = PgConnection::connect(&server.url()).await.unwrap();
    let mut tx = mine.begin().await.unwrap();
    check(&mut tx, &guard).await.unwrap();
    sqlx::query("UPDATE data SET v = $1")
        .bind(1_i64)
        .execute(&mut *tx)
        .await
        .unwrap();
    let prepared = sqlx::query_scalar::<_, i64>(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%leasehold.fence%' AND name <> ''",
    );
    assert_eq!(
        prepared
            .persistent(false)
            .fetch_one(&mut *tx)
            .await
            .unwrap(),
        0,
        "nothing is prepared by name"
    );
    tx.commit().await.unwrap();

    successor(&other).await;
    let mut tx = mine.begin().await.unwrap();
    let refused = check(&mut tx, &guard).await.unwrap_err();
    assert!(is_stale(&refused), "{refused}");
    assert!(is_fenced_out(&guard), "{:?}", guard.loss());
    let late = sqlx::query("UPDATE data SET v = 2").execute(&mut *tx).await;
    assert!(late.is_err(), "INV-22: the transaction is over");
    drop(tx);
    assert_eq!(other.must("SELECT v FROM data").await, "1");
}

/// F17: BEGIN, check, write and COMMIT travel together, into a table that wants the fence as well.
#[tokio::test]
async fn one_round_trip_writes_or_refuses() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    other.must("SELECT leasehold.protect('data', 'job')").await;
    let mut mine = Session::open(&server).await;
    let update = "UPDATE data SET v = v + $1";
    let by = |amount: &'static i64| {
        [(
            amount as &(dyn tokio_postgres::types::ToSql + Sync),
            Type::INT8,
        )]
    };
    let rows = write(&mut mine.client, &guard, update, &by(&5)).await;
    assert_eq!(rows.unwrap(), 1);
    let failed = write(&mut mine.client, &guard, "UPDATE nothing SET v = 1", &[]).await;
    assert!(matches!(failed, Err(FenceError::Postgres(_))), "{failed:?}");
    assert!(!guard.is_lost(), "a mistake says nothing about the lease");
    assert_eq!(other.must("SELECT v FROM data").await, "5");

    successor(&other).await;
    let refused = write(&mut mine.client, &guard, update, &by(&7)).await;
    assert!(is_stale(&refused.unwrap_err()));
    assert!(is_fenced_out(&guard));
    assert_eq!(other.must("SELECT v FROM data").await, "5");
    assert_eq!(
        mine.must("SELECT pg_current_xact_id_if_assigned() IS NULL")
            .await,
        "t"
    );
}

/// F17, F11: one statement of any client, alone, waits for its predecessor's and is waited for by its successor.
#[tokio::test]
async fn one_statement_checks_and_writes() {
    let Some((server, other, guard)) = start().await else {
        return;
    };
    let mine = Session::open(&server).await;
    let token = guard.token();
    let add = |token: &str| {
        format!(
            "WITH f AS MATERIALIZED (SELECT leasehold.fenced('job', {token})) UPDATE data SET v = v + 100 FROM f"
        )
    };
    mine.must(&add(&token.to_string())).await;
    assert_eq!(other.must("SELECT v FROM data").await, "100");
    let alone = format!("SELECT leasehold.fenced('job', {token})");
    let text = mine.refused(&alone, "LH002").await;
    assert!(text.contains("writes nothing"), "{text}");

    // In flight, it keeps the successor waiting like any other fenced write.
    mine.must("BEGIN").await;
    mine.must(&add(&token.to_string())).await;
    mine.must("SET LOCAL idle_in_transaction_session_timeout = 0")
        .await;
    other
        .must("SELECT leasehold.force_release('job', true)")
        .await;
    {
        let waits = other.granted("job", "new", 30_000);
        tokio::pin!(waits);
        tokio::select! {
            token = &mut waits => panic!("did not wait: {token}"),
            () = pass(700) => {}
        }
        mine.must("COMMIT").await;
        waits.await;
    }
    assert_eq!(other.must("SELECT v FROM data").await, "200");
    let stale = mine.refused(&add(&token.to_string()), "LH001").await;
    assert!(stale.contains("is older than"), "{stale}");
    assert_eq!(other.must("SELECT v FROM data").await, "200");

    // Its triggers come first: a guarded table wants the fence as a statement of its own.
    let newest = other.must("SELECT token FROM leasehold.lease").await;
    other.must("SELECT leasehold.protect('data', 'job')").await;
    mine.refused(&add(&newest), "LH001").await;
}
