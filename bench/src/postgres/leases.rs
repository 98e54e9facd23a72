//! Renewals, acquires and releases through the store, and what a server does without it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, bail};
use leasehold::{
    BootTime, Holder, LeaseName, LockDelay, SharedStore, Token, Ttl,
    clock::BootClock,
    core::{Acquire, Answer, Command, Op, Outcome, Release, Renew},
};
use tokio_postgres::{Client, types::Type};

use super::{connect, id, is_over, server::Server, together};

/// What every client does without Leasehold: it writes its own row, and waits until that is durable.
pub(super) struct Bare(Vec<Arc<Client>>);

impl Bare {
    pub(super) async fn new(server: &Server, clients: u64) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for _ in 0..clients {
            all.push(Arc::new(connect(server).await?));
        }
        let first = all.first().context("a client")?;
        first
            .batch_execute(
                "CREATE TABLE bare(id bigint PRIMARY KEY, n bigint, at timestamptz) WITH (fillfactor = 50); \
                 INSERT INTO bare SELECT i, 0 FROM generate_series(0, 63) i",
            )
            .await?;
        Ok(Self(all))
    }

    pub(super) async fn run(&self, clock: &Arc<BootClock>, until: BootTime) -> anyhow::Result<u64> {
        let loops = self.0.iter().enumerate().map(|(number, client)| {
            let (client, clock) = (client.clone(), clock.clone());
            async move {
                let number = number as i64;
                let mut done = 0;
                while !is_over(&clock, until) {
                    let sql = "UPDATE bare SET n = n + 1, at = clock_timestamp() WHERE id = $1 RETURNING n";
                    client.query_typed(sql, &[(&number, Type::INT8)]).await?;
                    done += 1;
                }
                Ok(done)
            }
        });
        together(loops).await
    }
}

/// Leases that are held, and the store that renews them.
pub(super) struct Held {
    store: SharedStore,
    clients: u64,
    tokens: Arc<Vec<Token>>,
    /// Of each lease.
    renewals: Arc<Vec<AtomicU64>>,
    wishes: AtomicU64,
}

impl Held {
    pub(super) async fn new(server: &Server, clients: u64, leases: u64) -> anyhow::Result<Self> {
        let store = leasehold::connect(&server.url()).await?;
        let tokens = acquire_all(&store, "held", leases, Ttl::MAX).await?;
        Ok(Self {
            store,
            clients,
            tokens: Arc::new(tokens),
            renewals: Arc::new((0..leases).map(|_| AtomicU64::new(0)).collect()),
            wishes: AtomicU64::new(1 << 20),
        })
    }

    pub(super) async fn renew(
        &self,
        clock: &Arc<BootClock>,
        until: BootTime,
    ) -> anyhow::Result<u64> {
        let loops = (0..self.clients).map(|number| {
            let (store, clock) = (self.store.clone(), clock.clone());
            let (tokens, renewals) = (self.tokens.clone(), self.renewals.clone());
            async move {
                let mut done = 0;
                while !is_over(&clock, until) {
                    let index = number as usize;
                    let nth = renewals[index].fetch_add(1, Ordering::Relaxed) + 1;
                    let op = renewal("held", number, tokens[index], nth, Ttl::MAX)?;
                    must_renew(&store.apply(op).await?)?;
                    done += 1;
                }
                Ok(done)
            }
        });
        together(loops).await
    }

    pub(super) async fn take_and_give(
        &self,
        clock: &Arc<BootClock>,
        until: BootTime,
    ) -> anyhow::Result<u64> {
        let loops = (0..self.clients).map(|number| {
            let (store, clock) = (self.store.clone(), clock.clone());
            let wish = self.wishes.fetch_add(1 << 20, Ordering::Relaxed);
            async move {
                let mut done = 0;
                while !is_over(&clock, until) {
                    let name = LeaseName::new(&format!("given {number}"))?;
                    let acquire = acquire(&name, wish + done, Ttl::MAX)?;
                    let token = granted(&store.apply(acquire).await?)?;
                    let session = id(wish + done)?.into();
                    let command = Command::Release(Release::Tenure { token, session });
                    store.apply(Op::Lease { name, command }).await?;
                    done += 2;
                }
                Ok(done)
            }
        });
        together(loops).await
    }

    pub(super) async fn renew_all(
        &self,
        clock: &Arc<BootClock>,
        until: BootTime,
    ) -> anyhow::Result<u64> {
        let mut done = 0;
        while !is_over(clock, until) {
            let ops = self.tokens.iter().enumerate().map(|(index, token)| {
                let nth = self.renewals[index].fetch_add(1, Ordering::Relaxed) + 1;
                renewal("held", index as u64, *token, nth, Ttl::MAX)
            });
            for outcome in self
                .store
                .apply_all(ops.collect::<anyhow::Result<_>>()?)
                .await
            {
                must_renew(&outcome?)?;
                done += 1;
            }
        }
        Ok(done)
    }
}

/// Acquires so many leases, 16 at a time.
pub(super) async fn acquire_all(
    store: &SharedStore,
    prefix: &str,
    leases: u64,
    ttl: Ttl,
) -> anyhow::Result<Vec<Token>> {
    let mut tokens = Vec::new();
    for first in (0..leases).step_by(16) {
        let mut tasks = Vec::new();
        for number in first..leases.min(first + 16) {
            let op = acquire(&LeaseName::new(&format!("{prefix} {number}"))?, number, ttl)?;
            let store = store.clone();
            tasks.push(tokio::spawn(async move { store.apply(op).await }));
        }
        for task in tasks {
            tokens.push(granted(&task.await??)?);
        }
    }
    Ok(tokens)
}

pub(super) fn acquire(name: &LeaseName, number: u64, ttl: Ttl) -> anyhow::Result<Op> {
    let command = Command::Acquire(Acquire {
        session: id(number)?.into(),
        request_id: id(number)?.into(),
        holder: Holder::new("bench")?,
        info: None,
        ttl,
        lock_delay: LockDelay::NONE,
    });
    let name = name.clone();
    Ok(Op::Lease { name, command })
}

pub(super) fn granted(outcome: &Outcome) -> anyhow::Result<Token> {
    match outcome {
        Outcome::Lease(Answer::Granted(grant)) => Ok(grant.token),
        other => bail!("an acquire was answered {other:?}"),
    }
}

pub(super) fn renewal(
    prefix: &str,
    number: u64,
    token: Token,
    nth: u64,
    ttl: Ttl,
) -> anyhow::Result<Op> {
    let command = Command::Renew(Renew {
        token,
        session: id(number)?.into(),
        ttl,
        number: nth,
        renew_id: id(nth)?.into(),
    });
    let name = LeaseName::new(&format!("{prefix} {number}"))?;
    Ok(Op::Lease { name, command })
}

fn must_renew(outcome: &Outcome) -> anyhow::Result<()> {
    match outcome {
        Outcome::Lease(Answer::Renewed { .. }) => Ok(()),
        other => bail!("a renewal was answered {other:?}"),
    }
}
