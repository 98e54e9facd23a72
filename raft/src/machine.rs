//! What the log makes of itself: the table of the rules, its history, and who the members are.
//!
//! Apply is arithmetic: the time comes from the entry, the same entries make the same table on every member, and nothing
//! is answered before the entry behind it is committed (R1, R2).

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{Stream, TryStreamExt};
use leasehold::{
    StoreError,
    store::{HISTORY_KEPT, LEDGER_KEPT, Recorded},
};
use leasehold_core::{Answer, Event, LockDelay, Outcome, Stamp, Table, Ttl};
use openraft::{
    OptionalSend, RaftSnapshotBuilder,
    storage::{EntryResponder, RaftStateMachine},
};
use tokio::sync::watch;

use crate::{
    codec::Extent,
    snapshot::{Contents, Image, Shelf},
    types::{
        Act, Batch, Came, Entry, LogId, Payload, RULES, SnapshotMeta, Stamped, StoredMembership,
        Types,
    },
};

type Snapshot = openraft::alias::SnapshotOf<Types, Image>;

/// Log time never steps further than the longest promise that could be waited for (A5).
const MAX_STEP: Duration =
    Duration::from_millis(Ttl::MAX.as_millis() as u64 + LockDelay::MAX.as_millis() as u64);

/// The replicated state. Clones share it: the engine writes, the store reads.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
    shelf: Shelf,
}

/// All of it, as one entry left it.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) table: Table,
    pub(crate) history: VecDeque<Recorded>,
    pub(crate) events_ever: u64,
    /// Every member there ever was: an id that left never comes back (R8).
    pub(crate) ever: BTreeSet<u64>,
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
}

impl Machine {
    /// The state of the snapshot on the shelf, or an empty one.
    pub(crate) fn on(shelf: Shelf) -> Result<Self, StoreError> {
        let state = match shelf.load()? {
            Some(image) => State::from_image(&image).map_err(|error| shelf.damaged(&error))?,
            None => State::default(),
        };
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
            changes: watch::Sender::default(),
            shelf,
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ticks when a lease was given back, on every member.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn apply_one(&self, entry: &Entry) -> io::Result<Vec<Came>> {
        let mut state = self.state();
        let came = state.apply(entry)?;
        drop(state);
        if came.iter().any(frees) {
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(came)
    }
}

/// Whether those who wait should ask again.
fn frees(came: &Came) -> bool {
    matches!(
        came,
        Came::Outcome(Outcome::Lease(Answer::Released | Answer::Bumped { .. }))
    )
}

impl State {
    /// One entry, at its own time.
    pub(crate) fn apply(&mut self, entry: &Entry) -> io::Result<Vec<Came>> {
        let came = match &entry.payload {
            Payload::Blank => Vec::new(),
            Payload::Normal(Batch(stamped)) => self.apply_batch(stamped, entry.log_id)?,
            Payload::Membership(membership) => {
                self.ever.extend(membership.nodes().map(|(id, _)| *id));
                let membership = membership.clone();
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                Vec::new()
            }
        };
        self.applied = Some(entry.log_id);
        Ok(came)
    }

    fn apply_batch(&mut self, stamped: &Stamped, at: LogId) -> io::Result<Vec<Came>> {
        if stamped.rules > RULES {
            return Err(io::Error::other(format!(
                "entry {} is by rules {}, this program knows {RULES}: upgrade this member",
                at.index, stamped.rules
            )));
        }
        let stamp = self.time(stamped, **at.committed_leader_id());
        self.table.advance(stamp.now);
        Ok(stamped
            .acts
            .iter()
            .map(|act| self.act(act, stamp))
            .collect())
    }

    /// When the entry happens. A stamp of another term than the entry's own counts for nothing, and none goes back or
    /// far ahead (R2, A5).
    fn time(&self, stamped: &Stamped, term: u64) -> Stamp {
        let last = self.table.now();
        let now = match stamped.term == term {
            true => stamped.stamp.now.clamp(last, last.plus(MAX_STEP)),
            false => last,
        };
        Stamp {
            now,
            wall: stamped.stamp.wall,
        }
    }

    fn act(&mut self, act: &Act, stamp: Stamp) -> Came {
        match act {
            Act::Op(op) => {
                let mut events = Vec::new();
                let outcome = self.table.apply(op.clone(), stamp, &mut events);
                events.into_iter().for_each(|event| self.record(event));
                Came::Outcome(outcome)
            }
            Act::Collect => Came::Collected(self.table.collect(stamp, LEDGER_KEPT) as u64),
        }
    }

    pub(crate) fn record(&mut self, event: Event) {
        self.events_ever += 1;
        if self.history.len() as u64 >= HISTORY_KEPT {
            self.history.pop_front();
        }
        self.history.push_back(Recorded {
            number: self.events_ever,
            event,
        });
    }

    /// What a snapshot of this state is of.
    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
        }
    }

    pub(crate) fn to_image(&self) -> Image {
        Image::new(&Contents {
            extent: Extent::from(&self.meta()),
            ever: self.ever.clone(),
            events_ever: self.events_ever,
            events: self
                .history
                .iter()
                .map(|recorded| recorded.event.clone())
                .collect(),
            table: self.table.snapshot(),
        })
    }

    pub(crate) fn from_image(image: &Image) -> io::Result<Self> {
        let contents = image.contents().map_err(io::Error::other)?;
        let table = Table::restore(&contents.table).map_err(io::Error::other)?;
        let meta = SnapshotMeta::try_from(contents.extent).map_err(io::Error::other)?;
        let kept = contents.events.len() as u64;
        let first = contents.events_ever.saturating_sub(kept);
        let history = contents.events.into_iter().zip(first + 1..);
        Ok(Self {
            table,
            history: history
                .map(|(event, number)| Recorded { number, event })
                .collect(),
            events_ever: contents.events_ever,
            ever: contents.ever,
            applied: meta.last_log_id,
            membership: meta.last_membership,
        })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Image;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let came = self.apply_one(&entry)?;
            if let Some(responder) = responder {
                responder.send(came);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        // The builder must not see what comes after: it has a copy.
        let frozen = self.state().clone();
        Self {
            state: Arc::new(Mutex::new(frozen)),
            changes: watch::Sender::default(),
            shelf: self.shelf.clone(),
        }
    }

    async fn install_snapshot(&mut self, _: &SnapshotMeta, image: Image) -> io::Result<()> {
        let state = State::from_image(&image)?;
        self.shelf.aside(move |shelf| shelf.store(&image)).await?;
        *self.state() = state;
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let load = |shelf: &Shelf| shelf.load().map_err(io::Error::other);
        let image = self.shelf.aside(load).await?;
        image.map(|image| image.with_meta()).transpose()
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let state = self.state.clone();
        let image = self.shelf.aside(move |shelf| {
            let image = state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .to_image();
            shelf.store(&image)?;
            Ok(image)
        });
        image.await?.with_meta()
    }
}

impl Image {
    fn with_meta(self) -> io::Result<Snapshot> {
        let contents = self.contents().map_err(io::Error::other)?;
        let meta = SnapshotMeta::try_from(contents.extent).map_err(io::Error::other)?;
        Ok(Snapshot {
            meta,
            snapshot: self,
        })
    }
}
