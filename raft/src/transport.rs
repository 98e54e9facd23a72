//! Between members: a call that is answered, was certainly not sent, or is lost with nobody knowing what became of it.

use std::{fmt, sync::Mutex, sync::PoisonError, time::Duration};

use async_trait::async_trait;

use crate::wire::{Request, Response};

/// Whom to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Whoever answers under another id is refused; `None` takes anybody.
    pub(crate) node: Option<u64>,
    pub(crate) address: String,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    /// The other side never saw the request.
    NotSent(String),
    /// It may have.
    Lost(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::NotSent(why) | NoAnswer::Lost(why) => f.write_str(why),
        }
    }
}

/// How calls get through. The real one is TCP; the simulation has its own. Acts and changes arrive once or not at all;
/// what the engines say to each other may come twice.
#[async_trait]
pub(crate) trait Transport: fmt::Debug + Send + Sync + 'static {
    async fn call(
        &self,
        to: &Peer,
        request: &Request,
        patience: Duration,
    ) -> Result<Response, NoAnswer>;
}

/// Whoever answers the calls that come.
#[async_trait]
pub(crate) trait Answers: Send + Sync + 'static {
    async fn answer(&self, request: Request) -> Response;
    /// Makes the cluster of a greeting one's own: only a member that belongs to none yet does.
    async fn adopt(&self, cluster: u128) -> Result<(), String>;
}

/// Who a member says it is.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) node: u64,
    cluster: Mutex<Option<u128>>,
}

impl Card {
    pub(crate) fn new(node: u64, cluster: Option<u128>) -> Self {
        let cluster = Mutex::new(cluster);
        Self { node, cluster }
    }

    pub(crate) fn cluster(&self) -> Option<u128> {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_cluster(&self, cluster: u128) {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(cluster);
    }
}
