//! `decide` and `Table::apply` on one core: every lease goes through acquire, a second acquire that finds it held, three
//! renewals and a release, in random order among the leases. Making the commands is not counted, dropping them is.

use std::{fmt, fs, hint::black_box, mem, time::Duration};

use anyhow::{Context, ensure};
use hashbrown::HashMap;
use leasehold_core::{
    Acquire, Command, Event, Holder, LeaseName, LockDelay, Op, Record, Release, Renew, RenewId,
    RequestId, Session, Stamp, StoreTime, Table, Token, Ttl, decide,
};

use crate::cpu;

/// PRODUCT 7: commands a second on one core.
const BAR: f64 = 10e6;
/// PRODUCT 7: bytes of memory a live lease, above its name.
const MOST_BYTES: u64 = 300;
/// So many commands are made and then carried out, again and again.
const BATCH: usize = 256;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many leases take turns.
    #[arg(long, default_value_t = 10_000)]
    leases: usize,
    /// How many commands are measured.
    #[arg(long, default_value_t = 20_000_000)]
    commands: usize,
    /// How many live leases are weighed.
    #[arg(long, default_value_t = 100_000)]
    live: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        args.leases.min(args.live).min(args.commands) > 0,
        "nothing to measure: a number is 0"
    );
    let weighed = weigh(args.live)?;
    println!("a record takes {} bytes", size_of::<Record>());
    println!(
        "{weighed} bytes a live lease above its name, of {}; at most {MOST_BYTES}",
        args.live
    );
    let decided = Rate::of(measure_decide(args));
    println!("decide: {decided}");
    let bare = Rate::of(measure_bare(args));
    println!("bare hash map look-up: {bare}");
    let applied = Rate::of(measure_apply(args));
    println!("apply:  {applied}");
    ensure!(
        weighed <= MOST_BYTES && decided.median.min(applied.median) >= BAR / 1e6,
        "a bar is missed"
    );
    Ok(())
}

/// Millions of commands a second, from the time that each batch took: the median, so that a batch in which another
/// process had the cache does not count, and the best tenth.
struct Rate {
    median: f64,
    best: f64,
}

impl Rate {
    fn of(mut batches: Vec<Duration>) -> Self {
        batches.sort_unstable();
        let rate = |took: Duration| BATCH as f64 / took.as_secs_f64().max(1e-9) / 1e6;
        Self {
            median: rate(batches[batches.len() / 2]),
            best: rate(batches[batches.len() / 10]),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} million commands a second, {:.1} in the best tenth; at least {:.0}",
            self.median,
            self.best,
            BAR / 1e6
        )
    }
}

fn measure_decide(args: &Args) -> Vec<Duration> {
    let mut traffic = Traffic::new(args.leases);
    let mut records = vec![Record::new(None); args.leases];
    let mut batches = Vec::new();
    for _ in 0..args.commands.div_ceil(BATCH) {
        let now = traffic.now();
        let batch: Vec<(usize, Command)> = (0..BATCH).map(|_| traffic.next()).collect();
        let (_, took) = cpu::time(|| {
            for (lease, command) in batch {
                let record = mem::replace(&mut records[lease], Record::new(None));
                let (record, answer) = decide(record, command, now);
                records[lease] = record;
                black_box(answer);
            }
        });
        batches.push(took);
    }
    batches
}

fn measure_apply(args: &Args) -> Vec<Duration> {
    let mut traffic = Traffic::new(args.leases);
    let names = names(args.leases);
    let mut table = Table::new();
    let mut events: Vec<Event> = Vec::new();
    let mut batches = Vec::new();
    for _ in 0..args.commands.div_ceil(BATCH) {
        let stamp = Stamp {
            now: traffic.now(),
            ..Stamp::default()
        };
        let batch: Vec<Op> = (0..BATCH)
            .map(|_| traffic.next())
            .map(|(lease, command)| Op::Lease {
                name: names[lease].clone(),
                command,
            })
            .collect();
        let (_, took) = cpu::time(|| {
            for op in batch {
                black_box(table.apply(op, stamp, &mut events));
            }
            events.clear();
        });
        batches.push(took);
    }
    batches
}

/// What no table in memory can beat: find a record by name in a hash map and touch it, in the same order.
fn measure_bare(args: &Args) -> Vec<Duration> {
    let mut traffic = Traffic::new(args.leases);
    let names = names(args.leases);
    let mut records: HashMap<LeaseName, Record> = names
        .iter()
        .map(|name| (name.clone(), Record::new(None)))
        .collect();
    let mut batches = Vec::new();
    for _ in 0..args.commands.div_ceil(BATCH) {
        let now = traffic.now();
        let batch: Vec<LeaseName> = (0..BATCH)
            .map(|_| names[traffic.next().0].clone())
            .collect();
        let (_, took) = cpu::time(|| {
            for name in batch {
                if let Some(record) = records.get_mut(&name) {
                    record.expires = record.expires.max(now);
                    black_box(record);
                }
            }
        });
        batches.push(took);
    }
    batches
}

/// The memory that `live` leases take, the texts of their names not counted, in bytes a lease.
fn weigh(live: usize) -> anyhow::Result<u64> {
    let mut table = Table::new();
    let mut events = Vec::new();
    let names = names(live);
    let before = memory()?;
    for (number, name) in names.iter().enumerate() {
        let name = name.clone();
        let holder = Holder::new(&format!("host-{number:06}.example.org"))?;
        let command = acquire(number as u128 + 1, 1, &holder);
        table.apply(Op::Lease { name, command }, Stamp::default(), &mut events);
        events.clear();
    }
    let after = memory()?;
    ensure!(table.len() == live, "not every lease was granted");
    Ok(after.saturating_sub(before) / live as u64)
}

/// Memory of this process in bytes.
fn memory() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"));
    let kilobytes = line
        .context("no line `Anonymous:`")?
        .trim()
        .trim_end_matches(" kB");
    Ok(kilobytes.parse::<u64>()? * 1024)
}

fn names(count: usize) -> Vec<LeaseName> {
    (0..count)
        .map(|number| LeaseName::new(&format!("team-{}/job-{number:06}", number % 97)))
        .collect::<Result<_, _>>()
        .expect("the names are short and plain")
}

fn acquire(session: u128, request: u128, holder: &Holder) -> Command {
    Command::Acquire(Acquire {
        session: Session::from_bits(session).expect("not zero"),
        request_id: RequestId::from_bits(request).expect("not zero"),
        holder: holder.clone(),
        info: None,
        ttl: Ttl::DEFAULT,
        lock_delay: LockDelay::NONE,
    })
}

/// Commands that are all answered as a busy store would answer them.
struct Traffic {
    /// How many commands each lease has had.
    leases: Vec<u32>,
    holder: Holder,
    random: u64,
    made: u64,
}

impl Traffic {
    const STEPS: u32 = 6;

    fn new(leases: usize) -> Self {
        Self {
            leases: vec![0; leases],
            holder: Holder::new("host-1").expect("it is short and plain"),
            random: 0x9e37_79b9_7f4a_7c15,
            made: 0,
        }
    }

    /// A nanosecond a command: no lease runs out before it is renewed or released.
    fn now(&self) -> StoreTime {
        StoreTime::from_nanos(self.made)
    }

    fn next(&mut self) -> (usize, Command) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let lease = (self.random % self.leases.len() as u64) as usize;
        self.made += 1;
        let had = self.leases[lease];
        self.leases[lease] += 1;
        let (tenure, step) = (u64::from(had / Self::STEPS) + 1, had % Self::STEPS);
        let me = (u128::from(self.random) << 64) | u128::from(lease as u64 + 1);
        let session = Session::from_bits(lease as u128 + 1).expect("not zero");
        let token = Token::new(tenure).expect("small");
        let command = match step {
            0 => acquire(
                lease as u128 + 1,
                u128::from(tenure) << 64 | 1,
                &self.holder,
            ),
            1 => acquire(me | 1 << 127, 1, &self.holder),
            5 => Command::Release(Release::Tenure { token, session }),
            number => Command::Renew(Renew {
                token,
                session,
                ttl: Ttl::DEFAULT,
                number: u64::from(number) - 1,
                renew_id: RenewId::from_bits(me).expect("not zero"),
            }),
        };
        (lease, command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{Answer, Outcome};

    /// Commands that are refused at once would make the rules look fast.
    #[test]
    fn the_traffic_is_answered_as_a_busy_store_would() {
        let mut traffic = Traffic::new(10);
        let names = names(10);
        let (mut table, mut events) = (Table::new(), Vec::new());
        let mut counts = [0_u32; 4];
        for _ in 0..6_000 {
            let (lease, command) = traffic.next();
            let name = names[lease].clone();
            let stamp = Stamp {
                now: traffic.now(),
                ..Stamp::default()
            };
            let kind = match table.apply(Op::Lease { name, command }, stamp, &mut events) {
                Outcome::Lease(Answer::Granted(_)) => 0,
                Outcome::Lease(Answer::Held(_)) => 1,
                Outcome::Lease(Answer::Renewed { .. }) => 2,
                Outcome::Lease(Answer::Released) => 3,
                other => panic!("not what the traffic is for: {other:?}"),
            };
            counts[kind] += 1;
        }
        assert!(counts.into_iter().all(|count| count > 950), "{counts:?}");
    }
}
