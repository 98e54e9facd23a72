//! Who waits through this store: what was asked before, which places must be kept, and a watch on the one key whose end
//! makes room, so that a hand-over wakes one waiter and not all (FB-97).

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_client::{EventType, GetOptions, SortOrder, SortTarget, WatchFilterType, WatchOptions};
use leasehold_core::{BootTime, Ttl};

use super::{
    Inner,
    look::{Place, View},
};
use crate::{
    StoreError,
    clock::{BootClock, Clock},
};

/// So many keys are watched and so many asks remembered at most; beyond, waiters learn by asking.
const MOST: usize = 10_000;
/// A watch that is older is begun anew by the next ask.
const LONGEST: Duration = Duration::from_secs(600);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Waiting {
    inner: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    /// By the id of the ask; when its place was kept alive last, if it has one.
    asked: HashMap<i64, Option<BootTime>>,
    watched: HashSet<String>,
}

impl Waiting {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The places that nobody will come back to.
    pub(super) fn take_places(&self) -> Vec<i64> {
        let mut lists = self.lists();
        let asked = std::mem::take(&mut lists.asked);
        asked
            .into_iter()
            .filter_map(|(id, kept)| kept.map(|_| id))
            .collect()
    }
}

impl Inner {
    /// Whether this ask came before: who asks once may only want to know.
    pub(super) fn asks_again(&self, id: i64) -> bool {
        let mut lists = self.waiting.lists();
        if lists.asked.len() >= MOST {
            lists.asked.retain(|_, kept| kept.is_some());
        }
        lists.asked.insert(id, None).is_some()
    }

    /// Whether a place must be kept alive now: four times in its ttl.
    pub(super) fn is_time_to_keep(&self, id: i64, ttl: Ttl) -> bool {
        let now = BootClock::new().now();
        let mut lists = self.waiting.lists();
        let kept = lists.asked.entry(id).or_default();
        let due = kept.is_none_or(|kept| now.since(kept) >= ttl.get() / 4);
        if due {
            *kept = Some(now);
        }
        due
    }

    pub(super) fn forget_place(&self, id: i64) {
        self.waiting.lists().asked.remove(&id);
    }

    /// The key in front of `place`.
    pub(super) async fn before(
        &self,
        view: &View,
        place: &Place,
    ) -> Result<Option<String>, StoreError> {
        let options = GetOptions::new()
            .with_range(view.keys.end())
            .with_sort(SortTarget::Create, SortOrder::Descend)
            .with_max_create_revision(place.rev - 1)
            .with_limit(1);
        let mut client = self.link.client();
        let got = self
            .link
            .read(client.get(view.keys.folder(), Some(options)))
            .await?;
        let key = got
            .kvs()
            .first()
            .map(|kv| String::from_utf8_lossy(kv.key()).into_owned());
        Ok(key)
    }

    /// Ticks when this key is deleted after `revision`. A watch that fails ticks too: the waiter asks, and asks for a new
    /// one. So does one whose revision was compacted.
    pub(super) fn watch(&self, key: String, revision: i64) {
        let mut lists = self.waiting.lists();
        if lists.watched.len() >= MOST || !lists.watched.insert(key.clone()) {
            return;
        }
        drop(lists);
        let Some(inner) = self.me.upgrade() else {
            return;
        };
        tokio::spawn(async move {
            let watched = tokio::time::timeout(LONGEST, inner.deleted(&key, revision + 1)).await;
            if !matches!(watched, Ok(Ok(()))) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            inner.waiting.lists().watched.remove(&key);
            inner.freed();
        });
    }

    async fn deleted(&self, key: &str, from: i64) -> Result<(), etcd_client::Error> {
        let options = WatchOptions::new()
            .with_start_revision(from)
            .with_filters([WatchFilterType::NoPut]);
        let mut stream = self.link.client().watch(key, Some(options)).await?;
        while let Some(news) = stream.message().await? {
            let deleted = |event: &etcd_client::Event| event.event_type() == EventType::Delete;
            if news.canceled() || news.events().iter().any(deleted) {
                break;
            }
        }
        Ok(())
    }
}
