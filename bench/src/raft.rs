//! The replicated store beside what its disk can do: renewals of 1, 64 and 256 clients, each answered when a majority has
//! it on its disk. All members are in this process and on this disk, so three of them share what one has alone.
//!
//! Measured in turns of a fraction of a second, since a virtual disk's speed changes from minute to minute.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use leasehold::clock::{BootClock, Clock};
use leasehold_raft::{Config, RaftStore};
use tokio::runtime::Runtime;

use crate::sqlite::{Holding, Rate, SyncedWrites, together, turn};

const CLIENTS: [usize; 3] = [1, 64, 256];
const TURN: Duration = Duration::from_millis(400);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the files are made: a folder on the disk to be measured
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// How many turns of 0.4 s each measurement gets
    #[arg(long, value_name = "N", default_value_t = 8)]
    turns: u32,
    /// How many members: 1, 3 or 5
    #[arg(long, value_name = "N", default_value_t = 1)]
    members: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(&args.folder)
        .with_context(|| format!("no folder can be made in {}", args.folder.display()))?;
    let runtime = Runtime::new()?;
    let clock = BootClock::new();
    let synced = SyncedWrites::new(folder.path())?;
    let members = runtime.block_on(members(folder.path().to_owned(), args.members))?;
    let store = members.first().context("at least one member")?;
    let mut groups: Vec<(Vec<Holding>, Rate, u64)> = Vec::new();
    let mut number = 0;
    for clients in CLIENTS {
        let mut holders = Vec::new();
        for _ in 0..clients {
            number += 1;
            holders.push(runtime.block_on(Holding::new(store.clone(), number))?);
        }
        groups.push((holders, Rate::default(), 0));
    }
    let mut sync = Rate::default();
    for _ in 0..args.turns {
        turn(&clock, &mut sync, || {
            synced.run(&clock, clock.now().plus(TURN))
        })?;
        for (holders, rate, commits) in &mut groups {
            let before = store.report().commits;
            let until = clock.now().plus(TURN);
            turn(&clock, rate, || {
                runtime.block_on(together(holders, &clock, until))
            })?;
            *commits += store.report().commits - before;
        }
    }
    println!(
        "{:>9.0}/s  pwrite + fdatasync of one block: what the disk can do",
        sync.per_second()
    );
    for (holders, rate, commits) in &groups {
        println!(
            "{:>9.0}/s  renewals, {} clients: {:.1} times the disk, {:.1} to a commit",
            rate.per_second(),
            holders.len(),
            rate.per_second() / sync.per_second(),
            rate.done() as f64 / (*commits).max(1) as f64,
        );
    }
    for member in members {
        runtime.block_on(member.stop());
    }
    Ok(())
}

async fn members(folder: PathBuf, count: usize) -> anyhow::Result<Vec<Arc<RaftStore>>> {
    if ![1, 3, 5].contains(&count) {
        bail!("{count} members are not allowed: 1, 3 or 5");
    }
    let mut members: Vec<Arc<RaftStore>> = Vec::new();
    for number in 0..count {
        let store = RaftStore::start(Config {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            ..Config::new(folder.join(format!("member-{number}")))
        });
        let store = store.await?;
        match members.first() {
            None => store.init().await?,
            Some(first) => store.join(first.address()).await?,
        }
        members.push(store);
    }
    Ok(members)
}
