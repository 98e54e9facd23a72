//! A network that loses, doubles, delays and parts; disks that are slow and forget what was not synced; clocks that run
//! at rates of their own. Members are the real ones, but for these three.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, TryRecvError, channel},
    },
    time::Duration,
};

use async_trait::async_trait;
use leasehold::clock::Clock;
use leasehold_core::{BootTime, WallTime};
use tokio::time::{Instant, sleep, timeout};

use super::runtime::{below, roll};
use crate::{
    answers::Desk,
    codec::{self, Ballot, Id, Item},
    config::Config,
    disk::{Change, Found, Identity},
    log::Log,
    machine::Machine,
    member,
    node::Node,
    snapshot::{Image, Shelf},
    transport::{Answers, Card, NoAnswer, Peer, Transport},
    types::Entry,
    wire::{Request, Response},
    writer::{Ask, Done, Told},
};

pub(crate) const CLUSTER: u128 = 77;

/// Everything outside the members.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

#[derive(Default)]
struct State {
    desks: BTreeMap<u64, Arc<Desk>>,
    /// Whose messages to whom do not arrive.
    cut: BTreeSet<(u64, u64)>,
    /// In a thousand.
    loss: u64,
    doubled: u64,
    disks: BTreeMap<u64, Arc<Mutex<Plate>>>,
    /// Whose disk takes long for everything.
    slow: BTreeSet<u64>,
}

/// What is on a disk.
#[derive(Default)]
struct Plate {
    vote: Option<Ballot>,
    purged: Option<Id>,
    entries: BTreeMap<u64, Item>,
    snapshot: Arc<Mutex<Option<Image>>>,
}

/// A running member.
#[derive(Clone)]
pub(crate) struct Alive {
    pub(crate) node: Arc<Node>,
    /// False from its crash on: nothing that it does reaches anybody or anything.
    pub(crate) lives: Arc<AtomicBool>,
}

impl World {
    pub(crate) fn new() -> Self {
        let state = State {
            loss: 10,
            doubled: 20,
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.state().cut.insert((from, to));
    }

    pub(crate) fn slow(&self, node: u64) {
        self.state().slow.insert(node);
    }

    /// Every message arrives and every disk is quick.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.cut.clear();
        state.slow.clear();
    }

    /// And for good.
    pub(crate) fn calm(&self) {
        self.heal();
        let mut state = self.state();
        (state.loss, state.doubled) = (0, 0);
    }

    /// Starts a member from what is on its disk.
    pub(crate) async fn start(&self, node: u64, clock: Arc<dyn Clock>) -> Alive {
        let plate = self.state().disks.entry(node).or_default().clone();
        let lives = Arc::new(AtomicBool::new(true));
        let (asks, queue) = channel();
        let (found, snapshot) = {
            let plate = plate.lock().unwrap();
            let entries = plate
                .entries
                .values()
                .map(|item| item.clone().entry().unwrap());
            let found = Found {
                identity: Identity {
                    node,
                    cluster: Some(CLUSTER),
                },
                vote: plate.vote,
                purged: plate.purged,
                entries: entries.collect(),
            };
            (found, plate.snapshot.clone())
        };
        let done = Arc::new(Done::default());
        let log = Log::new(found, asks, done.clone());
        let spindle = Spindle {
            world: self.clone(),
            node,
            plate,
            queue,
            done,
            lives: lives.clone(),
        };
        tokio::spawn(spindle.turn());
        let machine = Machine::on(Shelf::Memory(snapshot)).unwrap();
        let config = Config {
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(400),
            snapshot_every: 40,
            patience: Duration::from_secs(4),
            clock,
            ..Config::new("nowhere")
        };
        let card = Arc::new(Card::new(node, Some(CLUSTER)));
        let wire = Arc::new(Wire {
            world: self.clone(),
            node,
            lives: lives.clone(),
        });
        let address = node.to_string();
        let node_ = member::assemble(&config, log, machine, card, wire, address)
            .await
            .unwrap();
        self.state()
            .desks
            .insert(node, Arc::new(Desk(node_.clone())));
        Alive { node: node_, lives }
    }

    /// It is gone in this moment, with all that was not yet on its disk.
    pub(crate) async fn crash(&self, alive: &Alive) {
        alive.lives.store(false, Ordering::Relaxed);
        self.state().desks.remove(&alive.node.card.node);
        let _ = alive.node.engine.shutdown().await;
    }
}

/// One member's end of the network.
#[derive(Debug)]
struct Wire {
    world: World,
    node: u64,
    lives: Arc<AtomicBool>,
}

fn delay() -> Duration {
    // Mostly a few milliseconds, now and then so long that others overtake it.
    let most = if below(50) == 0 { 300_000 } else { 6_000 };
    Duration::from_micros(200 + below(most))
}

impl Wire {
    /// Whether a message from `from` to `to` arrives.
    fn arrives(&self, from: u64, to: u64) -> bool {
        let lost = below(1_000);
        let state = self.world.state();
        self.lives.load(Ordering::Relaxed) && !state.cut.contains(&(from, to)) && lost >= state.loss
    }

    async fn carry(&self, to: u64, request: Request) -> Result<Response, NoAnswer> {
        sleep(delay()).await;
        if !self.arrives(self.node, to) {
            return std::future::pending().await;
        }
        let Some(desk) = self.world.state().desks.get(&to).cloned() else {
            return Err(NoAnswer::NotSent("nobody is there".into()));
        };
        let twice_is_once = !matches!(request, Request::Apply { .. } | Request::Change { .. });
        let doubled = below(1_000) < self.world.state().doubled && twice_is_once;
        if doubled {
            let (desk, request, late) = (desk.clone(), request.clone(), delay() * 20);
            tokio::spawn(async move {
                sleep(late).await;
                desk.answer(request).await
            });
        }
        // Whoever asked may stop waiting; whoever was asked goes on.
        let answering = tokio::spawn(async move { desk.answer(request).await });
        let response = answering
            .await
            .map_err(|error| NoAnswer::Lost(error.to_string()))?;
        sleep(delay()).await;
        if !self.arrives(to, self.node) {
            return std::future::pending().await;
        }
        Ok(response)
    }
}

#[async_trait]
impl Transport for Wire {
    async fn call(
        &self,
        to: &Peer,
        request: &Request,
        patience: Duration,
    ) -> Result<Response, NoAnswer> {
        let bytes = postcard::to_extend(request, Vec::new()).unwrap();
        let request: Request = codec::unpack(&bytes).unwrap();
        let to = to.address.parse().unwrap();
        match timeout(patience, self.carry(to, request)).await {
            Ok(result) => result,
            Err(_) => Err(NoAnswer::Lost("no answer in time".into())),
        }
    }
}

/// The thread that writes, as a task: what it took is durable some milliseconds later, or lost with a crash.
struct Spindle {
    world: World,
    node: u64,
    plate: Arc<Mutex<Plate>>,
    queue: Receiver<Ask>,
    done: Arc<Done>,
    lives: Arc<AtomicBool>,
}

impl Spindle {
    async fn turn(self) {
        loop {
            sleep(Duration::from_micros(500)).await;
            let (mut changes, mut told) = (Vec::new(), Vec::new());
            loop {
                match self.queue.try_recv() {
                    Ok(Ask::Write(change, who)) => {
                        changes.push(change);
                        told.push(who);
                    }
                    Ok(Ask::Read(from, until, reply)) => drop(reply.send(self.read(from, until))),
                    Ok(Ask::Stop) | Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => break,
                }
            }
            if changes.is_empty() {
                continue;
            }
            let slow = self.world.state().slow.contains(&self.node);
            let takes = 300 + below(if slow { 800_000 } else { 4_000 });
            sleep(Duration::from_micros(takes)).await;
            if !self.lives.load(Ordering::Relaxed) {
                return;
            }
            changes.iter().for_each(|change| self.write(change));
            for who in told {
                match who {
                    Told::Engine(callback) => callback.io_completed(Ok(())),
                    Told::Caller(reply) => drop(reply.send(Ok(()))),
                    Told::Nobody => {}
                }
            }
        }
    }

    fn write(&self, change: &Change) {
        let mut plate = self.plate.lock().unwrap();
        match change {
            Change::Append(entries) => {
                for entry in entries {
                    plate.entries.insert(entry.log_id.index, Item::from(entry));
                    self.done
                        .durable
                        .store(entry.log_id.index + 1, Ordering::Release);
                }
            }
            Change::Vote(vote) => plate.vote = Some(*vote),
            Change::Truncate(from) => {
                plate.entries.split_off(from);
                self.done.durable.fetch_min(*from, Ordering::AcqRel);
            }
            Change::Purge(upto) => {
                plate.entries = plate.entries.split_off(&(upto.index + 1));
                plate.purged = Some(*upto);
            }
            Change::Identity(_) => {}
        }
    }

    fn read(&self, from: u64, until: u64) -> io::Result<Vec<Entry>> {
        let plate = self.plate.lock().unwrap();
        let items = plate.entries.range(from..until);
        Ok(items
            .map(|(_, item)| item.clone().entry().unwrap())
            .collect())
    }
}

/// A boot clock that started whenever, and runs up to 2 % fast or slow.
#[derive(Debug)]
pub(crate) struct Drifting {
    start: Instant,
    offset: u64,
    per_mille: u64,
}

impl Drifting {
    pub(crate) fn clock() -> Arc<dyn Clock> {
        Arc::new(Self {
            start: Instant::now(),
            offset: roll() >> 4,
            per_mille: 980 + below(41),
        })
    }
}

impl Clock for Drifting {
    fn now(&self) -> BootTime {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap();
        BootTime::from_nanos(self.offset + passed / 1_000 * self.per_mille)
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(1_800_000_000_000_000_000)
    }
}
