//! Requests to servers: the next one is tried where nothing was sent, and what may have been done is `Unknown`.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{address::Address, reply::Reply};
use crate::{
    StoreError,
    store::remote::{unavailable, unknown, with_causes},
};

/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a request may take beside what it is told to wait; a keeper gives up long before.
pub(super) const CALL: Duration = Duration::from_secs(10);
/// Shorter than a server keeps an idle connection.
const IDLE: Duration = Duration::from_secs(30);
/// An answer larger than this is none of a Leasehold server.
const LARGEST: usize = 128 * 1024 * 1024;

/// Connections to the servers of one store.
#[derive(Debug)]
pub(super) struct Link {
    address: Address,
    client: Client<HttpConnector, Full<Bytes>>,
    /// What the servers are shown, marked as secret.
    credential: Option<HeaderValue>,
    /// The server that answered last.
    preferred: AtomicUsize,
}

/// What is asked of a server.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Bytes,
    /// How long the server may hold it back.
    pub(super) wait: Duration,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Call {
    /// A question that changes nothing.
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Bytes::new(),
            wait: Duration::ZERO,
        }
    }

    /// JSON to a route that may change something.
    pub(super) fn post(path: &str, body: Vec<u8>) -> Self {
        Self {
            method: Method::POST,
            path: path.to_owned(),
            body: body.into(),
            wait: Duration::ZERO,
        }
    }

    fn request(
        &self,
        address: &Address,
        endpoint: usize,
    ) -> Result<Request<Full<Bytes>>, StoreError> {
        let invalid = |what: String| StoreError::Invalid { what };
        let place = address.at(endpoint, &self.path).map_err(invalid)?;
        let mut request = Request::builder().method(self.method.clone()).uri(place);
        if self.method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::new(self.body.clone()))
            .map_err(|error| invalid(error.to_string()))
    }
}

impl Link {
    pub(super) fn new(address: Address, credential: Option<HeaderValue>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Self {
            address,
            client,
            credential,
            preferred: AtomicUsize::new(0),
        }
    }

    /// Asks the server that answered last, and the next one if that one is certainly not doing it.
    pub(super) async fn call(&self, call: &Call) -> Result<Answer, StoreError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.address.endpoints.len();
        let mut last = unavailable("there is no server");
        for endpoint in first..first + count {
            let end = self.try_one(call, endpoint).await;
            match end {
                Err(error @ StoreError::Unavailable { .. }) => last = error,
                // It may be done, so the same request goes nowhere else; the next one asks another server first.
                Err(error @ StoreError::Unknown { .. }) if call.method != Method::GET => {
                    self.prefer(endpoint + 1);
                    return Err(error);
                }
                Err(StoreError::Unknown { what }) => last = StoreError::Unavailable { what },
                end => {
                    self.prefer(endpoint);
                    return end;
                }
            }
        }
        Err(last)
    }

    fn prefer(&self, endpoint: usize) {
        let place = endpoint.checked_rem(self.address.endpoints.len());
        self.preferred.store(place.unwrap_or(0), Ordering::Relaxed);
    }

    async fn try_one(&self, call: &Call, endpoint: usize) -> Result<Answer, StoreError> {
        let response = self.open(call, endpoint);
        let whole = async {
            let (parts, body) = response.await?.into_parts();
            let body = Limited::new(body, LARGEST).collect().await;
            let body = body.map_err(|error| unknown(format!("the answer broke off: {error}")))?;
            Ok::<_, StoreError>(Answer {
                status: parts.status,
                headers: parts.headers,
                body: body.to_bytes(),
            })
        };
        let limit = CALL + call.wait;
        let answer = timeout(limit, whole).await;
        let answer = answer.map_err(|_| unknown(format!("no answer within {limit:?}")))??;
        answer.judged()
    }

    /// The beginning of an answer.
    pub(super) async fn open(
        &self,
        call: &Call,
        endpoint: usize,
    ) -> Result<Response<hyper::body::Incoming>, StoreError> {
        let mut request = call.request(&self.address, endpoint)?;
        if let Some(credential) = &self.credential {
            let headers = request.headers_mut();
            headers.insert(header::AUTHORIZATION, credential.clone());
        }
        self.client.request(request).await.map_err(|error| {
            let said = with_causes(&error);
            match error.is_connect() {
                true => unavailable(format!("the server was not reached: {said}")),
                false => unknown(format!("the connection to the server broke: {said}")),
            }
        })
    }

    /// The server that is asked first.
    pub(super) fn first(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// Another server may do better.
    pub(super) fn avoid(&self, endpoint: usize) {
        self.prefer(endpoint + 1);
    }
}

impl Answer {
    /// An error, if the server had no answer.
    fn judged(self) -> Result<Self, StoreError> {
        if self.status.is_success() || self.status == StatusCode::NOT_FOUND {
            return Ok(self);
        }
        let detail = || self.detail();
        match self.json::<Reply>() {
            Ok(Reply::Error { kind, detail }) => Err(kind.with(detail)),
            Ok(_) => Ok(self),
            // 502 and 504 come from what stands between.
            Err(_) => Err(match self.status {
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                    unavailable(detail())
                }
                status if status.is_client_error() => StoreError::Invalid { what: detail() },
                _ => unknown(detail()),
            }),
        }
    }

    /// The answer read as what it should be.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| unknown(format!("the answer is none of a Leasehold server: {error}")))
    }

    /// What the server says is wrong.
    pub(super) fn detail(&self) -> String {
        let body: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let detail = body.as_ref().and_then(|body| body["detail"].as_str());
        match detail {
            Some(detail) => detail.chars().take(1000).collect(),
            None => format!("the server answered {}", self.status),
        }
    }
}
