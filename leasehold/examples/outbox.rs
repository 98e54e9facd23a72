//! An outbox (I8): what must be told to others is written in the same fenced transaction as what it tells of. A relay,
//! of which one runs at a time since it holds a lease, delivers at least once; receivers drop doubles by the number of
//! the message, in the same transaction as their own effect.
//!
//! ```text
//! leasehold migrate --store postgres://…
//! cargo run -p leasehold --features postgres --example outbox -- postgres://…
//! ```

use std::error::Error;

use leasehold::{
    Guard, Keeper, LeaseName,
    fence::{FenceError, postgres as fence},
};
use tokio_postgres::{Client, NoTls, types::Type};

/// The tables: what is done, what is to be told, and what a receiver has heard.
pub const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL);
    CREATE TABLE IF NOT EXISTS outbox(
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL, sent_under bigint);
    CREATE TABLE IF NOT EXISTS inbox(message bigint PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS parcel(item text NOT NULL);";

/// How many messages the relay takes at a time.
const BATCH: i64 = 100;

/// The effect and the word of it commit together, and only while `guard` holds the lease of whoever takes orders.
pub async fn place(client: &mut Client, guard: &Guard, item: &str) -> Result<(), FenceError> {
    let step = client.transaction().await?;
    fence::check(&step, guard).await?;
    step.execute("INSERT INTO orders(item) VALUES ($1)", &[&item])
        .await?;
    step.execute("INSERT INTO outbox(body) VALUES ($1)", &[&item])
        .await?;
    Ok(step.commit().await?)
}

/// Delivers what is not marked as sent, oldest first, and marks it; answers how much that was. A relay that froze between
/// the two is refused when it wakes, and its guard is lost; its successor has delivered the same message again.
pub async fn relay(
    client: &mut Client,
    guard: &Guard,
    mut deliver: impl AsyncFnMut(i64, &str) -> Result<(), FenceError>,
) -> Result<usize, FenceError> {
    let sql = "SELECT id, body FROM outbox WHERE sent_under IS NULL ORDER BY id LIMIT $1";
    let waiting = client.query(sql, &[&BATCH]).await?;
    for message in &waiting {
        let (id, body): (i64, &str) = (message.get(0), message.get(1));
        deliver(id, body).await?;
        let token = guard.token().get().cast_signed();
        let sql = "UPDATE outbox SET sent_under = $1 WHERE id = $2";
        fence::write(
            client,
            guard,
            sql,
            &[(&token, Type::INT8), (&id, Type::INT8)],
        )
        .await?;
    }
    Ok(waiting.len())
}

/// A receiver: a message that was heard before has no second effect.
pub async fn receive(client: &mut Client, message: i64, item: &str) -> Result<(), FenceError> {
    let step = client.transaction().await?;
    let sql = "INSERT INTO inbox VALUES ($1) ON CONFLICT DO NOTHING";
    if step.execute(sql, &[&message]).await? == 1 {
        step.execute("INSERT INTO parcel VALUES ($1)", &[&item])
            .await?;
    }
    Ok(step.commit().await?)
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Takes three orders, and relays until nothing is left to be told.
pub async fn run(url: &str) -> Result<(), Box<dyn Error>> {
    connect(url).await?.batch_execute(TABLES).await?;
    let store = leasehold::connect(url).await?;
    let orders = Keeper::new(store.clone(), LeaseName::new("orders")?)
        .acquire()
        .await?;
    let mut client = connect(url).await?;
    for item in ["a book", "a lamp", "a chair"] {
        place(&mut client, &orders, item).await?;
    }
    orders.release().await?;

    let keeper = Keeper::new(store, LeaseName::new("relay")?);
    // After a refusal or a failure somebody else goes on, or this keeper with its next token.
    keeper
        .run(|guard| async move {
            let (mut ours, mut theirs) = (connect(url).await?, connect(url).await?);
            while relay(&mut ours, &guard, async |message, item| {
                println!("message {message}: {item}");
                receive(&mut theirs, message, item).await
            })
            .await?
                > 0
            {}
            Ok::<_, FenceError>(())
        })
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args()
        .nth(1)
        .ok_or("say postgres://USER@HOST/DATABASE")?;
    run(&url).await
}
