//! Three members of one application choose who works, with no other service: each has the cluster inside it.
//!
//! ```text
//! cargo run -p leasehold-raft --example elect -- 7001            # the first makes the cluster
//! cargo run -p leasehold-raft --example elect -- 7002 7001       # the others join it, through any member
//! cargo run -p leasehold-raft --example elect -- 7003 7001
//! ```
//!
//! Kill the one that works: another goes on with a larger token. Start it again without the second number: it is a member
//! already. Without any number all three run in this process for a few seconds, and the one that works is stopped.

use std::{error::Error, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leasehold::{Guard, Keeper, Ttl};
use leasehold_raft::{Config, RaftStore};
use tokio::{
    task::{LocalSet, spawn_local},
    time::sleep,
};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let ports: Vec<u16> = std::env::args()
        .skip(1)
        .map(|port| port.parse())
        .collect::<Result<_, _>>()?;
    match ports[..] {
        [own] => work(member(folder(own), own, None).await?).await,
        [own, other] => work(member(folder(own), own, Some(other)).await?).await,
        _ => LocalSet::new().run_until(play()).await,
    }
}

fn folder(port: u16) -> PathBuf {
    std::env::temp_dir().join(format!("leasehold-elect-{port}"))
}

/// A member that listens on `own`, and joins through the one at `other` if it belongs to no cluster yet.
async fn member(folder: PathBuf, own: u16, other: Option<u16>) -> Result<Arc<RaftStore>, Failure> {
    let config = Config {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], own))),
        ..Config::new(folder)
    };
    let store = RaftStore::start(config).await?;
    match (store.report().cluster, other) {
        (Some(_), _) => {}
        (None, Some(other)) => store.join(&format!("127.0.0.1:{other}")).await?,
        (None, None) => store.init().await?,
    }
    Ok(store)
}

/// Works whenever this member has the lease.
async fn work(store: Arc<RaftStore>) -> Result<(), Failure> {
    let name = store.node();
    println!("member {name} listens on {}", store.address());
    let keeper = Keeper::new(store, "the-one-that-works".parse()?).ttl(Ttl::from_millis(3_000)?);
    let work = |guard: Guard| async move {
        println!("member {name} works, with token {}", guard.token());
        while guard.check().is_ok() {
            sleep(Duration::from_millis(200)).await;
        }
        println!("member {name} works no more");
        guard.check()
    };
    Ok(keeper.run(work).await?)
}

/// The whole story in one process.
async fn play() -> Result<(), Failure> {
    let folders = [
        tempfile::tempdir()?,
        tempfile::tempdir()?,
        tempfile::tempdir()?,
    ];
    let first = member(folders[0].path().into(), 0, None).await?;
    let mut members = vec![first.clone()];
    for folder in &folders[1..] {
        let port = first
            .address()
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        members.push(member(folder.path().into(), 0, port).await?);
    }
    let tasks: Vec<_> = members
        .iter()
        .map(|member| spawn_local(work(member.clone())))
        .collect();
    sleep(Duration::from_secs(4)).await;
    println!("member {} is stopped", first.node());
    tasks[0].abort();
    first.stop().await;
    sleep(Duration::from_secs(10)).await;
    tasks.iter().for_each(|task| task.abort());
    for member in members {
        member.stop().await;
    }
    Ok(())
}
