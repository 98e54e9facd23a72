//! Every route, and what it is answered by. [`ROUTES`] is what the documents and the tests go by.

use std::sync::Arc;

use axum::{
    Router,
    http::{Method, StatusCode, Uri},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};

use crate::{app::App, data, gate, leases, operate, problem::Problem, watch};

/// The description of this interface that the server serves.
pub const OPENAPI: &str = include_str!("openapi.json");

macro_rules! routes {
    ($($path:literal => { $($method:ident),+ } $handler:expr;)+) => {
        /// Every route: its methods and its path.
        pub const ROUTES: &[(&[&str], &str)] = &[$((&[$(stringify!($method)),+], $path)),+];

        fn all() -> Router<Arc<App>> {
            let router = Router::new();
            $(let router = router.route($path, with_problem($handler));)+
            router
        }
    };
}

routes! {
    "/v1/leases" => { get } get(leases::list);
    "/v1/leases/{lease}" => { get } get(leases::status);
    "/v1/leases/{lease}/acquire" => { post } post(leases::acquire);
    "/v1/leases/{lease}/renew" => { post } post(leases::renew);
    "/v1/leases/{lease}/release" => { post } post(leases::release);
    "/v1/leases/{lease}/force-release" => { post } post(leases::force_release);
    "/v1/leases/{lease}/history" => { get } get(leases::history_of);
    "/v1/batch" => { post } post(leases::batch);
    "/v1/history" => { get } get(leases::history);
    "/v1/watch" => { get } get(watch::watch);
    "/v1/kv/{key}" => { get, put, delete } get(data::get).put(data::put).delete(data::delete);
    "/v1/fences/{resource}" => { get } get(data::fence);
    "/v1/fences/{resource}/raise" => { post } post(data::raise);
    "/v1/fences/{resource}/admit" => { post } post(data::admit);
    "/v1/fences/{resource}/done" => { post } post(data::done);
    "/v1/ledger/{lease}/{key}" => { get } get(data::entry);
    "/v1/ledger/{lease}/{key}/begin" => { post } post(data::begin);
    "/v1/ledger/{lease}/{key}/complete" => { post } post(data::complete);
    "/v1/ledger/{lease}/{key}/abandon" => { post } post(data::abandon);
    "/v1/store" => { get } get(operate::store);
    "/v1/doctor" => { get } get(operate::doctor);
    "/v1/admin/bump" => { post } post(operate::bump);
    "/v1/admin/collect" => { post } post(operate::collect);
    "/v1/admin/evict" => { post } post(operate::evict);
    "/healthz" => { get } get(operate::healthz);
    "/readyz" => { get } get(operate::readyz);
    "/metrics" => { get } get(operate::metrics);
    "/openapi.json" => { get } get(operate::openapi);
}

pub(crate) fn router(app: Arc<App>) -> Router {
    all()
        .fallback(unknown)
        .layer(middleware::from_fn_with_state(app.clone(), gate::pass))
        .with_state(app)
}

fn with_problem(handler: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    handler.fallback(wrong_method)
}

async fn unknown(uri: Uri) -> Problem {
    let path: String = uri
        .path()
        .chars()
        .take(60)
        .flat_map(char::escape_default)
        .collect();
    Problem::missing(format!(
        "there is no {path}; GET /openapi.json lists all there is"
    ))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let path: String = uri
        .path()
        .chars()
        .take(60)
        .flat_map(char::escape_default)
        .collect();
    let detail = format!("{method} does nothing at {path}; GET /openapi.json lists all there is");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail).into_response()
}
