//! The SQLite store beside what its disk can do: a bare loop of one-row commits, and a bare loop of synced writes.
//!
//! A virtual disk's speed changes tenfold from minute to minute, so all are measured in turns of a fraction of a second,
//! and only their ratios are judged.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use leasehold::{
    BootTime, Holder, LeaseName, LockDelay, RenewId, RequestId, Session, Store, Token, Ttl,
    clock::{BootClock, Clock},
    core::{Acquire, Answer, Command, Op, Outcome, Release, Renew},
    store::sqlite::SqliteStore,
};
use rusqlite::Connection;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// PRODUCT 7: one client, as a part of a bare one-row commit loop.
const ONE_CLIENT: f64 = 0.8;
/// PRODUCT 7: 64 tasks of one process, as a multiple of one.
const GROUP: f64 = 5.0;
const TASKS: u64 = 64;
const TURN: Duration = Duration::from_millis(400);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the files are made: a folder on the disk to be measured
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// How many turns of 0.4 s each measurement gets
    #[arg(long, value_name = "N", default_value_t = 8)]
    turns: u32,
}

/// How often something was done, and in what time.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    done: u64,
    took: Duration,
}

impl Rate {
    pub(crate) fn add(&mut self, done: u64, took: Duration) {
        self.done += done;
        self.took += took;
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.done as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(&args.folder)
        .with_context(|| format!("no folder can be made in {}", args.folder.display()))?;
    let runtime = Runtime::new()?;
    // A keeper renews from a thread of its own.
    let alone = Builder::new_current_thread().build()?;
    let clock = BootClock::new();
    let synced = SyncedWrites::new(folder.path())?;
    let bare = Bare::new(folder.path())?;
    let store = runtime.block_on(SqliteStore::open(folder.path().join("leases.db")))?;
    let mut holders: Vec<Holding> = (0..TASKS)
        .map(|number| runtime.block_on(Holding::new(store.clone(), number)))
        .collect::<anyhow::Result<_>>()?;

    let [mut sync, mut commits, mut one, mut many, mut cycles] = [(); 5].map(|()| Rate::default());
    for _ in 0..args.turns {
        let until = || clock.now().plus(TURN);
        turn(&clock, &mut sync, || synced.run(&clock, until()))?;
        turn(&clock, &mut commits, || bare.run(&clock, until()))?;
        turn(&clock, &mut one, || {
            alone.block_on(holders[0].renew(&clock, until()))
        })?;
        turn(&clock, &mut many, || {
            runtime.block_on(together(&mut holders, &clock, until()))
        })?;
        turn(&clock, &mut cycles, || {
            alone.block_on(take_and_give(&*store, &clock, until()))
        })?;
    }

    println!(
        "{:>9.0}/s  pwrite + fdatasync of one block: what the disk can do",
        sync.per_second()
    );
    println!(
        "{:>9.0}/s  bare one-row commits, WAL, synchronous=FULL",
        commits.per_second()
    );
    println!("{:>9.0}/s  renewals, one client", one.per_second());
    println!(
        "{:>9.0}/s  acquire + release, one client",
        cycles.per_second()
    );
    println!(
        "{:>9.0}/s  renewals, {TASKS} tasks of one process",
        many.per_second()
    );
    let client = judge(
        "one client / bare commits",
        one.per_second() / commits.per_second(),
        ONE_CLIENT,
    );
    let group = judge(
        "64 tasks / one client",
        many.per_second() / one.per_second(),
        GROUP,
    );
    ensure!(client && group, "a bar is missed");
    Ok(())
}

pub(crate) fn judge(what: &str, ratio: f64, bar: f64) -> bool {
    let met = ratio >= bar;
    println!(
        "{ratio:>9.2}    {what}, bar {bar}: {}",
        if met { "met" } else { "MISSED" }
    );
    met
}

pub(crate) fn turn(
    clock: &BootClock,
    rate: &mut Rate,
    run: impl FnOnce() -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    let began = clock.now();
    let done = run()?;
    rate.add(done, clock.now().since(began));
    Ok(())
}

/// The disk alone.
pub(crate) struct SyncedWrites(File);

impl SyncedWrites {
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let file = File::create(folder.join("synced"))?;
        file.write_all_at(&[0; 4096], 0)?;
        file.sync_all()?;
        Ok(Self(file))
    }

    pub(crate) fn run(&self, clock: &BootClock, until: BootTime) -> anyhow::Result<u64> {
        let mut done: u64 = 0;
        while clock.now() < until {
            self.0.write_all_at(&[done as u8; 4096], 0)?;
            self.0.sync_data()?;
            done += 1;
        }
        Ok(done)
    }
}

/// SQLite alone, with the settings of the store.
struct Bare(Connection);

impl Bare {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let db = Connection::open(folder.join("bare.db"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch("CREATE TABLE row(n INTEGER); INSERT INTO row VALUES (0)")?;
        Ok(Self(db))
    }

    fn run(&self, clock: &BootClock, until: BootTime) -> anyhow::Result<u64> {
        let mut update = self.0.prepare("UPDATE row SET n = n + 1")?;
        let mut done = 0;
        while clock.now() < until {
            self.0.execute_batch("BEGIN IMMEDIATE")?;
            update.execute([])?;
            self.0.execute_batch("COMMIT")?;
            done += 1;
        }
        Ok(done)
    }
}

/// A lease that is renewed as fast as it goes.
struct Holding {
    store: Arc<SqliteStore>,
    name: LeaseName,
    session: Session,
    token: Token,
    renewals: u64,
}

impl Holding {
    async fn new(store: Arc<SqliteStore>, number: u64) -> anyhow::Result<Self> {
        let name = LeaseName::new(&format!("lease-{number}"))?;
        let (session, request_id) = ids(number + 1)?;
        let token = grant(&*store, &name, session, request_id).await?;
        Ok(Self {
            store,
            name,
            session,
            token,
            renewals: 0,
        })
    }

    async fn renew(&mut self, clock: &BootClock, until: BootTime) -> anyhow::Result<u64> {
        let before = self.renewals;
        while clock.now() < until {
            self.renewals += 1;
            let command = Command::Renew(Renew {
                token: self.token,
                session: self.session,
                ttl: Ttl::DEFAULT,
                number: self.renewals,
                renew_id: RenewId::from_bits(u128::from(self.renewals)).context("never zero")?,
            });
            match self
                .store
                .apply(Op::Lease {
                    name: self.name.clone(),
                    command,
                })
                .await?
            {
                Outcome::Lease(Answer::Renewed { .. }) => {}
                other => bail!("a renewal was answered {other:?}"),
            }
        }
        Ok(self.renewals - before)
    }
}

async fn together(
    holders: &mut Vec<Holding>,
    clock: &Arc<BootClock>,
    until: BootTime,
) -> anyhow::Result<u64> {
    let mut tasks = JoinSet::new();
    for mut holding in holders.drain(..) {
        let clock = clock.clone();
        tasks.spawn(async move {
            let done = holding.renew(&clock, until).await;
            (holding, done)
        });
    }
    let mut total = 0;
    while let Some(ended) = tasks.join_next().await {
        let (holding, done) = ended?;
        holders.push(holding);
        total += done?;
    }
    Ok(total)
}

async fn take_and_give(
    store: &dyn Store,
    clock: &BootClock,
    until: BootTime,
) -> anyhow::Result<u64> {
    let name = LeaseName::new("taken and given")?;
    let mut done = 0;
    while clock.now() < until {
        let (session, request_id) = ids(clock.now().as_nanos())?;
        let token = grant(store, &name, session, request_id).await?;
        let release = Command::Release(Release::Tenure { token, session });
        store
            .apply(Op::Lease {
                name: name.clone(),
                command: release,
            })
            .await?;
        done += 1;
    }
    Ok(done)
}

async fn grant(
    store: &dyn Store,
    name: &LeaseName,
    session: Session,
    request_id: RequestId,
) -> anyhow::Result<Token> {
    let command = Command::Acquire(Acquire {
        session,
        request_id,
        holder: Holder::new("bench")?,
        info: None,
        ttl: Ttl::MAX,
        lock_delay: LockDelay::NONE,
    });
    match store
        .apply(Op::Lease {
            name: name.clone(),
            command,
        })
        .await?
    {
        Outcome::Lease(Answer::Granted(grant)) => Ok(grant.token),
        other => bail!("an acquire was answered {other:?}"),
    }
}

fn ids(number: u64) -> anyhow::Result<(Session, RequestId)> {
    let session = Session::from_bits(number.into()).context("never zero")?;
    let request = RequestId::from_bits(number.into()).context("never zero")?;
    Ok((session, request))
}
