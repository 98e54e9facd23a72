//! `postgres://…`: a row in a database that is already there.
//!
//! Who judges expiry: the database, by its `clock_timestamp()`. Tokens: counted in the row, under its lock; they jump
//! when the server's history changes (A9). A crash keeps every answered grant; so does a failover with synchronous
//! replication, and without it the next touch quarantines (PG9). The rules are SQL functions, held against the core's.

mod address;
mod examine;
mod fault;
mod link;
mod migrate;
mod query;
mod rows;
mod sighting;

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use async_trait::async_trait;
use leasehold_core::{
    Answer, Begin, Command, Entry, Fence, Key, LeaseName, Op, Outcome, Pair, Proof, Resource,
    Status, Token, Ttl, Work,
};
use tokio::sync::watch;
use tokio_postgres::types::Type;

pub use migrate::{SCHEMA, migrate, script};

use self::{
    link::Links,
    query::{Boxed, Query, boxed, id, int, params, string},
    sighting::Sightings,
};
use crate::clock::{BootClock, Clock};

use super::{Changes, Finding, Profile, Recorded, Store, StoreError, remote::Thread};

/// The version of the tables and functions that this program speaks to.
pub const SCHEMA_VERSION: i32 = 1;

const NO_PAIRS: &str =
    "this store keeps no pairs: the database has tables of your own, see leasehold.protect";

/// Ends the sessions in whose transactions a lease that ended more than a ttl ago is still fenced (A19).
const EVICT: &str = "SELECT string_agg(n || ' of lease ' || name, ', ') FROM \
    (SELECT name, leasehold.evict(name) AS n FROM leasehold.lease WHERE expires_at < clock_timestamp()) ended \
    WHERE n > 0";

/// Leases in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    profile: Profile,
    links: Arc<Links>,
    sightings: Arc<Sightings>,
    /// Of the address, if it names one.
    port: Option<u16>,
    changes: watch::Sender<u64>,
    /// Started by the first who wants to hear of changes.
    listening: Once,
    thread: Thread,
}

impl PostgresStore {
    /// Connects once, to see that the address, the rights and the schema are right.
    pub async fn connect(url: &str) -> Result<Arc<Self>, StoreError> {
        let address = address::Address::parse(url)?;
        let sightings = Arc::new(Sightings::new(address.strict));
        let port = address.config.get_ports().first().copied();
        let links = Arc::new(Links::new(address));
        let thread = Thread::start("leasehold-postgres")?;
        let store = Arc::new(Self {
            profile: profile(),
            links,
            sightings,
            port,
            changes: watch::Sender::default(),
            listening: Once::new(),
            thread,
        });
        store
            .call(|links| async move { links.query("SELECT 1", &[]).await })
            .await?;
        Ok(store)
    }

    /// Runs `work` on the store's own thread. Its end is awaited, but not bound to this call.
    async fn call<T, F>(&self, work: impl FnOnce(Arc<Links>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.thread.run(work(self.links.clone())).await
    }

    async fn lease(&self, name: LeaseName, command: Command) -> Result<Outcome, StoreError> {
        let sightings = self.sightings.clone();
        let sent = self.call(|links| async move {
            // Commits that notify come one after the other; a busy process tells of many releases at once instead.
            let quiet = !links.is_busy();
            let seen = sightings.proof(&name);
            let query = Query::of(&name, &command, seen, sightings.strict, quiet);
            let rows = links.query(query.sql, &query.params()).await?;
            let row = rows.first().ok_or_else(|| fault::unknown("no answer"))?;
            sightings.note(&name, rows::seen(row)?);
            let answer = sightings.hint(&name, rows::answer(row)?);
            if !quiet && answer == Answer::Released {
                links.tell();
            }
            Ok(answer)
        });
        Ok(Outcome::Lease(sent.await?))
    }

    async fn ledger(&self, sql: &'static str, values: Vec<Boxed>) -> Result<Outcome, StoreError> {
        let sent = self.call(move |links| async move {
            let sql = format!("SELECT {} FROM {sql} v", rows::VERDICT);
            let rows = links.query(&sql, &params(&values)).await?;
            rows.first()
                .map_or_else(|| Err(fault::unknown("no answer")), rows::verdict)
        });
        Ok(Outcome::Ledger(sent.await?))
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        match op {
            Op::Lease { name, command } => self.lease(name, command).await,
            Op::Raise {
                resource,
                proof: Proof { lease, token },
            } => {
                let sent = self.call(move |links| async move {
                    let values =
                        [string(resource.as_str()), string(lease.as_str()), int(token.get())];
                    let sql = "SELECT kind, token AS refused, highest, lease FROM leasehold.try_raise($1, $2, $3) \
                               WHERE kind IS NOT NULL";
                    let rows = links.query(sql, &params(&values)).await?;
                    rows.first().map(rows::refusal).transpose()
                });
                Ok(sent.await?.map_or(Outcome::Done, Outcome::Refused))
            }
            Op::Begin(Begin {
                work,
                token,
                attempt,
                holder,
                fingerprint,
                unfinished,
                born,
            }) => {
                let take_over = unfinished == leasehold_core::Unfinished::TakeOver;
                let born = born.map(|born| (born.as_nanos() / 1000) as i64);
                let values = vec![
                    string(work.lease.as_str()),
                    string(work.key.as_str()),
                    int(token.get()),
                    id(attempt.bits()),
                    string(holder.as_str()),
                    boxed(fingerprint.0.to_vec(), Type::BYTEA),
                    boxed(take_over, Type::BOOL),
                    boxed(born, Type::INT8),
                ];
                let sql = "leasehold.begin_work($1, $2, $3, $4::uuid, $5, $6, $7, leasehold.from_micros($8))";
                self.ledger(sql, values).await
            }
            Op::Complete(asked) => {
                let response = Some(asked.response.as_bytes().to_vec());
                self.finish(asked.work, asked.token, asked.attempt.bits(), response)
                    .await
            }
            Op::Abandon(asked) => {
                self.finish(asked.work, asked.token, asked.attempt.bits(), None)
                    .await
            }
            Op::Bump { above } => {
                let sent = self.call(move |links| async move {
                    let sql = "SELECT why, newest, most, leasehold.micros(wall) AS wall, \
                               leasehold.micros(event) AS event FROM leasehold.try_bump($1)";
                    let rows = links.query(sql, &params(&[int(above.get())])).await?;
                    rows.first().map_or_else(
                        || Err(fault::unknown("no answer")),
                        |row| rows::bumped(row, above),
                    )
                });
                sent.await
            }
            Op::Put { .. } | Op::Delete { .. } => Err(StoreError::Invalid {
                what: NO_PAIRS.into(),
            }),
        }
    }

    async fn apply_all(&self, ops: Vec<Op>) -> Vec<Result<Outcome, StoreError>> {
        if ops.len() > 1 && ops.iter().all(is_renewal) {
            return self.renew_all(ops).await;
        }
        let calls: Vec<_> = ops.into_iter().map(|op| self.apply(op)).collect();
        let mut outcomes = Vec::with_capacity(calls.len());
        for call in calls {
            outcomes.push(call.await);
        }
        outcomes
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        let values = [string(name.as_str())];
        let rows = self
            .read("SELECT * FROM leasehold.status WHERE name = $1", values)
            .await?;
        rows.first().map(rows::status).transpose()
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let values = [string(prefix), int(limit as u64)];
        let sql =
            "SELECT * FROM leasehold.status WHERE starts_with(name, $1) ORDER BY name LIMIT $2";
        self.read(sql, values)
            .await?
            .iter()
            .map(rows::status)
            .collect()
    }

    async fn pair(&self, _key: &Key) -> Result<Option<Pair>, StoreError> {
        Err(StoreError::Invalid {
            what: NO_PAIRS.into(),
        })
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        let values = [string(resource.as_str())];
        let rows = self
            .read(
                "SELECT lease, token FROM leasehold.fence WHERE resource = $1",
                values,
            )
            .await?;
        rows.first().map(rows::fence).transpose()
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        let values = [string(work.lease.as_str()), string(work.key.as_str())];
        let sql = format!(
            "SELECT {} FROM leasehold.ledger WHERE scope = $1 AND key = $2",
            rows::ENTRY
        );
        let rows = self.read(&sql, values).await?;
        rows.first().map_or(Ok(None), rows::entry)
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let name = name.map(|name| name.as_str().to_owned());
        let values = [boxed(name, Type::TEXT), int(after), int(limit as u64)];
        let sql = "SELECT number, leasehold.micros(at) AS at, name, what::text AS what FROM leasehold.event \
                   WHERE ($1 IS NULL OR name = $1) AND number > $2 ORDER BY number LIMIT $3";
        self.read(sql, values)
            .await?
            .iter()
            .map(rows::recorded)
            .collect()
    }

    fn changes(&self) -> Changes {
        self.listening.call_once(|| {
            self.thread
                .spawn(link::listen(self.links.clone(), self.changes.clone()));
        });
        Changes::new(self.changes.subscribe())
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        let rows = self.read("SELECT leasehold.collect()", []).await?;
        rows.first()
            .map_or(Ok(0), |row| Ok(row.get::<_, i64>(0).unsigned_abs()))
    }

    async fn evict(&self) -> Result<Option<String>, StoreError> {
        let rows = self.read(EVICT, []).await?;
        let row = rows.first().ok_or_else(|| fault::unknown("no answer"))?;
        let ended: Option<&str> = rows::column(row, "string_agg")?;
        Ok(ended.map(|ended| format!("sessions with a frozen transaction: {ended}")))
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        let clock = BootClock::new();
        let asked = clock.wall();
        let rows = self.read(examine::LOOK, []).await?;
        let row = rows.first().ok_or_else(|| fault::unknown("no answer"))?;
        examine::examine(row, (asked, clock.wall()), self.port)
    }
}

impl PostgresStore {
    async fn read<const N: usize>(
        &self,
        sql: &str,
        values: [Boxed; N],
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        let sql = sql.to_owned();
        self.call(move |links| async move { links.query(&sql, &params(&values)).await })
            .await
    }

    async fn finish(
        &self,
        work: Work,
        token: Token,
        attempt: u128,
        response: Option<Vec<u8>>,
    ) -> Result<Outcome, StoreError> {
        let values = vec![
            string(work.lease.as_str()),
            string(work.key.as_str()),
            int(token.get()),
            id(attempt),
            boxed(response, Type::BYTEA),
        ];
        self.ledger("leasehold.finish($1, $2, $3, $4::uuid, $5)", values)
            .await
    }

    /// Many renewals in one statement, an answer each (W8).
    async fn renew_all(&self, ops: Vec<Op>) -> Vec<Result<Outcome, StoreError>> {
        let count = ops.len();
        let (sql, values) = query::renewals(&ops);
        match self.read(sql, values).await {
            Ok(rows) if rows.len() == count => rows
                .iter()
                .map(|row| rows::answer(row).map(Outcome::Lease))
                .collect(),
            Ok(_) => vec![Err(fault::unknown("not every renewal was answered")); count],
            Err(error) => vec![Err(error); count],
        }
    }
}

fn is_renewal(op: &Op) -> bool {
    matches!(
        op,
        Op::Lease {
            command: Command::Renew(_),
            ..
        }
    )
}

fn profile() -> Profile {
    Profile {
        scheme: "postgres",
        clock: "the database, by its clock_timestamp()",
        tokens: "counted per lease in its row; they jump after a failover",
        durability: "every answered grant survives a crash; a failover too, if replication is synchronous",
        min_ttl: Ttl::MIN,
        extension: Duration::ZERO,
        dense: true,
        fifo: false,
        lock_delay: true,
        pairs: false,
        fences: true,
        ledger: true,
        history: true,
    }
}
