//! For operators: is it alive, is it ready, what does it count, what can it do.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{Request, header},
    response::{IntoResponse, Response},
};
use leasehold::{
    LeaseName,
    store::http::view::{Findings, ProfileView},
};
use serde_json::{Value, json};

use crate::{
    app::App,
    body,
    leases::{answer, op},
    problem::{self, Problem},
    routes::OPENAPI,
};

type Answered = Result<Response, Problem>;

/// The process answers.
pub(crate) async fn healthz() -> Response {
    problem::ok(&json!({ "alive": true }))
}

/// The store answers, and the server is not about to end.
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Answered {
    if app.is_draining() {
        return Err(Problem::unavailable("the server is about to end"));
    }
    let name = LeaseName::new("readyz").map_err(|error| Problem::invalid(error.to_string()))?;
    app.store.status(&name).await?;
    Ok(problem::ok(&json!({ "ready": true })))
}

pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Answered {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = app.metrics.text(&app).await;
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

pub(crate) async fn store(State(app): State<Arc<App>>) -> Response {
    problem::ok(&ProfileView::from(app.store.profile()))
}

pub(crate) async fn doctor(State(app): State<Arc<App>>) -> Answered {
    let findings = app.store.examine().await?;
    Ok(problem::ok(&Findings { findings }))
}

pub(crate) async fn bump(State(app): State<Arc<App>>, request: Request<Body>) -> Answered {
    let fields = body::object(&app, request).await?;
    let op = op(body::ask("bump", &[], fields)?)?;
    Ok(answer(app.apply(op).await))
}

/// The body is an empty object, so that no page of somebody else can do it.
pub(crate) async fn collect(State(app): State<Arc<App>>, request: Request<Body>) -> Answered {
    nothing(&app, request).await?;
    let removed = app.store.collect().await?;
    Ok(problem::ok(
        &json!({ "answer": "done", "removed": removed }),
    ))
}

pub(crate) async fn evict(State(app): State<Arc<App>>, request: Request<Body>) -> Answered {
    nothing(&app, request).await?;
    let evicted = app.store.evict().await?;
    Ok(problem::ok(
        &json!({ "answer": "done", "evicted": evicted }),
    ))
}

async fn nothing(app: &Arc<App>, request: Request<Body>) -> Result<(), Problem> {
    let fields = body::object(app, request).await?;
    match Value::Object(fields) {
        Value::Object(fields) if fields.is_empty() => Ok(()),
        _ => Err(Problem::invalid("the body must be {}")),
    }
}
