//! The store: the real rules over the real table, with a clock of its own, on a disk that keeps what was synced.
//!
//! The one rule: nothing is answered before it is durable (L10). A crash forgets what was not; a restore puts an old
//! table back and then bumps, as the stores do (T6).

use std::collections::VecDeque;

use leasehold_core::{
    Answer, Command, Key, LeaseName, Op, Outcome, Stamp, State, StoreTime, Table, Token, WallTime,
};

use super::world::{Ask, Event, MS, Request, SECOND, Said, World};
use super::{clocks::Clock, setup::Setup};
use crate::history::{Change, What};

/// Unix time in ms when a run begins.
const EPOCH: u64 = 1_800_000_000_000;

pub(super) struct Store {
    pub(super) clock: Clock,
    /// How often it was restored, so that what is in it is another thing then.
    pub(super) line: u32,
    table: Table,
    durable: Table,
    backup: Option<Table>,
    /// Evaluated and not yet durable.
    batch: Vec<(Request, Said)>,
    /// Received while it stood still, with the reading of its clock if it could take one.
    waiting: VecDeque<(Request, Option<u64>)>,
    down: bool,
    paused_until: u64,
    /// Changes when a batch is dropped.
    era: u64,
    syncing: bool,
    /// Of the pairs, in the order they became durable.
    positions: u64,
}

impl Store {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            clock: Clock::new(0, setup.store_rate),
            line: 0,
            table: Table::new(),
            durable: Table::new(),
            backup: None,
            batch: Vec::new(),
            waiting: VecDeque::new(),
            down: false,
            paused_until: 0,
            era: 0,
            syncing: false,
            positions: 0,
        }
    }

    pub(super) fn back_up(&mut self) {
        self.backup = Some(self.durable.clone());
    }

    pub(super) fn is_up(&self, now: u64) -> bool {
        !self.down && self.paused_until <= now
    }

    fn stamp(&self, now: u64) -> Stamp {
        Stamp {
            now: StoreTime::from_nanos(self.clock.read(now)),
            wall: WallTime::from_nanos(EPOCH * MS + now),
        }
    }

    /// Until when, in true time, the lease is promised to a holder; one that was told to go is still waited for.
    fn promised(&self, name: &LeaseName, now: u64) -> Option<u64> {
        let record = self.table.record(name)?;
        let free = record.at(self.stamp(now).now) == State::Free;
        (!free).then(|| self.clock.when(record.free_from().as_nanos()))
    }
}

/// The key of the pair that belongs to a lease: another one after each restore, which forgets what it forgets.
pub(super) fn key(lease: &LeaseName, line: u32) -> Key {
    let key = format!("{lease}-{line}");
    key.parse()
        .expect("a lease's name and a number are a good key")
}

impl World {
    pub(super) fn at_store(&mut self, request: Request) {
        if self.store.down {
            self.reply(&request, Said::Down);
        } else if self.store.paused_until > self.now {
            let received = self.chance(500).then(|| self.store.clock.read(self.now));
            self.store.waiting.push_back((request, received));
        } else {
            self.evaluate(request, 0);
        }
    }

    fn evaluate(&mut self, request: Request, waited: u64) {
        let said = match request.ask.clone() {
            Ask::Op(op) => {
                if let (None, true, Op::Lease { name, command }) =
                    (request.call, request.lost_reply, &op)
                {
                    // A copy: a call of its own, that nobody hears of.
                    let id = self.number();
                    self.note_call("network".into(), id, name.as_str(), command);
                }
                let stamp = self.store.stamp(self.now);
                let mut outcome = self.store.table.apply(op, stamp, &mut Vec::new());
                if let Outcome::Lease(Answer::Granted(grant)) = &mut outcome {
                    grant.waited = std::time::Duration::from_nanos(waited);
                }
                Said::Outcome(outcome, 0)
            }
            Ask::Pair(lease) => {
                let pair = self
                    .store
                    .table
                    .pair(&key(&self.setup.leases[lease], self.store.line));
                Said::Seen(
                    pair.map_or(Vec::new(), |pair| unpack(pair.value.as_bytes())),
                    0,
                    self.store.line,
                )
            }
            _ => return,
        };
        self.store.batch.push((request, said));
        if !self.store.syncing {
            self.store.syncing = true;
            let delay = self.between(MS, 8 * MS);
            self.after(delay, Event::Sync(self.store.era));
        }
    }

    /// The batch is durable: now its answers may leave.
    pub(super) fn sync(&mut self, era: u64) {
        if era != self.store.era {
            return;
        }
        self.store.syncing = false;
        self.store.durable = self.store.table.clone();
        for (request, said) in std::mem::take(&mut self.store.batch) {
            let said = match said {
                Said::Outcome(Outcome::Done, _) => {
                    self.store.positions += 1;
                    self.effect_committed(request.id, self.store.positions);
                    Said::Outcome(Outcome::Done, self.store.positions)
                }
                Said::Seen(list, _, line) => Said::Seen(list, self.store.positions, line),
                said => said,
            };
            self.reply(&request, said);
        }
    }

    /// What was not durable is gone, and everybody who waits hears that the connection broke.
    fn drop_batch(&mut self) {
        self.store.era += 1;
        self.store.syncing = false;
        let waiting = std::mem::take(&mut self.store.waiting);
        let batch = std::mem::take(&mut self.store.batch);
        let requests = batch.into_iter().map(|entry| entry.0);
        for request in requests.chain(waiting.into_iter().map(|entry| entry.0)) {
            self.reply(&request, Said::Reset);
        }
    }

    pub(super) fn crash_store(&mut self, down: u64) {
        if self.store.down {
            return;
        }
        self.drop_batch();
        self.store.table = self.store.durable.clone();
        self.store.down = true;
        self.note_change(None, Change::Crash);
        self.after(down, Event::StoreUp);
    }

    pub(super) fn store_up(&mut self) {
        self.store.down = false;
        self.note_change(None, Change::Restart);
        if self.chance(300) {
            // It was a reboot: its clock goes on from what the table remembers, so promises only grow.
            let (now, from) = (self.now, self.store.table.now().as_nanos());
            let ahead = self.store.clock.read(now).saturating_sub(from);
            self.store.clock.jump(now, -(ahead as i64));
        }
    }

    pub(super) fn pause_store(&mut self, span: u64) {
        if self.store.is_up(self.now) {
            self.store.paused_until = self.now + span;
            self.fault("store_pause", None, Some(self.now + span), false);
            self.after(span, Event::StoreThaw);
        }
    }

    pub(super) fn store_thaw(&mut self) {
        while let Some((request, received)) = self.store.waiting.pop_front() {
            let now = self.store.clock.read(self.now);
            let waited = received.map_or(0, |received| now.saturating_sub(received));
            match self.store.down {
                true => self.reply(&request, Said::Reset),
                false => self.evaluate(request, waited),
            }
        }
    }

    pub(super) fn step_store_clock(&mut self, by: i64) {
        self.store.clock.jump(self.now, by);
        self.note_change(None, Change::ClockStep { by });
    }

    /// An old backup comes back. What it does not know it cannot keep: such promises are marked.
    pub(super) fn restore(&mut self) {
        let Some(backup) = self.store.backup.clone() else {
            return;
        };
        if !self.store.is_up(self.now) {
            return;
        }
        let leases = self.setup.leases.clone();
        let now = self.now;
        let before: Vec<_> = leases.iter().map(|l| self.store.promised(l, now)).collect();
        self.drop_batch();
        self.note_change(None, Change::Restore);
        self.store.table = backup;
        self.store.line += 1;
        self.bump();
        self.store.durable = self.store.table.clone();
        for (lease, before) in leases.iter().zip(before) {
            let record = self.store.table.record(lease);
            let after = record.map_or(0, |record| {
                self.store.clock.when(record.free_from().as_nanos())
            });
            if let Some(before) = before.filter(|before| *before > after) {
                self.fault("forgotten_promise", None, Some(before), true);
            }
        }
    }

    fn bump(&mut self) {
        let stamp = self.store.stamp(self.now);
        let floor = stamp.wall.as_millis();
        let above = Token::new(floor).expect("unix time is a good token");
        let outcome = self
            .store
            .table
            .apply(Op::Bump { above }, stamp, &mut Vec::new());
        match outcome {
            Outcome::Done => self.note_change(None, Change::Bump { floor }),
            _ => self.fault("bump_refused", None, None, false),
        }
    }

    /// An operator takes a lease away (A21).
    pub(super) fn force_release(&mut self, lease: usize, at_once: bool) {
        let name = self.setup.leases[lease].clone();
        if !self.store.is_up(self.now) {
            return;
        }
        let promised = self.store.promised(&name, self.now);
        let stamp = self.store.stamp(self.now);
        let op = Op::Lease {
            name: name.clone(),
            command: Command::ForceRelease { now: at_once },
        };
        let outcome = self.store.table.apply(op, stamp, &mut Vec::new());
        if !matches!(outcome, Outcome::Lease(Answer::Bumped { .. })) {
            return;
        }
        self.store.durable = self.store.table.clone();
        let change = Change::ForceRelease { now: at_once };
        self.note_change(Some(name.as_str().into()), change);
        if at_once {
            let until = promised.unwrap_or(self.now) + SECOND;
            self.fault("force_release_now", None, Some(until), true);
        }
    }

    fn note_change(&mut self, lease: Option<String>, change: Change) {
        self.history
            .push(self.now, "store", What::Store { lease, change });
    }

    /// Which restore the store lives after.
    pub(super) fn pairs_line(&self) -> u32 {
        self.store.line
    }

    /// What is in the pairs at the end.
    pub(super) fn pairs(&self, lease: usize) -> (Vec<u32>, u64, u32) {
        let pair = self
            .store
            .durable
            .pair(&key(&self.setup.leases[lease], self.store.line));
        let list = pair.map_or(Vec::new(), |pair| unpack(pair.value.as_bytes()));
        (list, self.store.positions, self.store.line)
    }
}

pub(super) fn pack(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn unpack(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}
