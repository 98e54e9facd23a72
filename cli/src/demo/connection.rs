//! How a node reaches its store: the demo's own over a socket, as a program reaches its database, or a real one.

use std::{
    io::BufReader,
    net::{Ipv4Addr, SocketAddr, TcpStream},
};

use anyhow::{Context, bail};
use leasehold::store::{SharedStore, connect};
use tokio::runtime::Runtime;

use super::{
    PATIENCE,
    wire::{self, Found, Place, Query},
};

/// An open one.
pub(crate) enum Connection {
    /// To `lease_db`.
    Socket(BufReader<TcpStream>),
    /// To a store that needs no process of the demo.
    Real {
        store: SharedStore,
        runtime: Runtime,
    },
}

impl Connection {
    /// Reaches the store at `place`.
    pub(crate) fn open(place: Place) -> anyhow::Result<Self> {
        match place {
            Place::Port(port) => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let stream = TcpStream::connect_timeout(&address, PATIENCE / 2)
                    .with_context(|| format!("cannot reach the store at {address}"))?;
                stream.set_read_timeout(Some(PATIENCE / 2))?;
                stream.set_write_timeout(Some(PATIENCE / 2))?;
                stream.set_nodelay(true)?;
                Ok(Self::Socket(BufReader::new(stream)))
            }
            Place::Url(url) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let store = runtime.block_on(connect(&url))?;
                Ok(Self::Real { store, runtime })
            }
        }
    }

    /// Asks one thing.
    pub(crate) fn ask(&mut self, query: Query) -> anyhow::Result<Found> {
        match self {
            Self::Socket(stream) => {
                let sent = wire::send(stream.get_mut(), &query);
                let answer = sent.and_then(|()| wire::receive(stream));
                let answer = answer.context("the store did not answer")?;
                answer.context("the store closed the connection")
            }
            Self::Real { store, runtime } => runtime.block_on(answer(store, query)),
        }
    }
}

/// What a store says to a query.
pub(crate) async fn answer(store: &SharedStore, query: Query) -> anyhow::Result<Found> {
    let found = async {
        Ok(match query {
            Query::Apply(op) => Found::Outcome(store.apply(op).await?),
            Query::Status(lease) => Found::Status(store.status(&lease).await?),
            Query::Pair(key) => Found::Pair(store.pair(&key).await?),
        })
    };
    match tokio::time::timeout(PATIENCE / 2, found).await {
        Ok(found) => found,
        Err(_) => bail!(
            "the store did not answer within {} s",
            PATIENCE.as_secs() / 2
        ),
    }
}
