//! What every request passes: who asks and whether it may, and at a server without credentials that it is no page of
//! others. Then it is counted, and what changes something is told to the audit log.
//!
//! A server on loopback without credentials is open to the programs of its machine, but must not be to the pages in its
//! browsers: a page of somebody else is refused by `Sec-Fetch-Site` and `Origin`, a name that was bent to point here by `Host`.

use std::{collections::HashMap, sync::Arc};

use axum::{
    body::Body,
    extract::{FromRequestParts, MatchedPath, Query, RawPathParams, State},
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    app::App,
    problem::Problem,
    rights::{Caller, Credential, needed},
};

pub(crate) async fn pass(
    State(app): State<Arc<App>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let received = app.clock.now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let method = request.method().clone();
    let (caller, mut response) = match identify(&app, route, request).await {
        Ok((caller, request)) => (caller, next.run(request).await),
        Err((caller, problem)) => (caller, problem.into_response()),
    };
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    let status = response.status();
    let took = app.clock.now().since(received);
    app.metrics.answered(route, status.as_u16());
    if app.config.credentials.is_some()
        && (method != Method::GET || status == StatusCode::FORBIDDEN)
    {
        let caller = caller
            .as_ref()
            .map_or("nobody", |caller| caller.name.as_str());
        tracing::info!(target: "audit", caller, %method, route, status = status.as_u16());
    }
    if status.is_server_error() {
        tracing::warn!(route, status = status.as_u16(), ?took, "a request failed");
    }
    response
}

type Known = Option<Arc<Credential>>;

/// Who asks, and whether it may. At a server with credentials nobody unknown learns more than that.
async fn identify(
    app: &App,
    route: &str,
    request: Request<Body>,
) -> Result<(Known, Request<Body>), (Known, Problem)> {
    let (mut parts, body) = request.into_parts();
    let caller = match &app.config.credentials {
        // A probe sends no secret, and learns only that the process answers.
        Some(_) if route == "/healthz" => None,
        None => {
            let host = parts.uri.authority().cloned();
            admit(app, host, &parts.headers).map_err(|problem| (None, problem))?;
            None
        }
        Some(credentials) => {
            let Some(caller) = credentials.caller(&parts.headers) else {
                return Err((None, Problem::unauthorized()));
            };
            let params = RawPathParams::from_request_parts(&mut parts, &())
                .await
                .ok();
            let name = params
                .as_ref()
                .and_then(|params| params.iter().next())
                .map_or("", |(_, name)| name);
            let prefix = prefix(&parts.uri);
            let known = Caller(Some(caller.clone()));
            match needed(&parts.method, route, name, &prefix) {
                Some((right, name)) if route != "none" && !known.may(right, name) => {
                    return Err((Some(caller), Problem::forbidden()));
                }
                _ => Some(caller),
            }
        }
    };
    parts.extensions.insert(Caller(caller.clone()));
    Ok((caller, Request::from_parts(parts, body)))
}

/// The prefix that a list or a stream is asked for; one that cannot be read is all.
fn prefix(uri: &Uri) -> String {
    let query: Result<Query<HashMap<String, String>>, _> = Query::try_from_uri(uri);
    query
        .ok()
        .and_then(|Query(mut query)| query.remove("prefix"))
        .unwrap_or_default()
}

fn admit(app: &App, authority: Option<Authority>, headers: &HeaderMap) -> Result<(), Problem> {
    let foreign = |what: &str| {
        Problem::new(
            StatusCode::FORBIDDEN,
            "foreign-page",
            format!("{what}: this server answers no pages of others"),
        )
    };
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => {}
        Some(_) => return Err(foreign("the request comes from another site")),
    }
    let host = match (authority, text("host")) {
        (Some(authority), _) => Some(authority.host().to_owned()),
        (None, Some(host)) => host
            .parse::<Authority>()
            .ok()
            .map(|host| host.host().to_owned()),
        (None, None) => None,
    };
    // A bent name shows in a browser only, and that always names the host.
    if let Some(host) = host.filter(|host| !is_ours(app, host)) {
        let host: String = host
            .chars()
            .take(60)
            .flat_map(char::escape_default)
            .collect();
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong-host",
            format!("the host \"{host}\" is not allowed: name it with --host, or use an address"),
        ));
    }
    Ok(())
}

fn is_ours(app: &App, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || app
            .config
            .hosts
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(host))
}
