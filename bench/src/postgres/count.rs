//! Round trips, counted by a proxy between store and server: how often the server had to answer before the client went on.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use anyhow::Context;
use leasehold::{
    LeaseName, Ttl,
    core::{Command, Op, Release},
};

use super::{id, leases, server::Server};

const EACH: u64 = 100;

pub(super) async fn run(server: &Server) -> anyhow::Result<bool> {
    let (port, turns) = proxy(server.port())?;
    let store =
        leasehold::connect(&format!("postgres://postgres@127.0.0.1:{port}/postgres")).await?;
    let name = LeaseName::new("counted 0")?;
    // The connection is there after the first.
    store.status(&name).await?;
    let mut met = true;
    let mut judge = |what: &str, done: u64, since: u64| {
        let count = turns.load(Ordering::SeqCst) - since;
        met &= count == done;
        println!(
            "{:>9.2}    round trips for one {what}, bar 1",
            count as f64 / done as f64
        );
    };
    let before = || turns.load(Ordering::SeqCst);
    let since = before();
    let mut token = None;
    for number in 0..EACH {
        // Each takes what the one before gave back; that is counted as well.
        let op = leases::acquire(&name, number, Ttl::MAX)?;
        let got = leases::granted(&store.apply(op).await?)?;
        token = Some(got);
        if number + 1 < EACH {
            let session = id(number)?.into();
            let command = Command::Release(Release::Tenure {
                token: got,
                session,
            });
            store
                .apply(Op::Lease {
                    name: name.clone(),
                    command,
                })
                .await?;
        }
    }
    judge("acquire or release", 2 * EACH - 1, since);
    let token = token.context("it was granted")?;
    let since = before();
    for nth in 1..=EACH {
        let mut op = leases::renewal("counted", 0, token, nth, Ttl::MAX)?;
        if let Op::Lease {
            command: Command::Renew(renew),
            ..
        } = &mut op
        {
            renew.session = id(EACH - 1)?.into();
        }
        store.apply(op).await?;
    }
    judge("renewal", EACH, since);
    let since = before();
    for _ in 0..EACH {
        store.status(&name).await?;
    }
    judge("look", EACH, since);
    let since = before();
    let ops = (0..1000).map(|number| leases::renewal("held", number, token, 1, Ttl::MAX));
    store.apply_all(ops.collect::<anyhow::Result<_>>()?).await;
    judge("batch of 1000 renewals", 1, since);
    Ok(met)
}

/// A port that leads to the server, and how often a client spoke after it had been answered.
fn proxy(port: u16) -> anyhow::Result<(u16, Arc<AtomicU64>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let own = listener.local_addr()?.port();
    let turns = Arc::new(AtomicU64::new(0));
    let counted = turns.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                return;
            };
            let answered = Arc::new(AtomicBool::new(true));
            let (turns, heard) = (counted.clone(), answered.clone());
            let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else {
                return;
            };
            thread::spawn(move || {
                copy(from, to, || {
                    if answered.swap(false, Ordering::SeqCst) {
                        turns.fetch_add(1, Ordering::SeqCst);
                    }
                });
            });
            thread::spawn(move || copy(server, client, || heard.store(true, Ordering::SeqCst)));
        }
    });
    Ok((own, turns))
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut heard: impl FnMut()) {
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        heard();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
