//! True time and everything that is on its way: one queue of events, one source of chance.
//!
//! The one rule: whatever happens is an event in the queue, and events at one time happen in the order they were put
//! in. Nothing iterates over a hash map, so the same seed makes the same run, to the byte.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::{Op, Outcome};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{clocks::Clock, effects::Open};
use super::{
    faults::Fault, holder::Holder, resource::Resource, script::Script, setup::Setup, store::Store,
};
use crate::history::{Effect, History, What};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// More events than any run of the largest size has: beyond, something spins.
const EVENT_LIMIT: u64 = 3_000_000;

/// The number of a process; a restarted one has a new number.
pub(super) type Pid = usize;

/// What can happen.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A holder's timer, the latest one if the number is.
    Wake(Pid, u64),
    /// A holder wants the lease again.
    Want(Pid),
    /// A job's next step.
    Work(Pid, u64),
    /// A job has ended, by itself or killed.
    Drained {
        pid: Pid,
        job: u64,
        failed: bool,
        killed: bool,
    },
    /// A job waits no longer for an answer.
    GiveUp(Pid, u64),
    /// A script's next step.
    Script(Pid, u64),
    /// An answer, or the end of a connection.
    Reply(Pid, Reply),
    /// The machine noticed that it stood still (C13).
    Noticed(Pid),
    Thaw(Pid, u64),
    Restart(Pid),
    AtStore(Request),
    AtResource(Request),
    /// What the store has evaluated becomes durable.
    Sync(u64),
    StoreUp,
    StoreThaw,
    Backup,
    Fault(Fault),
}

/// A question on its way.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) pid: Pid,
    pub(super) id: u64,
    pub(super) ask: Ask,
    /// The asker's own number for it.
    pub(super) attempt: u64,
    /// The call in the history, if it is one on a lease.
    pub(super) call: Option<u64>,
    /// Nobody gets an answer.
    pub(super) lost_reply: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// The store.
    Op(Op),
    /// The pair of a lease, at the store.
    Pair(usize),
    /// A resource: raise the fence.
    Raise(usize, u64),
    /// A resource: what is there?
    Look(usize, bool),
    /// A resource: replace the list, or add to it.
    Write {
        lease: usize,
        fenced: bool,
        token: u64,
        value: u32,
        list: Option<Vec<u32>>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) id: u64,
    pub(super) attempt: u64,
    pub(super) call: Option<u64>,
    pub(super) said: Said,
}

#[derive(Clone, Debug)]
pub(super) enum Said {
    Outcome(Outcome, u64),
    /// What is in a list, up to which position, and which line of the store it is in.
    Seen(Vec<u32>, u64, u32),
    /// Written or raised at this position.
    Done(u64),
    Refused(leasehold_core::Refusal),
    /// The connection broke; perhaps it was done.
    Reset,
    /// Nobody listens; certainly not done.
    Down,
}

/// A process and the machine it runs on.
pub(super) struct Process {
    pub(super) name: String,
    pub(super) host: usize,
    pub(super) alive: bool,
    pub(super) frozen_until: u64,
    /// What it will see when it goes on.
    pub(super) inbox: VecDeque<Event>,
    /// No message passes before this time.
    pub(super) cut_until: u64,
    pub(super) role: Role,
}

pub(super) enum Role {
    Holder(Box<Holder>),
    Script(Box<Script>),
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) rng: ChaCha8Rng,
    pub(super) setup: Setup,
    pub(super) history: History,
    pub(super) hosts: Vec<Clock>,
    pub(super) processes: Vec<Process>,
    pub(super) store: Store,
    pub(super) resources: Vec<Resource>,
    pub(super) open: BTreeMap<u64, Open>,
    queue: BTreeMap<(u64, u64), Event>,
    numbers: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let setup = Setup::draw(&mut rng);
        let made_by = format!("cargo run -p leasehold-torture -- sim --seed {seed}");
        let mut world = Self {
            now: 0,
            store: Store::new(&setup),
            resources: setup.leases.iter().map(|_| Resource::default()).collect(),
            rng,
            setup,
            history: History::new(made_by),
            hosts: Vec::new(),
            processes: Vec::new(),
            open: BTreeMap::new(),
            queue: BTreeMap::new(),
            numbers: 0,
        };
        world.populate();
        world
    }

    /// Plays to the end: up to the horizon with faults, then a while in peace, so that whatever is on its way arrives.
    pub(super) fn play(mut self) -> History {
        let end = self.setup.horizon;
        let mut events = 0;
        while let Some((&(time, number), _)) = self.queue.first_key_value() {
            events += 1;
            if time > end || events > EVENT_LIMIT {
                break;
            }
            self.now = time;
            if let Some(event) = self.queue.remove(&(time, number)) {
                self.happen(event);
            }
        }
        if events > EVENT_LIMIT {
            self.fault("endless", None, None, false);
        }
        self.settle();
        self.history
    }

    /// Delivers what is still on its way to stores and resources, and looks a last time.
    fn settle(&mut self) {
        for pid in 0..self.processes.len() {
            if self.processes[pid].alive {
                self.end_process(pid);
            }
        }
        let rest: Vec<Event> = std::mem::take(&mut self.queue).into_values().collect();
        for event in rest {
            if matches!(event, Event::AtResource(_)) {
                self.happen(event);
            }
        }
        self.last_looks();
    }

    pub(super) fn happen(&mut self, event: Event) {
        let stopped = event.pid().filter(|pid| {
            !self.processes[*pid].alive || self.processes[*pid].frozen_until > self.now
        });
        match (event, stopped) {
            (event, Some(pid)) if self.processes[pid].alive => {
                self.processes[pid].inbox.push_back(event);
            }
            (_, Some(_)) => {}
            (Event::Wake(pid, number), _) => self.wake(pid, number),
            (Event::Want(pid), _) => self.want(pid),
            (Event::Work(pid, job), _) => self.work(pid, job),
            (
                Event::Drained {
                    pid,
                    job,
                    failed,
                    killed,
                },
                _,
            ) => self.drained(pid, job, failed, killed),
            (Event::GiveUp(pid, id), _) => self.give_up(pid, id),
            (Event::Script(pid, number), _) => self.script_step(pid, number),
            (Event::Reply(pid, reply), _) => self.replied(pid, reply),
            (Event::Noticed(pid), _) => self.noticed(pid),
            (Event::Thaw(pid, until), _) => self.thaw(pid, until),
            (Event::Restart(pid), _) => self.restart(pid),
            (Event::AtStore(request), _) => self.at_store(request),
            (Event::AtResource(request), _) => self.at_resource(request),
            (Event::Sync(era), _) => self.sync(era),
            (Event::StoreUp, _) => self.store_up(),
            (Event::StoreThaw, _) => self.store_thaw(),
            (Event::Backup, _) => self.store.back_up(),
            (Event::Fault(fault), _) => self.strike(fault),
        }
    }

    /// Puts an event into the queue.
    pub(super) fn at(&mut self, time: u64, event: Event) {
        let number = self.number();
        self.queue.insert((time.max(self.now), number), event);
    }

    pub(super) fn after(&mut self, span: u64, event: Event) {
        self.at(self.now + span, event);
    }

    /// A number that nobody had before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// What the clock of a process shows now.
    pub(super) fn local(&self, pid: Pid) -> u64 {
        self.clock(pid).read(self.now)
    }

    pub(super) fn clock(&self, pid: Pid) -> &Clock {
        &self.hosts[self.processes[pid].host]
    }

    pub(super) fn push(&mut self, pid: Pid, what: What) {
        let name = self.processes[pid].name.clone();
        self.history.push(self.now, name, what);
    }

    /// Notes a fault from now on.
    pub(super) fn fault(
        &mut self,
        kind: &str,
        pid: Option<Pid>,
        until: Option<u64>,
        exceeds: bool,
    ) {
        let victim = pid.map(|pid| self.processes[pid].name.clone());
        let what = What::Fault {
            kind: kind.into(),
            victim,
            until,
            exceeds,
        };
        self.history.push(self.now, "sim", what);
    }

    /// A number between both, each as likely; the smaller one if there is none.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        between(&mut self.rng, least, most)
    }

    pub(super) fn chance(&mut self, per_mille: u32) -> bool {
        chance(&mut self.rng, per_mille)
    }

    /// An effect that is patched when more becomes known of it.
    pub(super) fn effect_at(&mut self, event: usize) -> Option<&mut Effect> {
        match &mut self.history.events.get_mut(event)?.what {
            What::Effect(effect) => Some(effect),
            _ => None,
        }
    }
}

pub(super) fn between(rng: &mut ChaCha8Rng, least: u64, most: u64) -> u64 {
    rng.random_range(least..=most.max(least))
}

pub(super) fn chance(rng: &mut ChaCha8Rng, per_mille: u32) -> bool {
    rng.random_range(0..1000) < per_mille
}

impl Event {
    /// The process that sees it, if one does.
    fn pid(&self) -> Option<Pid> {
        match self {
            Event::Wake(pid, _)
            | Event::Want(pid)
            | Event::Work(pid, _)
            | Event::Drained { pid, .. }
            | Event::GiveUp(pid, _)
            | Event::Script(pid, _)
            | Event::Reply(pid, _)
            | Event::Noticed(pid) => Some(*pid),
            _ => None,
        }
    }
}
