//! Requests to the API server, each with an end (K8, FB-24), and what came of them.

use std::{fmt, time::Duration};

use kube::{
    Client, Config,
    api::{
        Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams, WatchEvent,
        WatchParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{sync::watch, time::timeout};

use super::{
    address::Address,
    fault::{self, Kind},
};
use crate::StoreError;

/// A request that takes longer got no answer. A keeper gives up earlier if its ttl is short.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a watch lasts before it is begun anew; what the API server allows is 5 to 10 minutes.
const WATCH: u32 = 290;
/// Between two watches when one could not be had.
const REST: Duration = Duration::from_secs(5);

/// What came of a write that names the version it replaces.
#[derive(Debug)]
pub(super) enum Sent {
    Done(Box<DynamicObject>),
    /// Certainly not done: it is another version now, or gone, or there already.
    Conflict,
}

/// The Leases of one namespace.
#[derive(Clone)]
pub(super) struct Link {
    client: Client,
    pub(super) namespace: String,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.namespace).finish()
    }
}

impl Link {
    /// No request is sent yet.
    pub(super) async fn open(address: &Address) -> Result<Self, StoreError> {
        let mut config = config(address).await?;
        config.connect_timeout = Some(PATIENCE);
        // A retry is the caller's to decide: it knows what may have happened.
        config.default_retry = false;
        let client = Client::try_from(config)
            .map_err(|error| fault::invalid(format!("the credentials cannot be used: {error}")))?;
        Ok(Self {
            client,
            namespace: address.namespace.clone(),
        })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    fn leases(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &lease_kind())
    }

    /// The newest version: without a resourceVersion the API server asks its quorum (K9).
    pub(super) async fn get(&self, name: &str) -> Result<Option<DynamicObject>, StoreError> {
        self.within(Kind::Read, self.leases().get_opt(name)).await
    }

    pub(super) async fn list(&self) -> Result<Vec<DynamicObject>, StoreError> {
        let leases = self.leases();
        let list = self
            .within(Kind::Read, leases.list(&ListParams::default()))
            .await?;
        Ok(list.items)
    }

    pub(super) async fn create(&self, name: &str) -> Result<Sent, StoreError> {
        let mut object = DynamicObject::new(name, &lease_kind());
        object.data = serde_json::json!({"spec": {"leaseTransitions": 0}});
        let leases = self.leases();
        let params = PostParams::default();
        self.sent(&[409], leases.create(&params, &object)).await
    }

    /// `object` carries the uid and the version that it replaces (A6).
    pub(super) async fn replace(
        &self,
        name: &str,
        object: &DynamicObject,
    ) -> Result<Sent, StoreError> {
        let leases = self.leases();
        let params = PostParams::default();
        self.sent(&[404, 409], leases.replace(name, &params, object))
            .await
    }

    pub(super) async fn version(&self) -> Result<String, StoreError> {
        let info = self
            .within(Kind::Read, self.client.apiserver_version())
            .await?;
        Ok(info.git_version)
    }

    async fn sent(
        &self,
        conflicts: &[u16],
        call: impl Future<Output = kube::Result<DynamicObject>>,
    ) -> Result<Sent, StoreError> {
        match timeout(PATIENCE, call).await {
            Ok(Ok(object)) => Ok(Sent::Done(Box::new(object))),
            Ok(Err(kube::Error::Api(status))) if conflicts.contains(&status.code) => {
                Ok(Sent::Conflict)
            }
            Ok(Err(error)) => Err(fault::of(&error, Kind::Write, &self.namespace)),
            Err(_) => Err(fault::unknown(&silent())),
        }
    }

    async fn within<T>(
        &self,
        kind: Kind,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, StoreError> {
        match timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(fault::of(&error, kind, &self.namespace)),
            Err(_) => Err(fault::unavailable(&silent())),
        }
    }
}

fn silent() -> String {
    format!("the API server did not answer within {PATIENCE:?}")
}

async fn config(address: &Address) -> Result<Config, StoreError> {
    let wrong = |error: &dyn std::fmt::Display| {
        fault::invalid(format!(
            "no credentials for Kubernetes: {error}; set KUBECONFIG, give ?kubeconfig=PATH, or run in a pod with a service account"
        ))
    };
    let context = address.context.clone();
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &address.kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
        return Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| wrong(&error));
    }
    if options.context.is_some() {
        return Config::from_kubeconfig(&options)
            .await
            .map_err(|error| wrong(&error));
    }
    Config::infer().await.map_err(|error| wrong(&error))
}

fn lease_kind() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"),
        "leases",
    )
}

/// Ticks when a Lease became free, for ever. One watch for all who wait (FB-97); a broken one is begun anew after a
/// rest, with a tick for what may have been missed.
pub(super) async fn listen(link: Link, changes: watch::Sender<u64>) {
    use futures_util::{StreamExt, pin_mut};
    let leases = link.leases();
    while !changes.is_closed() {
        let began = leases.list(&ListParams::default().limit(1)).await;
        if let Ok(list) = began {
            let from = list.metadata.resource_version.unwrap_or_default();
            let params = WatchParams::default().timeout(WATCH);
            if let Ok(events) = leases.watch(&params, &from).await {
                changes.send_modify(|count| *count += 1);
                pin_mut!(events);
                while let Some(Ok(event)) = events.next().await {
                    match event {
                        WatchEvent::Error(_) => break,
                        event if frees(&event) => changes.send_modify(|count| *count += 1),
                        _ => {}
                    }
                }
            }
        }
        tokio::time::sleep(REST).await;
    }
}

fn frees(event: &WatchEvent<DynamicObject>) -> bool {
    match event {
        WatchEvent::Deleted(_) => true,
        WatchEvent::Modified(lease) => lease.data["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .is_empty(),
        _ => false,
    }
}
