//! The ledger in the user's own transaction: effect and entry commit together (I4). The rules are those of the core,
//! in SQL; the token decides who owns what is unfinished, never a timeout (I6).

use leasehold_core::{
    Abandon, AttemptId, Begin, Complete, Done, Entry, Fingerprint, Holder, LeaseName, Proof,
    Refusal, Token, Value, Verdict, WallTime, WorkKey,
};
use serde_json::Value as Json;

use super::{Arg, Bearer, FenceError, Step, told};
use crate::{StoreError, dice::Kernel, fence::unsettled};

/// The answer of the ledger as one JSON text: times in microseconds, bytes in hex.
const BEGIN: &str = "SELECT leasehold.told(leasehold.begin_work($1, $2, $3, $4::uuid, $5, $6, $7, leasehold.from_micros($8)))";
const CLAIM: &str =
    "SELECT leasehold.told(leasehold.claim($1, $2, $3, $4::uuid, $5, leasehold.from_micros($6)))";
const RESPOND: &str = "SELECT leasehold.respond($1, $2, $3, $4::uuid, $5)::text";
const FINISH: &str = "SELECT leasehold.told(leasehold.finish($1, $2, $3, $4::uuid, $5))";

/// What [`once`] says.
#[derive(Debug)]
#[must_use]
pub enum Once {
    /// It was never done: do it now, in this transaction.
    Now(Claim),
    /// It was done before: who, when, and with what result. Do not do it again.
    Before(Entry),
}

/// A piece of work that this transaction does.
#[derive(Debug)]
pub struct Claim {
    proof: Proof,
    key: WorkKey,
    attempt: AttemptId,
}

/// Enters a piece of work under its business fact, such as `invoice:4711` (I3), as done, in your transaction: whoever
/// asks first does it now, all others hear that it was done. Effect and entry commit together, or neither does (I4); so
/// if the effect fails, roll back.
///
/// The order is that of I5. What was done is answered again, to whatever token asks; the same key with another
/// `fingerprint` is [`Verdict::Mismatch`]. Only then is the fence passed, for the whole transaction: a stale token begins
/// nothing, and its bearer is told (F9). While another session is at the same key this waits, for up to 5 s, and then
/// says [`Verdict::InProgress`].
///
/// `born`, if the key tells it, is when the request was made. What is older than the ledger's memory, 400 days, is
/// refused as [`Verdict::TooOld`] and not done as new (I9).
///
/// ```no_run
/// # use leasehold::{Fingerprint, Guard, Value, WorkKey, fence::postgres::{Once, once}};
/// # async fn work(client: &mut tokio_postgres::Client, guard: &Guard) -> Result<(), Box<dyn std::error::Error>> {
/// let step = client.transaction().await?;
/// let key = WorkKey::new("invoice:4711")?;
/// match once(&step, guard, &key, Fingerprint::default(), None).await? {
///     Once::Now(claim) => {
///         step.execute("INSERT INTO charge VALUES (4711, 12.50)", &[]).await?;
///         claim.respond(&step, &Value::new(b"receipt 17")?).await?;
///     }
///     Once::Before(entry) => println!("{} did it under token {}", entry.holder, entry.token),
/// }
/// step.commit().await?;
/// # Ok(()) }
/// ```
pub async fn once(
    mut step: impl Step,
    bearer: &impl Bearer,
    key: &WorkKey,
    fingerprint: Fingerprint,
    born: Option<WallTime>,
) -> Result<Once, FenceError> {
    let proof = bearer.proof();
    let attempt = attempt()?;
    let id = format!("{:032x}", attempt.bits());
    let values = [
        Arg::Text(proof.lease.as_str()),
        Arg::Text(key.as_str()),
        Arg::Token(proof.token),
        Arg::Text(&id),
        Arg::Bytes(Some(&fingerprint.0)),
        Arg::Micros(micros(born)),
    ];
    let sent = step.ask(CLAIM, &values).await.and_then(verdict);
    match settled(bearer, sent)? {
        Verdict::Begun | Verdict::Resumed | Verdict::TookOver { .. } => Ok(Once::Now(Claim {
            proof,
            key: key.clone(),
            attempt,
        })),
        Verdict::AlreadyDone(entry) => Ok(Once::Before(entry)),
        verdict => Err(unsettled(verdict)),
    }
}

impl Claim {
    /// The token under which it is done.
    pub fn token(&self) -> Token {
        self.proof.token
    }

    /// What to answer to whoever asks again. Without it they hear an empty response.
    pub async fn respond(self, mut step: impl Step, response: &Value) -> Result<(), FenceError> {
        let id = format!("{:032x}", self.attempt.bits());
        let values = [
            Arg::Text(self.proof.lease.as_str()),
            Arg::Text(self.key.as_str()),
            Arg::Token(self.proof.token),
            Arg::Text(&id),
            Arg::Bytes(Some(response.as_bytes())),
        ];
        step.ask(RESPOND, &values).await.map(|_| ())
    }
}

/// Begins work whose effect is elsewhere (I7): commit this, have the effect under the same key, then [`complete`] it in
/// another transaction. After a crash in between, the next token takes the entry over and repeats the call with the same
/// key, so the other side must know the key; if it does not, say [`Unfinished::Leave`] and nothing is done twice, but
/// perhaps not at all.
///
/// A refusal is a verdict here, and the bearer is told of it (F9).
///
/// [`Unfinished::Leave`]: leasehold_core::Unfinished::Leave
pub async fn begin(
    mut step: impl Step,
    bearer: &impl Bearer,
    asked: Begin,
) -> Result<Verdict, FenceError> {
    let proof = of(bearer, &asked.work.lease, asked.token)?;
    let attempt = format!("{:032x}", asked.attempt.bits());
    let values = [
        Arg::Text(proof.lease.as_str()),
        Arg::Text(asked.work.key.as_str()),
        Arg::Token(proof.token),
        Arg::Text(&attempt),
        Arg::Text(asked.holder.as_str()),
        Arg::Bytes(Some(&asked.fingerprint.0)),
        Arg::Flag(asked.unfinished == leasehold_core::Unfinished::TakeOver),
        Arg::Micros(micros(asked.born)),
    ];
    let sent = step.ask(BEGIN, &values).await.and_then(verdict);
    settled(bearer, sent)
}

/// The work is done. The entry's token must be the bearer's own; the lease need not be valid any more.
pub async fn complete(
    mut step: impl Step,
    bearer: &impl Bearer,
    asked: Complete,
) -> Result<Verdict, FenceError> {
    let proof = of(bearer, &asked.work.lease, asked.token)?;
    let response = Some(asked.response.as_bytes());
    let sent = finish(&mut step, &proof, &asked.work.key, asked.attempt, response);
    settled(bearer, sent.await)
}

/// The work failed without effect; whoever comes next begins it.
pub async fn abandon(
    mut step: impl Step,
    bearer: &impl Bearer,
    asked: Abandon,
) -> Result<Verdict, FenceError> {
    let proof = of(bearer, &asked.work.lease, asked.token)?;
    let sent = finish(&mut step, &proof, &asked.work.key, asked.attempt, None);
    settled(bearer, sent.await)
}

fn micros(born: Option<WallTime>) -> Option<i64> {
    born.map(|born| i64::try_from(born.as_nanos() / 1000).unwrap_or(i64::MAX))
}

async fn finish(
    step: &mut impl Step,
    proof: &Proof,
    key: &WorkKey,
    attempt: AttemptId,
    response: Option<&[u8]>,
) -> Result<Verdict, FenceError> {
    let attempt = format!("{:032x}", attempt.bits());
    let values = [
        Arg::Text(proof.lease.as_str()),
        Arg::Text(key.as_str()),
        Arg::Token(proof.token),
        Arg::Text(&attempt),
        Arg::Bytes(response),
    ];
    verdict(step.ask(FINISH, &values).await?)
}

/// A verdict, of which the bearer has heard if it refused the token.
fn settled(bearer: &impl Bearer, sent: Result<Verdict, FenceError>) -> Result<Verdict, FenceError> {
    if let Ok(Verdict::Refused(refusal)) = &sent {
        bearer.refused(refusal);
    }
    told(bearer, sent)
}

/// The bearer's proof, if the work is entered under it.
fn of(bearer: &impl Bearer, lease: &LeaseName, token: Token) -> Result<Proof, FenceError> {
    let proof = bearer.proof();
    if (&proof.lease, proof.token) == (lease, token) {
        return Ok(proof);
    }
    let what = format!(
        "the work is entered under {lease} with token {token}, and shown is {} with token {}: give both the same",
        proof.lease, proof.token
    );
    Err(StoreError::Invalid { what }.into())
}

fn attempt() -> Result<AttemptId, FenceError> {
    match Kernel.try_roll() {
        Ok(bits) => Ok(bits.into()),
        Err(error) => Err(StoreError::Unavailable {
            what: format!("the kernel gives no random numbers: {error}"),
        }
        .into()),
    }
}

/// What `leasehold.told` wrote.
fn verdict(text: Option<String>) -> Result<Verdict, FenceError> {
    let text = text.unwrap_or_default();
    let damaged = || FenceError::Damaged(format!("the ledger answered {text:.200}"));
    let json: Json = serde_json::from_str(&text).map_err(|_| damaged())?;
    read(&json).ok_or_else(damaged)
}

fn read(json: &Json) -> Option<Verdict> {
    Some(match json["verdict"].as_str()? {
        "begun" => Verdict::Begun,
        "resumed" => Verdict::Resumed,
        "took_over" => Verdict::TookOver {
            from: entry(json)?.token,
        },
        "already_done" => Verdict::AlreadyDone(entry(json)?),
        "in_progress" => Verdict::InProgress,
        "not_begun" => Verdict::NotBegun,
        "left_unfinished" => Verdict::LeftUnfinished(entry(json)?),
        "mismatch" => Verdict::Mismatch,
        "too_old" => Verdict::TooOld {
            kept_from: wall(&json["kept_from"])?,
        },
        "completed" => Verdict::Completed,
        "abandoned" => Verdict::Abandoned,
        "refused" => Verdict::Refused(refusal(json)?),
        _ => return None,
    })
}

fn refusal(json: &Json) -> Option<Refusal> {
    let token = number(&json["refused"])?;
    Some(match json["kind"].as_str()? {
        "stale" => Refusal::Stale {
            token,
            highest: number(&json["highest"])?,
        },
        "expired" => Refusal::Expired { token },
        "released" => Refusal::Released { token },
        _ => Refusal::NeverIssued { token },
    })
}

fn entry(json: &Json) -> Option<Entry> {
    let response = &json["response"];
    Some(Entry {
        token: number(&json["token"])?,
        attempt: json["attempt"].as_str()?.parse().ok()?,
        holder: Holder::new(json["holder"].as_str()?).ok()?,
        fingerprint: Fingerprint(bytes(&json["fingerprint"])?.try_into().ok()?),
        begun: wall(&json["begun_at"])?,
        done: match wall(&json["done_at"]) {
            Some(at) => Some(Done {
                at,
                response: Value::new(&bytes(response).unwrap_or_default()).ok()?,
            }),
            None => None,
        },
    })
}

fn number(json: &Json) -> Option<Token> {
    Token::new(json.as_u64()?).ok()
}

fn wall(json: &Json) -> Option<WallTime> {
    Some(WallTime::from_nanos(json.as_u64()?.saturating_mul(1000)))
}

fn bytes(json: &Json) -> Option<Vec<u8>> {
    let text = json.as_str()?.as_bytes();
    text.chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
