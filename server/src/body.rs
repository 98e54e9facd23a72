//! What comes from a client, read within limits: bodies, names in paths, queries, headers. An error names the value.

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    extract::{Path, Query, rejection::PathRejection},
    http::{HeaderMap, Request, StatusCode, header},
};
use bytes::Bytes;
use leasehold::{
    Invalid, Proof,
    store::http::{ask::Ask, fencing, view::BODY_BYTES},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::{app::App, problem::Problem};

/// The bytes of a body.
pub(crate) async fn read(app: &Arc<App>, request: Request<Body>) -> Result<Bytes, Problem> {
    let told = request.headers().get(header::CONTENT_LENGTH);
    let told = told
        .and_then(|length| length.to_str().ok())
        .and_then(|length| length.parse::<usize>().ok());
    if told.is_some_and(|length| length > BODY_BYTES) {
        return Err(too_large());
    }
    let limit = app.config.body_timeout;
    match timeout(limit, to_bytes(request.into_body(), BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(match is_too_large(&error) {
            true => too_large(),
            false => Problem::invalid(format!("the body broke off: {error}")),
        }),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            format!("the body did not come within {limit:?}"),
        )),
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn too_large() -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too-large",
        format!("a body has at most {BODY_BYTES} bytes"),
    )
}

/// A body that is a JSON object.
pub(crate) async fn object(
    app: &Arc<App>,
    request: Request<Body>,
) -> Result<Map<String, Value>, Problem> {
    must_be_json(request.headers())?;
    let bytes = read(app, request).await?;
    let value = serde_json::from_slice(&bytes)
        .map_err(|error| Problem::invalid(format!("the body is not JSON: {error}")))?;
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(Problem::invalid("the body is not a JSON object")),
    }
}

/// A page of somebody else in a browser can send other types without asking.
fn must_be_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    match kind.split(';').next().unwrap_or("").trim() {
        kind if kind.eq_ignore_ascii_case("application/json") => Ok(()),
        _ => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not-json",
            "the body must be JSON: send the header Content-Type: application/json (curl --json does)",
        )),
    }
}

/// The operation that a path and a body name together.
pub(crate) fn ask(
    op: &str,
    path: &[(&str, &str)],
    mut fields: Map<String, Value>,
) -> Result<Ask, Problem> {
    for (name, value) in path.iter().chain([&("op", op)]) {
        let given = fields.insert((*name).to_owned(), (*value).into());
        if given.is_some() {
            let what = format!("\"{name}\" comes from the path: leave it out of the body");
            return Err(Problem::invalid(what));
        }
    }
    parse(Value::Object(fields))
}

/// A value of the wire.
pub(crate) fn parse<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_json::from_value(value).map_err(|error| Problem::invalid(error.to_string()))
}

/// A whole number of milliseconds that may be left out.
pub(crate) fn take_millis(
    fields: &mut Map<String, Value>,
    name: &str,
    most: u64,
) -> Result<u64, Problem> {
    let Some(value) = fields.remove(name) else {
        return Ok(0);
    };
    value
        .as_u64()
        .filter(|millis| *millis <= most)
        .ok_or_else(|| {
            let shown: String = value.to_string().chars().take(40).collect();
            Problem::invalid(format!(
                "{name} {shown} is not allowed: it is a whole number from 0 to {most}"
            ))
        })
}

/// One or more names of a path, decoded.
pub(crate) type Names<T> = Result<Path<T>, PathRejection>;

/// What stands in the path.
pub(crate) fn names<T>(path: Names<T>) -> Result<T, Problem> {
    path.map(|Path(names)| names)
        .map_err(|error| Problem::invalid(format!("the path cannot be read: {error}")))
}

/// A name, checked.
pub(crate) fn name<T: std::str::FromStr<Err = Invalid>>(text: &str) -> Result<T, Problem> {
    text.parse()
        .map_err(|error: Invalid| Problem::invalid(error.to_string()))
}

/// What stands behind the `?`.
pub(crate) fn query<T: DeserializeOwned>(request: &Request<Body>) -> Result<T, Problem> {
    Query::try_from_uri(request.uri())
        .map(|Query(query)| query)
        .map_err(|error| Problem::invalid(format!("the query cannot be read: {error}")))
}

/// The header `Fencing-Token`, if it is there; twice is a mistake (INV-13).
pub(crate) fn proof(headers: &HeaderMap) -> Result<Option<Proof>, Problem> {
    let mut given = headers.get_all(fencing::FENCING_TOKEN).iter();
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => fencing::parse(value.as_bytes())
            .map(Some)
            .map_err(Problem::invalid),
        (Some(_), Some(_)) => Err(Problem::invalid("the header Fencing-Token comes twice")),
    }
}
