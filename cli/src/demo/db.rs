//! The store of the demo, `lease_db`: Leasehold's store in memory, reached over a socket, on a clock moved by hand.

use std::{
    io::{self, BufReader},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use leasehold::{
    BootTime, WallTime,
    clock::Clock,
    store::{SharedStore, memory::MemoryStore},
};
use tokio::runtime::Runtime;

use super::{
    connection::answer,
    wire::{self, Ask, Reply},
};

/// More connections than the demo ever has; others are turned away.
const MAX_CONNECTIONS: usize = 16;

/// Serves the nodes until the driver is gone.
pub(crate) fn main() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .context("no free port on the loopback address")?;
    let port = listener.local_addr()?.port();
    let clock = Arc::new(HandClock::default());
    let db = Arc::new(Db {
        runtime: tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?,
        store: MemoryStore::with_clock(clock.clone()),
    });
    thread::spawn(move || db.listen(&listener));
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    wire::send(&mut output, &Reply::Listening { port })?;
    while let Some(ask) = wire::receive(&mut input)? {
        let Ask::Advance { seconds } = ask else {
            bail!("the store cannot do that: {ask:?}");
        };
        clock.advance(Duration::from_secs(seconds));
        wire::send(&mut output, &Reply::Done)?;
    }
    Ok(())
}

struct Db {
    runtime: Runtime,
    store: SharedStore,
}

impl Db {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().flatten() {
            if open.load(Ordering::SeqCst) >= MAX_CONNECTIONS {
                continue;
            }
            open.fetch_add(1, Ordering::SeqCst);
            let (db, open) = (self.clone(), open.clone());
            thread::spawn(move || {
                // A connection that breaks or talks nonsense is closed; the node at its end tells the driver.
                let _ = db.serve(stream);
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }

    fn serve(&self, stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let mut connection = BufReader::new(stream);
        while let Some(query) = wire::receive(&mut connection)? {
            let found = self.runtime.block_on(answer(&self.store, query))?;
            wire::send(connection.get_mut(), &found)?;
        }
        Ok(())
    }
}

/// Stands still until it is moved.
#[derive(Debug, Default)]
struct HandClock {
    nanos: AtomicU64,
}

impl HandClock {
    fn advance(&self, by: Duration) {
        let nanos = BootTime::ZERO.plus(by).as_nanos();
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.nanos.load(Ordering::SeqCst))
    }
}
