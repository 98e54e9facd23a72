//! `http://`: a Leasehold server, or several, over any other store. What travels is in [`ask`], [`reply`] and [`view`].
//!
//! Who judges expiry, by which clock, where tokens come from and what a crash keeps: the store behind the server; its
//! words are in the profile. The server serves waiters in order. An answer that did not come is `Unknown`.

mod address;
pub mod ask;
pub mod fencing;
mod gather;
mod link;
mod listen;
pub mod reply;
#[cfg(test)]
mod tests;
pub mod view;

use std::{
    future::Future,
    sync::{Arc, Once},
    time::Duration,
};

use async_trait::async_trait;
use http::HeaderValue;
use leasehold_core::{
    Command, Entry, Fence, Key, LeaseName, Op, Outcome, Pair, Resource, Status, Value, Work,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use self::{
    address::Address,
    gather::Job,
    link::{Answer, Call, Link},
    reply::Reply,
    view::{EntryView, Events, FenceView, Findings, LeaseView, Leases, PAGE, ProfileView, WAIT_MS},
};
use super::{
    Changes, Finding, Profile, Recorded, Store, StoreError,
    remote::{Thread, unavailable, unknown},
};

pub use address::PORT;

/// A store behind a server.
#[derive(Debug)]
pub struct HttpStore {
    profile: Profile,
    link: Arc<Link>,
    jobs: mpsc::UnboundedSender<Job>,
    changes: watch::Sender<u64>,
    listening: Once,
    /// Its own thread, so that no work of the user keeps a renewal waiting (H10).
    thread: Thread,
}

impl HttpStore {
    /// Reaches one of the servers that `url` names and asks what its store can do.
    ///
    /// `Invalid` if the URL is wrong or a server refuses us, `Unavailable` if none is reached.
    pub async fn connect(url: &str) -> Result<Arc<Self>, StoreError> {
        Self::connect_as(url, None).await
    }

    /// The same, for servers that ask who calls: `secret` is what `leasehold token create` printed.
    pub async fn connect_as(url: &str, secret: Option<&str>) -> Result<Arc<Self>, StoreError> {
        let credential = secret.map(|secret| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", secret.trim()))?;
            value.set_sensitive(true);
            Ok::<_, http::header::InvalidHeaderValue>(value)
        });
        let credential = credential.transpose().map_err(|_| StoreError::Invalid {
            what: "the credential is not allowed: it is one line of letters and digits".to_owned(),
        })?;
        let address = Address::parse(url).map_err(|why| StoreError::Invalid {
            what: format!("this URL of a server is not allowed: {why}"),
        })?;
        let thread = Thread::start("leasehold-http")?;
        let link = Arc::new(Link::new(address, credential));
        let (jobs, waiting) = mpsc::unbounded_channel();
        thread.spawn(gather::gather(link.clone(), waiting));
        let mut store = Self {
            profile: profile(None),
            link,
            jobs,
            changes: watch::Sender::default(),
            listening: Once::new(),
            thread,
        };
        let view: ProfileView = store.read("/v1/store".to_owned()).await?;
        store.profile = profile(Some(view));
        Ok(Arc::new(store))
    }

    /// Runs `work` on the store's own thread. Its end is awaited, but not bound to this call.
    async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        /// A call that nobody waits for any more is cut off: a server that holds it back learns that.
        struct Cut(tokio::task::AbortHandle);
        impl Drop for Cut {
            fn drop(&mut self) {
                self.0.abort();
            }
        }
        let task = self.thread.spawn(work);
        let _cut = Cut(task.abort_handle());
        task.await
            .map_err(|_| unknown("the store's thread ended"))?
    }

    async fn call(&self, call: Call) -> Result<Answer, StoreError> {
        let link = self.link.clone();
        self.run(async move { link.call(&call).await }).await
    }

    /// What a path has; an error if nothing is there.
    async fn read<T: DeserializeOwned>(&self, path: String) -> Result<T, StoreError> {
        match self.find(path).await? {
            Some(found) => Ok(found),
            None => Err(StoreError::Invalid {
                what: "this is no Leasehold server, or one of another version".to_owned(),
            }),
        }
    }

    /// What a path has, if it has anything.
    async fn find<T: DeserializeOwned>(&self, path: String) -> Result<Option<T>, StoreError> {
        let answer = self.call(Call::get(path)).await?;
        match is_missing(&answer) {
            true => Ok(None),
            false => answer.json().map(Some).map_err(as_read),
        }
    }

    async fn act(&self, path: &str) -> Result<serde_json::Value, StoreError> {
        self.call(Call::post(path, b"{}".to_vec())).await?.json()
    }
}

#[async_trait]
impl Store for HttpStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        let (job, answer) = Job::new(op)?;
        let closed = || unavailable("the store is closed");
        self.jobs.send(job).map_err(|_| closed())?;
        answer.await.map_err(|_| unknown("the store was closed"))?
    }

    async fn apply_all(&self, ops: Vec<Op>) -> Vec<Result<Outcome, StoreError>> {
        let mut waiting = Vec::with_capacity(ops.len());
        for op in ops {
            waiting.push(Job::new(op).map(|(job, answer)| (self.jobs.send(job).is_ok(), answer)));
        }
        let mut outcomes = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            outcomes.push(match waiting {
                Ok((true, answer)) => answer
                    .await
                    .unwrap_or_else(|_| Err(unknown("the store was closed"))),
                Ok((false, _)) => Err(unavailable("the store is closed")),
                Err(error) => Err(error),
            });
        }
        outcomes
    }

    async fn apply_waiting(&self, op: Op, wait: Duration) -> Result<Outcome, StoreError> {
        let wait = wait.min(Duration::from_millis(WAIT_MS));
        let Op::Lease {
            name,
            command: Command::Acquire(_),
        } = &op
        else {
            return self.apply(op).await;
        };
        if wait < Duration::from_millis(1) {
            return self.apply(op).await;
        }
        let path = format!("/v1/leases/{}/acquire", encoded(name.as_str()));
        let body = serde_json::to_value(ask::Ask::from(op.clone())).map(|mut body| {
            if let Some(fields) = body.as_object_mut() {
                fields.remove("op");
                fields.remove("lease");
                fields.insert("wait_ms".into(), view::millis(wait).into());
            }
            body.to_string().into_bytes()
        });
        let body = body.map_err(|error| unavailable(error.to_string()))?;
        let call = Call {
            wait,
            ..Call::post(&path, body)
        };
        let answer = self.call(call).await?;
        match answer.json::<Reply>() {
            Ok(reply) => reply.into_outcome(&op),
            Err(error) => Err(error),
        }
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        let path = format!("/v1/leases/{}", encoded(name.as_str()));
        let view: Option<LeaseView> = self.find(path).await?;
        Ok(view.map(Status::from))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let path = format!("/v1/leases?prefix={}&limit={limit}", encoded(prefix));
        let found: Leases = self.read(path).await?;
        Ok(found.leases.into_iter().map(Status::from).collect())
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        let answer = self
            .call(Call::get(format!("/v1/kv/{}", encoded(key.as_str()))))
            .await?;
        if is_missing(&answer) {
            return Ok(None);
        }
        let fence = match answer.headers.get("fencing-token") {
            Some(header) => {
                Some(fencing::parse(header.as_bytes()).map_err(|what| unavailable(&what))?)
            }
            None => None,
        };
        let value = Value::new(&answer.body)?;
        Ok(Some(Pair { value, fence }))
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        let path = format!("/v1/fences/{}", encoded(resource.as_str()));
        let view: Option<FenceView> = self.find(path).await?;
        Ok(view.map(Fence::from))
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        let (lease, key) = (encoded(work.lease.as_str()), encoded(work.key.as_str()));
        let view: Option<EntryView> = self.find(format!("/v1/ledger/{lease}/{key}")).await?;
        let entry = view.map(EntryView::into_entry).transpose();
        entry.map_err(|what| unavailable(&what))
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        mut after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let place = match name {
            Some(name) => format!("/v1/leases/{}/history", encoded(name.as_str())),
            None => "/v1/history".to_owned(),
        };
        let mut events = Vec::new();
        while events.len() < limit {
            let part = (limit - events.len()).min(PAGE);
            let page: Events = self
                .read(format!("{place}?after={after}&limit={part}"))
                .await?;
            let full = page.events.len() >= part;
            for view in page.events {
                after = after.max(view.number);
                let event = view.into_recorded();
                events.push(
                    event.ok_or_else(|| unavailable("an event of the server lacks a field"))?,
                );
            }
            if !full {
                break;
            }
        }
        Ok(events)
    }

    fn changes(&self) -> Changes {
        let changes = Changes::new(self.changes.subscribe());
        self.listening.call_once(|| {
            self.thread
                .spawn(listen::listen(self.link.clone(), self.changes.clone()));
        });
        changes
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        let done = self.act("/v1/admin/collect").await?;
        done["removed"]
            .as_u64()
            .ok_or_else(|| unknown("the server did not say how many rows went"))
    }

    async fn evict(&self) -> Result<Option<String>, StoreError> {
        let done = self.act("/v1/admin/evict").await?;
        Ok(done["evicted"].as_str().map(str::to_owned))
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        let found: Findings = self.read("/v1/doctor".to_owned()).await?;
        Ok(found.findings)
    }
}

/// A problem that says so, and not the page of something else on that port.
fn is_missing(answer: &Answer) -> bool {
    answer.status == http::StatusCode::NOT_FOUND
}

/// A question that cannot be understood was answered by nothing that changes.
fn as_read(error: StoreError) -> StoreError {
    match error {
        StoreError::Unknown { what } => StoreError::Unavailable { what },
        error => error,
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// What the server's store is; before that is known, a store that can do nothing.
fn profile(view: Option<ProfileView>) -> Profile {
    /// A store's words live as long as the program: a profile is asked for once in a connection.
    fn word(text: String) -> &'static str {
        Box::leak(text.into_boxed_str())
    }
    let known = view.is_some();
    let view = view.unwrap_or_else(ProfileView::nothing);
    Profile {
        scheme: "http",
        clock: word(format!("behind the server: {}", view.clock)),
        tokens: word(view.tokens),
        durability: word(view.durability),
        min_ttl: view.min_ttl_ms,
        extension: Duration::from_millis(view.extension_ms),
        dense: view.dense,
        fifo: known,
        lock_delay: view.lock_delay,
        pairs: view.pairs,
        fences: view.fences,
        ledger: view.ledger,
        history: view.history,
    }
}
