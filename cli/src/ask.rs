//! Asks the store, and asks again when it is unknown what became of it: always the same operation with the same ids, so
//! that it happens once (A4, L14).

use std::time::Duration;

use leasehold::{
    AttemptId, LeaseName, RenewId, RequestId, Session, StoreError, Token, Ttl,
    core::{Answer, Command, Lost, Op, Outcome, Renew},
    store::Store,
};

use crate::{app::App, exit::Failure};

/// How long an unknown outcome is worth asking again.
const PATIENCE: Duration = Duration::from_secs(5);
/// A call without an answer after this is one whose outcome is unknown; stores give up earlier by themselves.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// The first pause between two of them; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// And stops doubling here.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// How often somebody else with the same session may get in between.
const RENEWALS: usize = 5;

/// Gives one command to one lease. Not for commands that do more when they come twice.
pub(crate) async fn command(
    app: &App,
    store: &dyn Store,
    name: &LeaseName,
    command: Command,
) -> Result<Answer, StoreError> {
    command_waiting(app, store, name, command, Duration::ZERO).await
}

/// The same; a store with waiters in order may hold it back so long.
pub(crate) async fn command_waiting(
    app: &App,
    store: &dyn Store,
    name: &LeaseName,
    command: Command,
    wait: Duration,
) -> Result<Answer, StoreError> {
    let op = Op::Lease {
        name: name.clone(),
        command,
    };
    let give_up = app.clock.now().plus(PATIENCE + wait);
    let mut pause = FIRST_PAUSE;
    loop {
        let asked = async {
            match wait.is_zero() {
                true => store.apply(op.clone()).await,
                false => store.apply_waiting(op.clone(), wait).await,
            }
        };
        let call = tokio::time::timeout(CALL_LIMIT + wait, asked);
        let end = call.await.unwrap_or_else(|_| {
            Err(StoreError::Unknown {
                what: format!("the store did not answer in {CALL_LIMIT:?}"),
            })
        });
        match end {
            Err(StoreError::Unknown { .. }) if app.clock.now().plus(pause) < give_up => {}
            end => return end.and_then(answer),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What a store says to a lease's command.
pub(crate) fn answer(outcome: Outcome) -> Result<Answer, StoreError> {
    match outcome {
        Outcome::Lease(answer) => Ok(answer),
        other => Err(StoreError::Unknown {
            what: format!("the store answered something else: {other:?}"),
        }),
    }
}

/// Renews a tenure whose renewals nobody counts for us: the store's own count says which is the next (A3). Without
/// `ttl` the lease keeps the one it has.
pub(crate) async fn renew(
    app: &App,
    store: &dyn Store,
    name: &LeaseName,
    (token, session): (Token, Session),
    ttl: Option<Ttl>,
) -> Result<Ttl, Failure> {
    for _ in 0..RENEWALS {
        let status = store.status(name).await?;
        let (renewals, stored) = status.map_or((0, Ttl::DEFAULT), |s| (s.renewals, s.ttl));
        let renewal = Renew {
            token,
            session,
            ttl: ttl.unwrap_or(stored),
            number: renewals.saturating_add(1),
            renew_id: new_renew_id()?,
        };
        match command(app, store, name, Command::Renew(renewal)).await? {
            Answer::Renewed { ttl } => return Ok(ttl),
            Answer::Lost(Lost::SeqMismatch) => {}
            Answer::Lost(why) => return Err(lost(token, why)),
            other => return Err(unexpected(&other)),
        }
    }
    Err(lost(token, Lost::SeqMismatch))
}

/// The error for a token that is good no longer.
pub(crate) fn lost(token: Token, why: Lost) -> Failure {
    let highest = match &why {
        Lost::Taken { token, .. } => Some(*token),
        _ => None,
    };
    let (reason, text) = match why {
        Lost::Expired => ("expired", format!("token {token} expired")),
        Lost::Released => ("released", format!("token {token} was released")),
        Lost::Taken { by, token: newer } if newer > token => {
            let by = by.map_or_else(String::new, |by| format!(", granted to {by}"));
            ("stale", format!("token {token} is older than {newer}{by}"))
        }
        Lost::Taken { by: Some(by), .. } => (
            "not_yours",
            format!("token {token} belongs to another session, of {by}"),
        ),
        Lost::Taken { by: None, .. } => (
            "never_issued",
            format!("token {token} was taken back by an operator and belongs to nobody"),
        ),
        Lost::SeqMismatch => (
            "seq_mismatch",
            format!("another process renews token {token} with the same session"),
        ),
        Lost::Gone => ("never_issued", format!("token {token} was never issued")),
    };
    let failure = Failure::refused(text)
        .with("reason", reason)
        .with("token", token.to_string());
    match highest {
        Some(highest) => failure.with("highest", highest.to_string()),
        None => failure,
    }
}

/// The error for a lease that has had its last token (1.2).
pub(crate) fn exhausted(name: &LeaseName) -> Failure {
    Failure::failed(format!("{name} has no larger token left"))
}

/// An answer that no store gives to this command.
pub(crate) fn unexpected(answer: &Answer) -> Failure {
    Failure::failed(format!(
        "the store gave an answer that makes no sense here: {answer:?}"
    ))
}

pub(crate) fn new_session() -> Result<Session, Failure> {
    random(Session::from_bits)
}

pub(crate) fn new_request_id() -> Result<RequestId, Failure> {
    random(RequestId::from_bits)
}

fn new_renew_id() -> Result<RenewId, Failure> {
    random(RenewId::from_bits)
}

pub(crate) fn new_attempt_id() -> Result<AttemptId, Failure> {
    random(AttemptId::from_bits)
}

/// Random bits from the kernel; all zero is no id.
fn random<T>(id: fn(u128) -> Option<T>) -> Result<T, Failure> {
    loop {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Failure::failed(format!("the kernel gives no random bits: {error}"))
        })?;
        if let Some(id) = id(u128::from_be_bytes(bytes)) {
            return Ok(id);
        }
    }
}
