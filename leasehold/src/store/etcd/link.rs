//! Calls to etcd, each bounded in time. A keep-alive stream carries one question at a time, and is thrown away when an
//! answer did not come: no answer is ever taken for that of a later question (C4).

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_client::{
    Client, Error, LeaseGrantOptions, LeaseKeepAliveStream, LeaseKeeper, ResponseHeader, Txn,
    TxnResponse,
};

use super::{address::Address, fault};
use crate::StoreError;

/// A call that takes longer is given up; the keeper gives up before.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many keep-alive streams are kept open.
const STREAMS: usize = 10_000;

/// A connection to all members.
pub(super) struct Link {
    client: Client,
    endpoints: String,
    streams: Mutex<HashMap<i64, (LeaseKeeper, LeaseKeepAliveStream)>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.endpoints).finish()
    }
}

/// A keep-alive that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// In seconds, from the leader's evaluation on.
    pub(super) ttl: u64,
    /// The term of the leader that is believed to have answered.
    pub(super) term: u64,
}

impl Link {
    pub(super) async fn connect(address: &Address) -> Result<Self, StoreError> {
        let options = Some(address.options.clone());
        let endpoints = address.endpoints.join(",");
        let connecting = Client::connect(&address.endpoints, options);
        let client = timed(&endpoints, connecting)
            .await
            .map_err(fault::unavailable)?
            .map_err(|error| fault::of_read(&error))?;
        Ok(Self {
            client,
            endpoints,
            streams: Mutex::default(),
        })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// A call that changes nothing.
    pub(super) async fn read<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        timed(&self.endpoints, call)
            .await
            .map_err(fault::unavailable)?
            .map_err(|error| fault::of_read(&error))
    }

    /// A transaction that may change something.
    pub(super) async fn write(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        timed(&self.endpoints, self.client().txn(txn))
            .await
            .map_err(fault::unknown)?
            .map_err(|error| fault::of_write(&error))
    }

    /// Makes an etcd lease, which holds nothing yet; answers the ttl that it was really given (ET5, FB-49), and the term
    /// if it was there already and was only kept alive.
    pub(super) async fn grant(
        &self,
        id: i64,
        seconds: u64,
    ) -> Result<(u64, Option<u64>), StoreError> {
        let asked = i64::try_from(seconds).unwrap_or(i64::MAX);
        let options = Some(LeaseGrantOptions::new().with_id(id));
        let mut client = self.client();
        let granted = timed(&self.endpoints, client.lease_grant(asked, options))
            .await
            .map_err(fault::unavailable)?;
        match granted {
            Ok(granted) => Ok((granted.ttl().unsigned_abs(), None)),
            Err(error) if fault::is_there(&error) => match self.keep(id).await? {
                Some(kept) => Ok((kept.ttl, Some(kept.term))),
                None => Err(fault::unavailable("the etcd lease ended while it was made")),
            },
            Err(error) => Err(fault::of_read(&error)),
        }
    }

    /// Ends an etcd lease, and so deletes its keys. One that is gone already is no error.
    pub(super) async fn revoke(&self, id: i64) -> Result<(), StoreError> {
        self.streams().remove(&id);
        let mut client = self.client();
        let revoked = timed(&self.endpoints, client.lease_revoke(id))
            .await
            .map_err(fault::unknown)?;
        match revoked {
            Ok(_) => Ok(()),
            Err(error) if fault::is_gone(&error) => Ok(()),
            Err(error) => Err(fault::of_write(&error)),
        }
    }

    /// Keeps an etcd lease alive. `None`: there is none any more, which etcd tells as a ttl of 0 (ET5).
    pub(super) async fn keep(&self, id: i64) -> Result<Option<Kept>, StoreError> {
        timed(&self.endpoints, self.ask_to_keep(id))
            .await
            .map_err(fault::unknown)?
            .or_else(|error| match fault::is_gone(&error) {
                true => Ok(None),
                false => Err(fault::of_write(&error)),
            })
    }

    /// Dropped in the middle, it takes its stream with it.
    async fn ask_to_keep(&self, id: i64) -> Result<Option<Kept>, Error> {
        let kept = self.streams().remove(&id);
        if let Some((keeper, stream)) = kept {
            // A stream that broke while it was idle says nothing about the lease.
            if let Ok(kept) = self.ask_stream(id, keeper, stream).await {
                return Ok(kept);
            }
        }
        let (keeper, stream) = self.client().lease_keep_alive(id).await?;
        self.ask_stream(id, keeper, stream).await
    }

    async fn ask_stream(
        &self,
        id: i64,
        mut keeper: LeaseKeeper,
        mut stream: LeaseKeepAliveStream,
    ) -> Result<Option<Kept>, Error> {
        keeper.keep_alive().await?;
        let answer = stream
            .message()
            .await?
            .ok_or_else(|| Error::Internal("the keep-alive stream ended".into()))?;
        if answer.ttl() <= 0 {
            return Ok(None);
        }
        let mut streams = self.streams();
        if streams.len() < STREAMS {
            streams.insert(id, (keeper, stream));
        }
        Ok(Some(Kept {
            ttl: answer.ttl().unsigned_abs(),
            term: answer.header().map_or(0, ResponseHeader::raft_term),
        }))
    }

    /// How long an etcd lease lasts if nobody keeps it alive; zero if it is gone.
    pub(super) async fn remaining(&self, id: i64) -> Result<Duration, StoreError> {
        let mut client = self.client();
        let told = timed(&self.endpoints, client.lease_time_to_live(id, None))
            .await
            .map_err(fault::unavailable)?;
        match told {
            Ok(told) => Ok(Duration::from_secs(told.ttl().max(0).unsigned_abs())),
            Err(error) if fault::is_gone(&error) => Ok(Duration::ZERO),
            Err(error) => Err(fault::of_read(&error)),
        }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<i64, (LeaseKeeper, LeaseKeepAliveStream)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn timed<T>(endpoints: &str, call: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, call).await.map_err(|_| {
        format!("no answer from {endpoints} within {PATIENCE:?}: is a quorum of etcd there?")
    })
}
