//! Connections of the store's own (FB-89), on a thread of their own, so that neither the user's pool nor the user's
//! runtime can keep a renewal waiting (H10).
//!
//! A connection that failed in any way is dropped, never used again. Dropping it cancels nothing on the server: what was
//! sent may still commit, and is `Unknown` (PG6).

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Semaphore, watch};
use tokio_postgres::{
    AsyncMessage, Client, Config, Row,
    error::{Severity, SqlState},
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{SCHEMA_VERSION, address::Address, fault};
use crate::StoreError;

/// A parameter with its type, so that nothing is prepared and every pooler will do (CRATES 4.4).
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A statement that waits longer than this is given up; the keeper gives up long before.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that took the connection and says nothing is given up after this, so that it does not keep the place of
/// a statement that another server would answer (FB-24).
const GREETING: Duration = Duration::from_secs(5);

/// Releases within so long are told together.
const TELLING: Duration = Duration::from_millis(5);

/// Connections to one database.
#[derive(Debug)]
pub(super) struct Links {
    address: Address,
    idle: Mutex<Vec<Link>>,
    places: Semaphore,
    newest: Mutex<Option<Line>>,
    /// Somebody is about to tell that leases became free.
    telling: AtomicBool,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    /// The server said that a commit may not have reached its standby (PG6).
    doubt: Arc<AtomicBool>,
}

/// A server's history, as far as its age can be compared (PG1).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    system: String,
    timeline: u32,
}

impl Links {
    /// So many statements at a time; the others wait their turn.
    const MOST: usize = 16;

    pub(super) fn new(address: Address) -> Self {
        let (idle, newest) = (Mutex::default(), Mutex::default());
        Self {
            address,
            idle,
            places: Semaphore::new(Self::MOST),
            newest,
            telling: AtomicBool::new(false),
        }
    }

    /// Whether other statements are on their way.
    pub(super) fn is_busy(&self) -> bool {
        self.places.available_permits() < Self::MOST
    }

    /// Tells waiters, soon and once for all who ask meanwhile, that leases became free. Only a hint: nothing is synced.
    pub(super) fn tell(self: &Arc<Self>) {
        if self.telling.swap(true, Ordering::AcqRel) {
            return;
        }
        let links = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(TELLING).await;
            links.telling.store(false, Ordering::Release);
            let sql =
                "SELECT set_config('synchronous_commit', 'off', true), pg_notify('leasehold', '')";
            if let Err(error) = links.query(sql, &[]).await {
                tracing::debug!(%error, "waiters were not told; they will ask in their own time");
            }
        });
    }

    /// Runs one statement; every row is the caller's. An error says whether it may have been applied.
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let _place = tokio::time::timeout(PATIENCE, self.places.acquire())
            .await
            .map_err(|_| {
                fault::unavailable("every connection of the store's pool was busy for 30 s")
            })?
            .map_err(|_| fault::unavailable("the store is closed"))?;
        let link = match self.take_idle() {
            Some(link) => link,
            None => in_time(self.open()).await?,
        };
        let rows = tokio::time::timeout(PATIENCE, link.client.query_typed(sql, params))
            .await
            .map_err(|_| fault::unknown("no answer for 30 s"))?
            .map_err(|error| fault::of_statement(&error));
        if link.doubt.load(Ordering::Acquire) {
            return Err(fault::unknown(
                "committed here, but perhaps not on the standby",
            ));
        }
        if rows.is_ok() && !link.client.is_closed() {
            lock(&self.idle).push(link);
        }
        rows
    }

    fn take_idle(&self) -> Option<Link> {
        let mut idle = lock(&self.idle);
        while let Some(link) = idle.pop() {
            if !link.client.is_closed() {
                return Some(link);
            }
        }
        None
    }

    /// Connects, and refuses a server that must not decide: a standby, an older line of history, another schema.
    async fn open(&self) -> Result<Link, StoreError> {
        let link = self.connect(None).await?;
        let row = link
            .client
            .query_typed(
                "SELECT pg_is_in_recovery(), to_regclass('leasehold.meta') IS NOT NULL, \
                 (SELECT system_identifier::text FROM pg_control_system()), \
                 CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END",
                &[],
            )
            .await
            .map_err(|error| fault::of_connect(&error))?;
        let row = row
            .first()
            .ok_or_else(|| fault::unavailable("the server answered nothing"))?;
        if row.get::<_, bool>(0) {
            return Err(fault::unavailable(
                "this server is a read-only standby; name the primary",
            ));
        }
        if !row.get::<_, bool>(1) {
            return Err(fault::no_schema());
        }
        self.compare(Line {
            system: row.get(2),
            timeline: row
                .get::<_, Option<String>>(3)
                .and_then(|hex| u32::from_str_radix(&hex, 16).ok())
                .unwrap_or(0),
        })?;
        let version = link
            .client
            .query_typed("SELECT version FROM leasehold.meta", &[])
            .await;
        match version
            .map_err(|error| fault::of_connect(&error))?
            .first()
            .map(|row| row.get::<_, i32>(0))
        {
            Some(SCHEMA_VERSION) => Ok(link),
            found => Err(fault::wrong_schema(found)),
        }
    }

    /// A primary that was left behind by a failover may still answer; whoever has seen the new one refuses it (PG1).
    fn compare(&self, line: Line) -> Result<(), StoreError> {
        let mut newest = lock(&self.newest);
        if let Some(seen) = &*newest
            && seen.system == line.system
            && seen.timeline > line.timeline
        {
            return Err(fault::unavailable(format!(
                "this server is on timeline {}, but timeline {} was seen before: it was replaced by a failover",
                line.timeline, seen.timeline
            )));
        }
        *newest = Some(line);
        Ok(())
    }

    /// A connection whose messages are read by a task of this runtime. Ends when its client is dropped.
    pub(super) async fn connect(
        &self,
        heard: Option<watch::Sender<u64>>,
    ) -> Result<Link, StoreError> {
        in_time(self.greet(heard)).await
    }

    async fn greet(&self, heard: Option<watch::Sender<u64>>) -> Result<Link, StoreError> {
        let doubt = Arc::new(AtomicBool::new(false));
        let config: &Config = &self.address.config;
        let client = match &self.address.tls {
            Some(tls) => {
                let tls = MakeRustlsConnect::new(tls.clone());
                let (client, connection) = config
                    .connect(tls)
                    .await
                    .map_err(|e| fault::of_connect(&e))?;
                tokio::spawn(read(connection, doubt.clone(), heard));
                client
            }
            None => {
                let (client, connection) = config
                    .connect(tokio_postgres::NoTls)
                    .await
                    .map_err(|e| fault::of_connect(&e))?;
                tokio::spawn(read(connection, doubt.clone(), heard));
                client
            }
        };
        Ok(Link { client, doubt })
    }
}

impl Link {
    /// For statements that have no answer of ours: LISTEN, the schema.
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}

async fn read<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    doubt: Arc<AtomicBool>,
    heard: Option<watch::Sender<u64>>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            AsyncMessage::Notice(notice)
                if notice.parsed_severity() == Some(Severity::Warning)
                    && *notice.code() == SqlState::WARNING =>
            {
                doubt.store(true, Ordering::Release);
            }
            AsyncMessage::Notification(_) => {
                if let Some(heard) = &heard {
                    heard.send_modify(|count| *count += 1);
                }
            }
            _ => {}
        }
    }
}

/// Hears NOTIFY on a connection of its own, and comes back when that breaks. It misses what is said meanwhile, and all
/// of it behind a pooler, so it ticks by itself now and then; waiters poll as well (PG11).
pub(super) async fn listen(links: Arc<Links>, heard: watch::Sender<u64>) {
    loop {
        if let Ok(mut link) = links.connect(Some(heard.clone())).await {
            let client = link.client();
            let mut said = heeded(client, "LISTEN leasehold").await;
            while said {
                heard.send_modify(|count| *count += 1);
                tokio::time::sleep(Duration::from_secs(5)).await;
                said = heeded(client, "").await;
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

async fn heeded(client: &Client, sql: &str) -> bool {
    matches!(
        tokio::time::timeout(GREETING, client.batch_execute(sql)).await,
        Ok(Ok(()))
    )
}

/// Nothing was asked for yet, so nothing can have been applied.
async fn in_time<T>(open: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(GREETING, open).await.map_err(|_| {
        fault::unavailable("the server took the connection, but said nothing for 5 s")
    })?
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
