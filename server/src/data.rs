//! Pairs, fences of receivers, and the ledger.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Request, header},
    response::{IntoResponse, Response},
};
use leasehold::{
    AttemptId, Key, LeaseName, Resource, WorkKey,
    core::{Op, Work},
    store::http::{
        fencing,
        view::{EntryView, FenceView, WAIT_MS, value},
    },
};
use serde_json::json;

use crate::{
    admissions::Admitted,
    app::App,
    body::{self, Names},
    leases::{answer, op},
    problem::{self, Problem},
};

/// How long a write may be on its way, at most, in milliseconds.
const MOST_WRITING: u64 = 10 * 60 * 1000;
/// And unless told otherwise.
const WRITING: u64 = 30_000;

type Answered = Result<Response, Problem>;

/// The body is the value, whatever its type.
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let key: Key = body::name(&body::names(path)?)?;
    let proof = body::proof(request.headers())?;
    let bytes = body::read(&app, request).await?;
    let value = value(&bytes).map_err(Problem::invalid)?;
    Ok(answer(app.apply(Op::Put { key, value, proof }).await))
}

pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let key: Key = body::name(&body::names(path)?)?;
    let proof = body::proof(request.headers())?;
    Ok(answer(app.apply(Op::Delete { key, proof }).await))
}

/// The bytes as they were put; under which lease, in the header that wrote them.
pub(crate) async fn get(State(app): State<Arc<App>>, path: Names<String>) -> Answered {
    let key: Key = body::name(&body::names(path)?)?;
    let Some(pair) = app.store.pair(&key).await? else {
        return Err(Problem::missing(format!("there is no {key}")));
    };
    let bytes = pair.value.as_bytes().to_vec();
    let mut response = bytes.into_response();
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    let fence = pair.fence.map(|proof| fencing::show(&proof));
    if let Some(Ok(fence)) = fence.map(|text| HeaderValue::from_bytes(text.as_bytes())) {
        response.headers_mut().insert(fencing::FENCING_TOKEN, fence);
    }
    Ok(response)
}

pub(crate) async fn fence(State(app): State<Arc<App>>, path: Names<String>) -> Answered {
    let resource: Resource = body::name(&body::names(path)?)?;
    match app.store.fence(&resource).await? {
        Some(fence) => Ok(problem::ok(&FenceView::from(fence))),
        None => Err(Problem::missing(format!(
            "nobody ever raised a fence for {resource}"
        ))),
    }
}

pub(crate) async fn raise(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let resource = body::names(path)?;
    let mut fields = body::object(&app, request).await?;
    let wait = Duration::from_millis(body::take_millis(&mut fields, "wait_ms", WAIT_MS)?);
    let op = op(body::ask("raise", &[("resource", &resource)], fields)?)?;
    Ok(answer(app.admissions.raise(&app, op, None, wait).await))
}

/// A raise that lets one write in, until it is done or its `ttl_ms` is over.
pub(crate) async fn admit(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let resource = body::names(path)?;
    let mut fields = body::object(&app, request).await?;
    let wait = Duration::from_millis(body::take_millis(&mut fields, "wait_ms", WAIT_MS)?);
    let ttl = match body::take_millis(&mut fields, "ttl_ms", MOST_WRITING)? {
        0 => WRITING,
        millis => millis,
    };
    let attempt: AttemptId = body::parse(fields.remove("attempt").unwrap_or_default())?;
    let op = op(body::ask("raise", &[("resource", &resource)], fields)?)?;
    let Op::Raise { proof, .. } = &op else {
        return Err(Problem::invalid("this is no raise"));
    };
    let write = Admitted {
        attempt,
        token: proof.token,
        until: app.clock.now().plus(wait + Duration::from_millis(ttl)),
    };
    Ok(answer(
        app.admissions.raise(&app, op, Some(write), wait).await,
    ))
}

/// The write has reached the receiver, or never will.
pub(crate) async fn done(
    State(app): State<Arc<App>>,
    path: Names<String>,
    request: Request<Body>,
) -> Answered {
    let resource: Resource = body::name(&body::names(path)?)?;
    let mut fields = body::object(&app, request).await?;
    let attempt: AttemptId = body::parse(fields.remove("attempt").unwrap_or_default())?;
    if let Some((name, _)) = fields.iter().next() {
        return Err(Problem::invalid(format!(
            "unknown field \"{name}\": a done write has its attempt, no more"
        )));
    }
    match app.admissions.done(&app, &resource, attempt).await {
        true => Ok(problem::ok(&json!({ "answer": "done" }))),
        false => Err(Problem::missing(format!(
            "no such write is on its way to {resource}: it is done, or its time was over and others may have been let in"
        ))),
    }
}

pub(crate) async fn entry(State(app): State<Arc<App>>, path: Names<(String, String)>) -> Answered {
    let (lease, key) = body::names(path)?;
    let work = Work {
        lease: body::name::<LeaseName>(&lease)?,
        key: body::name::<WorkKey>(&key)?,
    };
    match app.store.entry(&work).await? {
        Some(entry) => Ok(problem::ok(&EntryView::from(&entry))),
        None => Err(Problem::missing(format!("nobody has begun {work}"))),
    }
}

pub(crate) async fn begin(
    state: State<Arc<App>>,
    path: Names<(String, String)>,
    request: Request<Body>,
) -> Answered {
    work(state, path, request, "begin").await
}

pub(crate) async fn complete(
    state: State<Arc<App>>,
    path: Names<(String, String)>,
    request: Request<Body>,
) -> Answered {
    work(state, path, request, "complete").await
}

pub(crate) async fn abandon(
    state: State<Arc<App>>,
    path: Names<(String, String)>,
    request: Request<Body>,
) -> Answered {
    work(state, path, request, "abandon").await
}

async fn work(
    State(app): State<Arc<App>>,
    path: Names<(String, String)>,
    request: Request<Body>,
    word: &str,
) -> Answered {
    let (lease, key) = body::names(path)?;
    let fields = body::object(&app, request).await?;
    let op = op(body::ask(
        word,
        &[("lease", &lease), ("key", &key)],
        fields,
    )?)?;
    Ok(answer(app.apply(op).await))
}
