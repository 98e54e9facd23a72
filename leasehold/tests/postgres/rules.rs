//! The SQL against the core's rules: after every random command the row in the database is what `decide` makes of it.

use std::time::Duration;

use leasehold::{
    Holder, Info, LeaseName, RenewId, RequestId, Session as Key, Store, Token, Ttl,
    core::{
        Acquire, Answer, Command, LockDelay, Op, Outcome, Record, Release, Renew, StoreTime,
        Tenure, decide,
    },
};
use proptest::prelude::*;

use crate::{server::Server, session::Session};

const LEASE: &str = "job";

/// One thing that is asked, in numbers that are read against what is there.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    who: u8,
    request: u8,
    /// What is added to the right token.
    off: i64,
    number: u64,
    id: u8,
    ttl: u64,
    delay: u64,
    /// How long before it, in milliseconds.
    pass: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        (
            0..14u8,
            0..3u8,
            0..2u8,
            prop::sample::select(vec![0, 0, 0, 0, 1, -1]),
        ),
        (prop::sample::select(vec![1, 1, 1, 0, 2]), 0..2u8),
        prop::sample::select(vec![1000, 5000, 60_000]),
        prop::sample::select(vec![0, 0, 3000]),
        prop::sample::select(vec![0, 0, 0, 600, 2500, 5500, 90_000]),
    );
    let step = step.prop_map(
        |((kind, who, request, off), (number, id), ttl, delay, pass)| Step {
            kind,
            who,
            request,
            off,
            number,
            id,
            ttl,
            delay,
            pass,
        },
    );
    prop::collection::vec(step, 40..80)
}

fn command(step: Step, record: &Record) -> Command {
    let bits = u128::from(step.who) + 1;
    let session = Key::from_bits(bits).unwrap();
    let request_id = RequestId::from_bits(bits * 10 + u128::from(step.request)).unwrap();
    let known = record.token.map_or(0, Token::get) as i64;
    let token = Token::new((known + step.off).max(1) as u64).unwrap();
    let renewals = record.tenure.as_ref().map_or(0, |tenure| tenure.renewals);
    let ttl = Ttl::from_millis(step.ttl).unwrap();
    match step.kind {
        0..=4 => Command::Acquire(Acquire {
            session,
            request_id,
            holder: Holder::new(&format!("holder-{}", step.who)).unwrap(),
            info: (step.id == 1).then(|| Info::new("here").unwrap()),
            ttl,
            lock_delay: LockDelay::new(Duration::from_millis(step.delay)).unwrap(),
        }),
        5..=8 => Command::Renew(Renew {
            token,
            session,
            ttl,
            number: renewals + step.number,
            renew_id: RenewId::from_bits(u128::from(step.id) + 1).unwrap(),
        }),
        9 | 10 => Command::Release(Release::Tenure { token, session }),
        11 => Command::Release(Release::Request {
            session,
            request_id,
        }),
        12 => Command::ForceRelease { now: step.id == 1 },
        _ => Command::Quarantine { above: token },
    }
}

/// What the database keeps, in the core's words.
async fn record(session: &Session) -> Record {
    let row = session
        .must(&format!(
            "SELECT token, leasehold.micros(expires_at), ttl_ms, lock_delay_ms, session, request_id, holder, info, \
             leasehold.micros(granted_at), released, renewals, renew_id FROM leasehold.lease WHERE name = '{LEASE}'"
        ))
        .await;
    let fields: Vec<&str> = row.split(' ').collect();
    let [
        token,
        expires,
        ttl,
        delay,
        key,
        request,
        holder,
        info,
        granted,
        released,
        renewals,
        renew,
    ] = fields[..]
    else {
        return Record::new(None);
    };
    let time = |micros: &str| StoreTime::from_nanos(micros.parse::<u64>().unwrap() * 1000);
    let bits = |text: &str| u128::from_str_radix(&text.replace('-', ""), 16).unwrap();
    Record {
        token: Token::new(token.parse().unwrap()).ok(),
        expires: time(expires),
        ttl: Ttl::from_millis(ttl.parse().unwrap()).unwrap(),
        lock_delay: LockDelay::new(Duration::from_millis(delay.parse().unwrap())).unwrap(),
        tenure: (key != "-").then(|| Tenure {
            session: Key::from_bits(bits(key)).unwrap(),
            request_id: RequestId::from_bits(bits(request)).unwrap(),
            holder: Holder::new(holder).unwrap(),
            info: (info != "-").then(|| Info::new(info).unwrap()),
            granted: time(granted),
            released: released == "t",
            renewals: renewals.parse().unwrap(),
            renew_id: (renew != "-").then(|| RenewId::from_bits(bits(renew)).unwrap()),
        }),
    }
}

async fn now(session: &Session) -> StoreTime {
    let micros = session
        .must("SELECT leasehold.micros(clock_timestamp())")
        .await;
    StoreTime::from_nanos(micros.parse::<u64>().unwrap() * 1000)
}

/// Answers without the hints, which differ by the time of evaluation.
fn plain(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    match &mut answer {
        Answer::Held(held) => held.hint = Duration::ZERO,
        Answer::Delayed { hint } | Answer::Quarantined { hint } => *hint = Duration::ZERO,
        _ => {}
    }
    answer
}

/// The database evaluated at some time between `from` and `to`: its answer and its row must be the rules' at one of them.
fn agree(
    before: &Record,
    command: &Command,
    (from, to): (StoreTime, StoreTime),
    answer: &Answer,
    after: &Record,
) -> Result<(), String> {
    let mut said = Vec::new();
    for at in [from, to] {
        let (expected, ruled) = decide(before.clone(), command.clone(), at);
        let fields = |record: &Record| {
            let tenure = record.tenure.clone().map(|tenure| Tenure {
                granted: StoreTime::ZERO,
                ..tenure
            });
            (record.token, tenure)
        };
        let late = to.since(from) + Duration::from_micros(1);
        let close = |a: StoreTime, b: StoreTime| a.since(b).max(b.since(a)) <= late;
        let same_time =
            close(after.expires, expected.expires) || before.token.is_none() && !ruled.changes();
        let timing = (after.ttl, after.lock_delay) == (expected.ttl, expected.lock_delay)
            || !ruled.changes();
        if fields(after) == fields(&expected)
            && plain(answer) == plain(&ruled)
            && same_time
            && timing
        {
            return Ok(());
        }
        said.push((ruled, expected));
    }
    Err(format!(
        "{command:?}\non {before:#?}\nanswered {answer:?}\nkept {after:#?}\nbut the rules say {said:#?}"
    ))
}

async fn play(store: &dyn Store, session: &Session, steps: Vec<Step>) -> Result<(), String> {
    session
        .must("SET session_replication_role = replica; TRUNCATE leasehold.lease; RESET session_replication_role")
        .await;
    for step in steps {
        // Time passes by moving the row into the past.
        session
            .must(&format!(
                "UPDATE leasehold.lease SET expires_at = expires_at - {0} * interval '1 ms', \
                 granted_at = granted_at - {0} * interval '1 ms', line = leasehold.line() \
                 WHERE expires_at > 'epoch'",
                step.pass
            ))
            .await;
        let before = record(session).await;
        let command = command(step, &before);
        let from = now(session).await;
        let op = Op::Lease {
            name: LeaseName::new(LEASE).unwrap(),
            command: command.clone(),
        };
        let outcome = store.apply(op).await.map_err(|error| error.to_string())?;
        let to = now(session).await;
        let Outcome::Lease(answer) = outcome else {
            return Err(format!("{outcome:?}"));
        };
        agree(
            &before,
            &command,
            (from, to),
            &answer,
            &record(session).await,
        )?;
    }
    Ok(())
}

/// SEMANTICS 3: acquire, renew, release and what operators do, with duplicates, clones, strangers and late requests.
#[test]
fn the_sql_keeps_the_rules_on_random_histories() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let Some(server) = runtime.block_on(Server::ready_with("fsync = off")) else {
        return;
    };
    let session = runtime.block_on(Session::open(&server));
    let store = runtime.block_on(leasehold::connect(&server.url())).unwrap();
    let told = std::env::var("PROPTEST_CASES").ok();
    let config = ProptestConfig {
        cases: told.and_then(|text| text.parse().ok()).unwrap_or(24),
        failure_persistence: None,
        max_shrink_iters: 60,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps())| {
        let played = runtime.block_on(play(&*store, &session, steps));
        prop_assert!(played.is_ok(), "{}", played.unwrap_err());
    });
}
