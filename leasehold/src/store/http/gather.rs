//! Operations of one process, gathered: what comes while others are on their way goes in one request together, so that a
//! thousand keepers renew with a handful of requests. Nothing waits to be gathered.

use std::sync::Arc;

use leasehold_core::{Op, Outcome};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{
    ask::Ask,
    link::{Call, Link},
    view::{BATCH_OPS, BODY_BYTES, Replies},
};
use crate::{StoreError, store::remote::unknown};

/// Requests on their way at a time. More than one, or a slow one would hold up all others.
const AT_ONCE: usize = 4;
/// A request is begun before it would be larger than half of what a server takes.
const ENOUGH: usize = BODY_BYTES / 2;

/// One operation, and where its answer goes.
pub(super) struct Job {
    ask: Vec<u8>,
    op: Op,
    to: oneshot::Sender<Result<Outcome, StoreError>>,
}

impl Job {
    pub(super) fn new(op: Op) -> Result<(Self, Waiting), StoreError> {
        let (to, waiting) = oneshot::channel();
        let ask = serde_json::to_vec(&Ask::from(op.clone()));
        let ask = ask.map_err(|error| StoreError::Invalid {
            what: format!("the operation cannot be written as JSON: {error}"),
        })?;
        Ok((Self { ask, op, to }, waiting))
    }
}

/// The answer, when it comes.
pub(super) type Waiting = oneshot::Receiver<Result<Outcome, StoreError>>;

/// Sends what comes, until nobody can send any more.
pub(super) async fn gather(link: Arc<Link>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut left = None;
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let first = match left.take() {
            Some(job) => Some(job),
            None => jobs.recv().await,
        };
        let Some(first) = first else {
            return;
        };
        // Whoever is about to ask, asks now.
        tokio::task::yield_now().await;
        let mut size = first.ask.len();
        let mut group = vec![first];
        while group.len() < BATCH_OPS
            && let Ok(job) = jobs.try_recv()
        {
            size += job.ask.len() + 1;
            if size > ENOUGH {
                left = Some(job);
                break;
            }
            group.push(job);
        }
        // Who has gone in the meantime asks for nothing: it was not sent.
        group.retain(|job| !job.to.is_closed());
        if group.is_empty() {
            continue;
        }
        let link = link.clone();
        tokio::spawn(async move {
            send(&link, group).await;
            drop(place);
        });
    }
}

async fn send(link: &Link, group: Vec<Job>) {
    let mut body = br#"{"ops":["#.to_vec();
    for (place, job) in group.iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&job.ask);
    }
    body.extend_from_slice(b"]}");
    let end = match link.call(&Call::post("/v1/batch", body)).await {
        Ok(answer) => answer.json::<Replies>(),
        Err(error) => Err(error),
    };
    let count = group.len();
    match end {
        Ok(replies) if replies.answers.len() == count => {
            for (job, reply) in group.into_iter().zip(replies.answers) {
                // Who has gone does not want it.
                let _ = job.to.send(reply.into_outcome(&job.op));
            }
        }
        end => {
            let error = end.err();
            let error = error
                .unwrap_or_else(|| unknown("the server answered another number of operations"));
            for job in group {
                let _ = job.to.send(Err(error.clone()));
            }
        }
    }
}
