//! Answers as HTTP: a status for every reply, and RFC 9457 problem bodies for what is not a success.
//!
//! The rule: 2xx done, 404 not there, 409 somebody else, 410 too old, 412 the token is no good, 422 another thing under
//! that key, other 4xx the request is wrong, 503 certainly not done, 504 nobody knows.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use leasehold::{
    StoreError,
    core::{Lost, Refusal},
    store::http::reply::{ErrorKind, LostReason, NotBumpedView, Reply},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Why a request was not done.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Ends the problem's type, `urn:leasehold:KIND`.
    kind: &'static str,
    detail: String,
    /// What a program is told beside it.
    fields: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            detail: detail.into(),
            fields: Map::new(),
        }
    }

    /// The request is wrong; nothing was done.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail).of_kind(ErrorKind::Invalid)
    }

    /// There is no such thing.
    pub(crate) fn missing(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "missing", detail)
    }

    /// Certainly not done, and it may work later.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            .of_kind(ErrorKind::Unavailable)
    }

    /// There are too many of something; certainly not done.
    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail).of_kind(ErrorKind::Unavailable)
    }

    /// Nobody known asks, and learns no more than that.
    pub(crate) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "send a credential: Authorization: Bearer SECRET",
        )
    }

    /// The caller has no such right.
    pub(crate) fn forbidden() -> Self {
        let detail = "the credential gives no right to this";
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// So that a client finds it as it would find the answer of a store.
    fn of_kind(self, kind: ErrorKind) -> Self {
        let kind = serde_json::to_value(kind).unwrap_or_default();
        self.with("answer", "error").with("kind", kind)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Unavailable { .. } => Self::unavailable(detail),
            StoreError::Invalid { .. } => Self::invalid(detail),
            StoreError::Unknown { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, "unknown", detail)
                .of_kind(ErrorKind::Unknown),
            StoreError::BlockedBy { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "blocked", detail)
                    .of_kind(ErrorKind::Blocked)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = self.fields;
        body.insert("type".into(), format!("urn:leasehold:{}", self.kind).into());
        body.insert("title".into(), title(self.status).into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("detail".into(), self.detail.into());
        let again = matches!(
            self.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        );
        let mut response = write(self.status, "application/problem+json", &body);
        if self.status == StatusCode::UNAUTHORIZED {
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if again {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn title(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

/// A JSON answer.
pub(crate) fn ok(body: &impl Serialize) -> Response {
    write(StatusCode::OK, "application/json", body)
}

fn write(status: StatusCode, kind: &'static str, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, kind)], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// What the store said, as HTTP.
pub(crate) fn answer(reply: Reply) -> Response {
    let Some((status, kind, detail)) = fault(&reply) else {
        return ok(&reply);
    };
    let mut problem = Problem::new(status, kind, detail);
    if let Ok(Value::Object(fields)) = serde_json::to_value(&reply) {
        problem.fields.extend(fields);
    }
    problem.into_response()
}

/// What is wrong with the world, if the reply says so.
fn fault(reply: &Reply) -> Option<(StatusCode, &'static str, String)> {
    use StatusCode as S;
    let fault = |status, kind, detail: String| Some((status, kind, detail));
    match reply {
        Reply::Held {
            holder,
            token,
            hint_ms,
            yours,
            ..
        } => fault(
            S::CONFLICT,
            "held",
            match yours {
                true => format!(
                    "this session holds it already, with token {token} under another request_id: release that, or renew it"
                ),
                false => format!(
                    "held by {holder} with token {token}, free in {hint_ms} ms unless renewed"
                ),
            },
        ),
        Reply::Delayed { hint_ms } => fault(
            S::CONFLICT,
            "delayed",
            format!("nobody holds it, but its lock delay runs for {hint_ms} ms"),
        ),
        Reply::Quarantined { hint_ms } => fault(
            S::CONFLICT,
            "quarantined",
            format!("nobody holds it, but an old promise runs for {hint_ms} ms"),
        ),
        Reply::AlreadyUsed => fault(
            S::CONFLICT,
            "already-used",
            "this request_id had its grant, and that is over: ask again with a new one".into(),
        ),
        Reply::TokenExhausted => fault(
            S::CONFLICT,
            "token-exhausted",
            "there is no larger token left for this lease".into(),
        ),
        Reply::Lost(view) => {
            let why = view
                .clone()
                .into_lost()
                .map_or_else(String::new, |lost| lost_text(&lost));
            let kind = match view.reason {
                LostReason::Expired => "expired",
                LostReason::Released => "released",
                _ => "lost",
            };
            fault(S::PRECONDITION_FAILED, kind, why)
        }
        Reply::Refused(view) => {
            let refusal = view.clone().into_refusal();
            let detail = refusal
                .as_ref()
                .map_or_else(String::new, Refusal::to_string);
            let kind = match refusal {
                Some(Refusal::Stale { .. }) => "stale",
                Some(Refusal::Fenced { .. }) => "fenced",
                _ => "refused",
            };
            fault(S::PRECONDITION_FAILED, kind, detail)
        }
        Reply::NotBumped(view) => fault(S::CONFLICT, "not-bumped", not_bumped(view)),
        Reply::InProgress => fault(
            S::CONFLICT,
            "in-progress",
            "another attempt under the same token is at it".into(),
        ),
        Reply::LeftUnfinished { entry } => fault(
            S::CONFLICT,
            "unfinished",
            format!(
                "{} began it under token {} and never said that it was done",
                entry.holder, entry.token
            ),
        ),
        Reply::Mismatch => fault(
            S::UNPROCESSABLE_ENTITY,
            "mismatch",
            "this key was used for something else: the fingerprints differ".into(),
        ),
        Reply::TooOld { kept_from_ms } => fault(
            S::GONE,
            "too-old",
            format!("requests from before unix time {kept_from_ms} ms are not remembered"),
        ),
        Reply::NotBegun => fault(
            S::NOT_FOUND,
            "not-begun",
            "nobody has begun this work".into(),
        ),
        Reply::Error { kind, detail } => {
            let problem = Problem::from(kind.with(detail.clone()));
            fault(problem.status, problem.kind, problem.detail)
        }
        _ => None,
    }
}

fn lost_text(lost: &Lost) -> String {
    match lost {
        Lost::Expired => "the lease ran out".into(),
        Lost::Released => "it was released".into(),
        Lost::Taken {
            by: Some(by),
            token,
        } => format!("{by} has token {token}"),
        Lost::Taken { by: None, token } => {
            format!("an operator took it away and burnt token {token}")
        }
        Lost::SeqMismatch => {
            "a copy of this holder renews it: the number or the renew_id is not the next".into()
        }
        Lost::Gone => "that token was never issued".into(),
    }
}

fn not_bumped(view: &NotBumpedView) -> String {
    let text = view.clone().into_not_bumped();
    text.map_or_else(|| json!(view).to_string(), |why| why.to_string())
}
