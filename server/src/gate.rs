//! What every request passes: pages of others are kept out, and it is counted.
//!
//! A server on loopback without credentials is open to the programs of its machine, but must not be to the pages in its
//! browsers: a page of somebody else is refused by `Sec-Fetch-Site` and `Origin`, a name that was bent to point here by `Host`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{MatchedPath, State},
    http::{HeaderMap, HeaderValue, Request, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{app::App, problem::Problem};

pub(crate) async fn pass(
    State(app): State<Arc<App>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let received = app.clock.now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let host = request.uri().authority().cloned();
    let mut response = match admit(&app, host, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let took = app.clock.now().since(received);
    app.metrics.answered(route, response.status().as_u16());
    if response.status().is_server_error() {
        tracing::warn!(
            route,
            status = response.status().as_u16(),
            ?took,
            "a request failed"
        );
    }
    response
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
