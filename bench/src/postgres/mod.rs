//! The PostgreSQL store beside what its server can do: bare one-row updates by the same number of clients, and unfenced
//! writes. A real server of its own, in a temporary folder; everything is measured in turns, and ratios are judged.

mod count;
mod fences;
mod leases;
mod many;
mod takeover;

#[allow(
    dead_code,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "the tests' own server, of which this uses a part"
)]
#[path = "../../../leasehold/tests/postgres/server.rs"]
mod server;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use leasehold::{
    BootTime,
    clock::{BootClock, Clock},
};
use tokio::{runtime::Runtime, task::JoinSet};
use tokio_postgres::{Client, NoTls};

use crate::sqlite::{Rate, SyncedWrites, judge, turn};
use server::{Server, Version};

pub(crate) use many::Process;

/// PRODUCT 7: 16 clients, as a part of bare one-row updates under the same load.
const CLIENTS: u64 = 16;
const OF_BARE: f64 = 0.9;
const TURN: Duration = Duration::from_millis(700);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many turns of 0.7 s each measurement gets
    #[arg(long, value_name = "N", default_value_t = 6)]
    turns: u32,
    /// How long ten processes renew 10 000 leases, in seconds; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    many: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let version = Version::one().context("no PostgreSQL on this machine; run `make setup`")?;
    let folder = tempfile::tempdir()?;
    let server = runtime
        .block_on(Server::ready_with("shared_buffers = 128MB"))
        .context("no server")?;
    println!(
        "PostgreSQL {}, its settings as installed, on this machine's disk",
        version.major
    );
    let met = runtime.block_on(rates(&server, folder.path(), args.turns))?
        & runtime.block_on(count::run(&server))?
        & runtime.block_on(takeover::run(&server))?
        & (args.many == 0 || many::run(&server, args.many)?);
    ensure!(met, "a bar is missed");
    Ok(())
}

async fn rates(server: &Server, folder: &std::path::Path, turns: u32) -> anyhow::Result<bool> {
    let clock = BootClock::new();
    let synced = SyncedWrites::new(folder)?;
    let bare = leases::Bare::new(server, CLIENTS).await?;
    let held = leases::Held::new(server, CLIENTS, 1000).await?;
    let fenced = fences::Fences::new(server, CLIENTS).await?;
    let [mut sync, mut plain, mut renew, mut cycle, mut batch] = [(); 5].map(|()| Rate::default());
    let mut writes = fences::KINDS.map(|_| Rate::default());
    for _ in 0..turns {
        let until = || clock.now().plus(TURN);
        turn(&clock, &mut sync, || synced.run(&clock, until()))?;
        for (rate, what) in [
            (&mut plain, 0),
            (&mut renew, 1),
            (&mut cycle, 2),
            (&mut batch, 3),
        ] {
            let began = clock.now();
            let done = match what {
                0 => bare.run(&clock, until()).await?,
                1 => held.renew(&clock, until()).await?,
                2 => held.take_and_give(&clock, until()).await?,
                _ => held.renew_all(&clock, until()).await?,
            };
            rate.add(done, clock.now().since(began));
        }
        for (rate, kind) in writes.iter_mut().zip(fences::KINDS) {
            let began = clock.now();
            let done = fenced.run(kind, &clock, until()).await?;
            rate.add(done, clock.now().since(began));
        }
    }
    let say = |rate: &Rate, what: &str| println!("{:>9.0}/s  {what}", rate.per_second());
    say(
        &sync,
        "pwrite + fdatasync of one block: what the disk can do",
    );
    say(&plain, "bare UPDATE of one row, 16 clients, a row each");
    say(&renew, "renewals, 16 clients of one store");
    say(&cycle, "acquires and releases, 16 clients of one store");
    say(&batch, "renewals, 1000 in one statement, one client");
    for (rate, kind) in writes.iter().zip(fences::KINDS) {
        say(rate, kind.name());
    }
    for (rate, kind) in writes.iter().zip(fences::KINDS).skip(1) {
        println!(
            "{:>9.2}    {} / unfenced",
            rate.per_second() / writes[0].per_second(),
            kind.name()
        );
    }
    let of = |rate: &Rate| rate.per_second() / plain.per_second();
    Ok(judge("renewals / bare updates", of(&renew), OF_BARE)
        & judge("acquires and releases / bare updates", of(&cycle), OF_BARE))
}

async fn connect(server: &Server) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Runs one loop for each client at the same time, and sums up.
async fn together<F>(loops: impl IntoIterator<Item = F>) -> anyhow::Result<u64>
where
    F: Future<Output = anyhow::Result<u64>> + Send + 'static,
{
    let mut tasks: JoinSet<_> = JoinSet::new();
    for one in loops {
        tasks.spawn(one);
    }
    let mut total = 0;
    while let Some(done) = tasks.join_next().await {
        total += done??;
    }
    Ok(total)
}

fn is_over(clock: &Arc<BootClock>, until: BootTime) -> bool {
    clock.now() >= until
}

/// A random number of the kernel's would do as well; these only have to differ.
fn id(number: u64) -> anyhow::Result<std::num::NonZeroU128> {
    match std::num::NonZeroU128::new(u128::from(number) + 1) {
        Some(id) => Ok(id),
        None => bail!("never zero"),
    }
}
