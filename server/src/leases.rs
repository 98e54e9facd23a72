//! Leases: taking, keeping, giving back, looking, and the batch that does many things at once.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Extension, State},
    http::Request,
    response::Response,
};
use leasehold::{
    LeaseName, StoreError,
    core::{Answer, Command, Lost, Op, Outcome, Status},
    store::http::{
        ask::Ask,
        reply::Reply,
        view::{BATCH_OPS, Batch, EventView, Events, LeaseView, Leases, PAGE, Replies, WAIT_MS},
    },
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    admissions,
    app::App,
    body::{self, Names},
    problem::{self, Problem},
    rights::Caller,
    waiters,
};

/// How many leases one answer lists, at most: about 30 MB.
const MOST_LEASES: usize = 100_001;
/// How often somebody else with the same session may renew in between.
const RENEWALS: usize = 5;

type Answered = Result<Response, Problem>;

pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let lease = body::names(path)?;
    let mut fields = body::object(&app, request).await?;
    let wait = body::take_millis(&mut fields, "wait_ms", WAIT_MS)?;
    let op = op(body::ask("acquire", &[("lease", &lease)], fields)?)?;
    if wait == 0 {
        return Ok(answer(app.apply(op).await));
    }
    let Op::Lease {
        name,
        command: Command::Acquire(ask),
    } = op
    else {
        return Err(Problem::invalid("this is no acquire"));
    };
    match waiters::acquire(&app, &name, ask, Duration::from_millis(wait)).await {
        Ok(told) => Ok(answer(told.map(Outcome::Lease))),
        Err(waiters::TooMany) => Err(Problem::too_many(format!(
            "{} wait already, as many as this server allows: ask again without wait_ms",
            app.config.waiters
        ))),
    }
}

/// A renewal without a number is counted here, for clients that keep no count; a copy of the holder then goes unseen.
pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let lease = body::names(path)?;
    let mut fields = body::object(&app, request).await?;
    let counted = fields.contains_key("number");
    fields.entry("number").or_insert(Value::from(0));
    let mut op = op(body::ask("renew", &[("lease", &lease)], fields)?)?;
    if counted {
        return Ok(answer(app.apply(op).await));
    }
    for _ in 0..RENEWALS {
        let next = next_number(&app, &op).await?;
        if let Op::Lease {
            command: Command::Renew(renew),
            ..
        } = &mut op
        {
            renew.number = next;
        }
        let outcome = app.apply(op.clone()).await;
        if !matches!(outcome, Ok(Outcome::Lease(Answer::Lost(Lost::SeqMismatch)))) {
            return Ok(answer(outcome));
        }
    }
    Ok(answer(Ok(Outcome::Lease(Answer::Lost(Lost::SeqMismatch)))))
}

async fn next_number(app: &Arc<App>, op: &Op) -> Result<u64, StoreError> {
    let Op::Lease { name, .. } = op else {
        return Ok(1);
    };
    let status = app.store.status(name).await?;
    Ok(status.map_or(1, |status| status.renewals.saturating_add(1)))
}

pub(crate) async fn release(
    state: State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    simple(state, path, request, "release").await
}

pub(crate) async fn force_release(
    state: State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    simple(state, path, request, "force_release").await
}

async fn simple(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
    word: &str,
) -> Answered {
    let lease = body::names(path)?;
    let fields = body::object(&app, request).await?;
    let op = op(body::ask(word, &[("lease", &lease)], fields)?)?;
    Ok(answer(app.apply(op).await))
}

/// Many operations, each with an answer of its own; one that makes no sense fails the whole request, and nothing is done.
pub(crate) async fn batch(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Answered {
    let fields = body::object(&app, request).await?;
    let Batch { ops } = body::parse(Value::Object(fields))?;
    if ops.len() > BATCH_OPS {
        let what = format!(
            "{} operations are not allowed: a batch has at most {BATCH_OPS}",
            ops.len()
        );
        return Err(Problem::invalid(what));
    }
    let ops = ops.into_iter().enumerate().map(|(place, ask)| {
        Op::try_from(ask).map_err(|error| Problem::invalid(format!("ops[{place}]: {error}")))
    });
    let ops: Vec<Op> = ops.collect::<Result<_, _>>()?;
    let allowed: Vec<bool> = ops.iter().map(|op| caller.may_do(op)).collect();
    let mut allowed_ops = ops;
    let mut places = allowed.iter();
    allowed_ops.retain(|_| places.next().is_some_and(|allowed| *allowed));
    let raises: Vec<_> = allowed_ops.iter().map(admissions::raise_of).collect();
    let outcomes = app.apply_all(allowed_ops).await;
    let mut done = outcomes.into_iter().zip(raises);
    let mut answers = Vec::with_capacity(allowed.len());
    for allowed in allowed {
        let outcome = match allowed.then(|| done.next()).flatten() {
            None => Err(StoreError::Invalid {
                what: "the credential gives no right to this".to_owned(),
            }),
            Some((outcome, Some(raise))) => app.admissions.drained(&app, raise, outcome).await,
            Some((outcome, None)) => outcome,
        };
        answers.push(Reply::from(outcome));
    }
    Ok(problem::ok(&Replies { answers }))
}

/// What a list is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    prefix: String,
    limit: Option<usize>,
}

pub(crate) async fn list(State(app): State<Arc<App>>, request: Request<Body>) -> Answered {
    let wanted: Wanted = body::query(&request)?;
    let limit = limit(wanted.limit, PAGE, MOST_LEASES)?;
    if wanted.prefix.len() > LeaseName::MAX_LEN {
        return Err(Problem::invalid("a prefix has at most 200 bytes"));
    }
    let mut found = app
        .store
        .list(&wanted.prefix, limit.saturating_add(1))
        .await?;
    let more = found.len() > limit;
    found.truncate(limit);
    Ok(problem::ok(&Leases {
        leases: found.iter().map(|status| seen(&app, status)).collect(),
        more,
    }))
}

pub(crate) async fn status(State(app): State<Arc<App>>, path: Names<String>) -> Answered {
    let name: LeaseName = body::name(&body::names(path)?)?;
    match app.store.status(&name).await? {
        Some(status) => Ok(problem::ok(&seen(&app, &status))),
        None => Err(Problem::missing(format!("nobody ever asked for {name}"))),
    }
}

fn seen(app: &App, status: &Status) -> LeaseView {
    LeaseView {
        waiting: app.waiters.of(&status.name),
        ..LeaseView::from(status)
    }
}

/// Which part of the history.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

pub(crate) async fn history_of(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let name: LeaseName = body::name(&body::names(path)?)?;
    history_part(&app, Some(&name), body::query(&request)?).await
}

pub(crate) async fn history(State(app): State<Arc<App>>, request: Request<Body>) -> Answered {
    history_part(&app, None, body::query(&request)?).await
}

async fn history_part(app: &Arc<App>, name: Option<&LeaseName>, part: Part) -> Answered {
    let limit = limit(part.limit, 100, PAGE)?;
    let events = app.store.history(name, part.after, limit).await?;
    Ok(problem::ok(&Events {
        events: events.iter().map(EventView::from).collect(),
    }))
}

fn limit(given: Option<usize>, default: usize, most: usize) -> Result<usize, Problem> {
    match given.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        limit => Err(Problem::invalid(format!(
            "limit {limit} is not allowed: it is from 1 to {most}"
        ))),
    }
}

/// The core's operation.
pub(crate) fn op(ask: Ask) -> Result<Op, Problem> {
    Op::try_from(ask).map_err(Problem::invalid)
}

/// What came of it, as HTTP.
pub(crate) fn answer(outcome: Result<Outcome, StoreError>) -> Response {
    problem::answer(Reply::from(outcome))
}
