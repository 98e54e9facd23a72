//! Ledger and fences against the core's rules: whatever is asked in whatever order, the database answers, keeps and
//! tells what the core's own table does.

use std::time::Duration;

use leasehold::{
    AttemptId, Fingerprint, LeaseName, Proof, Refusal, Resource, Token, Value, WallTime, WorkKey,
    core::{
        Abandon, Answer, Begin, Command, Complete, Entry, Event, Fence, Op, Outcome, Stamp,
        StoreTime, Table, Unfinished, Verdict, Work,
    },
};
use proptest::prelude::*;

use crate::{
    ask::{self, Shared},
    server::Server,
    session::Session,
};

/// Far longer than a history takes to play, so that a lease is over only when a step says so.
const TTL: u64 = 3_600_000;

/// One thing that is asked, in numbers that are read against what is there.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    lease: u8,
    who: u8,
    key: u8,
    /// What is added to the lease's token.
    off: i64,
    attempt: u8,
    print: u8,
    take_over: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        (0..20u8, 0..2u8, 0..2u8, 0..2u8),
        prop::sample::select(vec![0, 0, 0, 0, 0, 1, -1, -2]),
        (0..2u8, prop::sample::select(vec![0, 0, 0, 1])),
        any::<bool>(),
    );
    let step = step.prop_map(
        |((kind, lease, who, key), off, (attempt, print), take_over)| Step {
            kind,
            lease,
            who,
            key,
            off,
            attempt,
            print,
            take_over,
        },
    );
    prop::collection::vec(step, 40..80)
}

/// The core's table and the database, side by side.
struct Pair<'a> {
    table: Table,
    now: StoreTime,
    store: &'a Shared,
    session: &'a Session,
    /// Up to here the database's history was compared.
    read: u64,
}

impl Pair<'_> {
    fn token(&self, step: Step) -> Token {
        let known = self.table.record(&lease(step)).and_then(|kept| kept.token);
        let known = known.map_or(0, Token::get) as i64;
        Token::new((known + step.off).max(1) as u64).unwrap()
    }

    fn work(&self, step: Step) -> Work {
        let (lease, key) = (lease(step), format!("key-{}", step.key));
        let key = WorkKey::new(&key).unwrap();
        Work { lease, key }
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            now: self.now,
            wall: WallTime::from_nanos(self.now.as_nanos()),
        }
    }

    /// What a step asks of both, if it is not for the SQL functions only.
    fn op(&self, step: Step) -> Op {
        let (name, token) = (lease(step), self.token(step));
        let who = u128::from(step.who) + 1;
        let work = self.work(step);
        let attempt = AttemptId::from_bits(u128::from(step.attempt) + 1).unwrap();
        match step.kind {
            // Every wish is a new one: else a name soon has no request left that was not used.
            0..=3 => ask::acquire(name.as_str(), who + 100 * u128::from(token.get()), TTL),
            4 => {
                let session = self
                    .table
                    .record(&name)
                    .and_then(|kept| kept.tenure.clone());
                let key = session.map_or(who, |tenure| tenure.session.bits());
                ask::release(name.as_str(), key, token.get())
            }
            5 => ask::of(
                name.as_str(),
                Command::ForceRelease {
                    now: step.take_over,
                },
            ),
            6..=8 => Op::Raise {
                resource: Resource::new(&format!("resource-{}", step.key)).unwrap(),
                proof: Proof { lease: name, token },
            },
            9..=13 => Op::Begin(Begin {
                work,
                token,
                attempt,
                holder: leasehold::Holder::new(&format!("holder-{}", step.who)).unwrap(),
                fingerprint: Fingerprint([step.print; 32]),
                unfinished: match step.take_over {
                    true => Unfinished::TakeOver,
                    false => Unfinished::Leave,
                },
                born: None,
            }),
            14 | 15 => Op::Complete(Complete {
                work,
                token,
                attempt,
                response: Value::new(&[step.who]).unwrap(),
            }),
            _ => Op::Abandon(Abandon {
                work,
                token,
                attempt,
            }),
        }
    }

    /// Two hours: every lease is over.
    async fn pass(&mut self) {
        self.now = StoreTime::from_nanos(self.now.as_nanos() + 2 * TTL * 1_000_000);
        self.session
            .must("UPDATE leasehold.lease SET expires_at = expires_at - interval '2 hours' WHERE expires_at > 'epoch'")
            .await;
    }

    async fn play(&mut self, step: Step) -> Result<(), String> {
        match step.kind {
            18 if step.off == 0 => {
                self.pass().await;
                return Ok(());
            }
            18.. => return self.once(step).await,
            _ => {}
        }
        let op = self.op(step);
        let mut events = Vec::new();
        let stamp = self.stamp();
        let ruled = self.table.apply(op.clone(), stamp, &mut events);
        let said = self.store.apply(op.clone()).await;
        let said = said.map_err(|error| format!("{op:?}: {error}"))?;
        same(&op, &plain(said), &plain(ruled))?;
        self.kept(step).await?;
        self.told(&op, &events).await
    }

    /// What is kept under the step's key and resource.
    async fn kept(&self, step: Step) -> Result<(), String> {
        let work = self.work(step);
        let entry = self.store.entry(&work).await.map_err(|e| e.to_string())?;
        let ruled = self.table.entry(&work).cloned();
        same(&work, &entry.map(timeless), &ruled.map(timeless))?;
        let resource = Resource::new(&format!("resource-{}", step.key)).unwrap();
        let fence = self.store.fence(&resource).await;
        let fence = fence.map_err(|error| error.to_string())?;
        same(&resource, &fence.as_ref(), &self.table.fence(&resource))
    }

    /// The events of one step.
    async fn told(&mut self, op: &Op, events: &[Event]) -> Result<(), String> {
        let history = self.store.history(None, self.read, 100).await;
        let history = history.map_err(|error| error.to_string())?;
        self.read = history.last().map_or(self.read, |event| event.number);
        let told: Vec<_> = history
            .into_iter()
            .map(|recorded| (recorded.event.lease, recorded.event.what))
            .collect();
        let ruled: Vec<_> = events
            .iter()
            .map(|event| (event.lease.clone(), event.what.clone()))
            .collect();
        same(op, &told, &ruled)
    }

    /// `leasehold.once` in a fenced transaction is begin and complete in one (I4, I5); in one that is not, it does nothing.
    async fn once(&mut self, step: Step) -> Result<(), String> {
        let (name, token) = (lease(step), self.token(step));
        let record = self.table.record(&name);
        let issued = leasehold::core::issued(record, token, self.now);
        let work = self.work(step);
        let begin = Op::Begin(Begin {
            work: work.clone(),
            token,
            attempt: AttemptId::from_bits(99).unwrap(),
            holder: leasehold::Holder::new("holder").unwrap(),
            fingerprint: Fingerprint([step.print; 32]),
            unfinished: Unfinished::Leave,
            born: None,
        });
        let stamp = self.stamp();
        let mut after = self.table.clone();
        let fenced = step.attempt == 0;
        let new = self.table.entry(&work).is_none();
        let expected = match (issued, after.apply(begin.clone(), stamp, &mut Vec::new())) {
            (Err(_), _) if fenced => "LH001",
            _ if new && !fenced => "LH001",
            (_, Outcome::Ledger(Verdict::Begun)) => "t",
            (_, Outcome::Ledger(Verdict::AlreadyDone(_))) => "f",
            (_, Outcome::Ledger(Verdict::Mismatch)) => "LH003",
            (_, Outcome::Ledger(_)) => "LH004",
            (_, other) => panic!("{other:?}"),
        };
        self.session.must("BEGIN").await;
        let fence = format!("SELECT leasehold.fence('{name}', {token})");
        let once = format!(
            "SELECT leasehold.once('{name}', 'key-{}', decode(repeat('{:02x}', 32), 'hex'))",
            step.key, step.print
        );
        let said = match fenced {
            true => self.session.run(&fence).await,
            false => Ok(String::new()),
        };
        let said = match said {
            Ok(_) => self.session.run(&once).await,
            refused => refused,
        };
        self.session.must("COMMIT").await;
        let said = said.unwrap_or_else(|error| error);
        same(&begin, &said.split(' ').next(), &Some(expected))?;
        if expected == "t" {
            self.completed(&begin, after).await?;
        }
        self.kept(step).await
    }

    /// The core's table gets the entry that the database made; its attempt is a random one.
    async fn completed(&mut self, begin: &Op, mut after: Table) -> Result<(), String> {
        let Op::Begin(begin) = begin else {
            return Ok(());
        };
        let stamp = self.stamp();
        let kept = self.store.entry(&begin.work).await;
        let kept = kept.map_err(|error| error.to_string())?;
        let attempt = kept.ok_or("once kept nothing")?.attempt;
        let abandon = Op::Abandon(Abandon {
            work: begin.work.clone(),
            token: begin.token,
            attempt: begin.attempt,
        });
        let holder = self.table.record(&begin.work.lease).and_then(|kept| {
            let tenure = kept.tenure.as_ref()?;
            Some(tenure.holder.clone())
        });
        let begun = Op::Begin(Begin {
            attempt,
            holder: holder.ok_or("nobody holds it")?,
            ..begin.clone()
        });
        let complete = Op::Complete(Complete {
            work: begin.work.clone(),
            token: begin.token,
            attempt,
            response: Value::new(&[]).unwrap(),
        });
        for op in [abandon, begun, complete] {
            after.apply(op, stamp, &mut Vec::new());
        }
        self.table = after;
        Ok(())
    }
}

fn lease(step: Step) -> LeaseName {
    ask::name(&format!("lease-{}", step.lease))
}

fn timeless(mut entry: Entry) -> Entry {
    entry.begun = WallTime::ZERO;
    if let Some(done) = &mut entry.done {
        done.at = WallTime::ZERO;
    }
    entry
}

/// Without what depends on the moment.
fn plain(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Lease(Answer::Held(mut held)) => {
            held.hint = Duration::ZERO;
            Outcome::Lease(Answer::Held(held))
        }
        Outcome::Lease(Answer::Quarantined { .. }) => Outcome::Lease(Answer::Quarantined {
            hint: Duration::ZERO,
        }),
        Outcome::Ledger(Verdict::AlreadyDone(entry)) => {
            Outcome::Ledger(Verdict::AlreadyDone(timeless(entry)))
        }
        Outcome::Ledger(Verdict::LeftUnfinished(entry)) => {
            Outcome::Ledger(Verdict::LeftUnfinished(timeless(entry)))
        }
        other => other,
    }
}

fn same<T: std::fmt::Debug + PartialEq>(
    asked: &dyn std::fmt::Debug,
    said: &T,
    ruled: &T,
) -> Result<(), String> {
    match said == ruled {
        true => Ok(()),
        false => Err(format!(
            "{asked:?}\nthe database: {said:#?}\nthe rules: {ruled:#?}"
        )),
    }
}

const EMPTY: &str = "SET session_replication_role = replica; TRUNCATE leasehold.lease, leasehold.ledger, leasehold.fence; \
     RESET session_replication_role";

/// I3 to I7, F6, T10: begin, complete, abandon, once and raise, under leases that come and go.
#[test]
fn ledger_and_fences_keep_the_rules_on_random_histories() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let Some(server) = runtime.block_on(Server::ready_with("fsync = off")) else {
        return;
    };
    let session = runtime.block_on(Session::open(&server));
    let store = runtime.block_on(server.store());
    let told = std::env::var("PROPTEST_CASES").ok();
    let config = ProptestConfig {
        cases: told.and_then(|text| text.parse().ok()).unwrap_or(24),
        failure_persistence: None,
        max_shrink_iters: 60,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps())| {
        let played = runtime.block_on(async {
            session.must(EMPTY).await;
            let read = session.must("SELECT coalesce(max(number), 0) FROM leasehold.event").await;
            let mut pair = Pair {
                table: Table::new(),
                now: StoreTime::from_nanos(1_000_000_000),
                store: &store,
                session: &session,
                read: read.parse().unwrap(),
            };
            for step in steps {
                pair.play(step).await?;
            }
            Ok::<(), String>(())
        });
        prop_assert!(played.is_ok(), "{}", played.unwrap_err());
    });
}

/// What a refusal says, in the words of the SQL.
fn words(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Stale { .. } => "is older than",
        Refusal::NotRaised { .. } => "is newer than the fence",
        Refusal::TooFar { .. } => "is too far above the fence",
        Refusal::OtherLease { .. } => "belongs to the lease",
        other => panic!("{other:?}"),
    }
}

/// F6, F18, T10: raise and check, for leases that live in another store, against the core's fence.
#[tokio::test]
async fn fences_of_leases_elsewhere_keep_the_rules() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    let mut fence: Option<Fence> = None;
    let far = 1 + Fence::MAX_JUMP;
    let tokens = [1, 2, 3, far, far + 2, far + 3, i64::MAX as u64];
    let mut seen = std::collections::BTreeSet::new();
    let mut dice = 1u64;
    for number in 0..400usize {
        dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let pick = (dice >> 33) as usize;
        let lease = ask::name(["there", "there", "there", "elsewhere"][pick % 4]);
        // From the small ones to the large ones, and back by one or two.
        let place = (number / 60 + pick / 4 % 3).min(tokens.len() - 1);
        let token = Token::new(tokens[place]).unwrap();
        let raises = number > 4 && (pick / 12).is_multiple_of(3);
        let ruled = match (&mut fence, raises) {
            (None, true) => {
                let (lease, highest) = (lease.clone(), token);
                fence = Some(Fence { lease, highest });
                Ok(())
            }
            (None, false) => Err("no fence was raised"),
            (Some(fence), true) => fence.raise(&lease, token).map_err(|no| words(&no)),
            (Some(fence), false) => fence.check(&lease, token).map_err(|no| words(&no)),
        };
        let sql = format!("('resource', '{lease}', {token})");
        let said = match raises {
            true => session.run(&format!("SELECT leasehold.raise{sql}")).await,
            false => {
                session.must("BEGIN").await;
                let said = session.run(&format!("SELECT leasehold.check{sql}")).await;
                session.must("COMMIT").await;
                said
            }
        };
        seen.insert((raises, ruled.err()));
        match (ruled, &said) {
            (Ok(()), Ok(_)) => {}
            (Err(text), Err(error)) => {
                assert!(
                    error.starts_with("LH001") && error.contains(text),
                    "{error}"
                );
            }
            other => panic!("step {number}: {sql}: {other:?}"),
        }
        let kept = session
            .must("SELECT lease, token FROM leasehold.fence")
            .await;
        let ruled = fence.as_ref().map_or(String::new(), |fence| {
            format!("{} {}", fence.lease, fence.highest)
        });
        assert_eq!(kept, ruled, "step {number}");
    }
    assert!(seen.len() >= 8, "not every answer came up: {seen:?}");
}
