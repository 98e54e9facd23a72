//! Who takes part in a run, with which times, clocks and network: all drawn from the seed before anything happens.
//!
//! The one rule: a clock that the plan of its holder does not cover is drawn only as a marked fault.

use std::time::Duration;

use leasehold_core::{
    Drift, Holder as Name, LeaseName, LockDelay, Overrides, Plan, TimeService, Timing, Ttl,
};
use rand_chacha::ChaCha8Rng;

use super::{
    clocks::{Clock, TRUE_RATE},
    world::{Event, MS, Process, Role, SECOND, World, between, chance},
};
use super::{holder::Holder, script::Script};

const LEASES: [&str; 3] = ["orders", "mail", "cron"];
const HOLDERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const TTLS: [u64; 6] = [2_000, 2_000, 3_000, 5_000, 8_000, 15_000];

/// What was drawn for a run.
pub(super) struct Setup {
    pub(super) horizon: u64,
    pub(super) leases: Vec<LeaseName>,
    pub(super) holders: usize,
    pub(super) scripts: bool,
    /// Of the store's clock.
    pub(super) store_rate: u64,
    /// Of a thousand messages.
    pub(super) lost: u32,
    pub(super) duplicated: u32,
    pub(super) slow: u32,
    /// Of a thousand effects: frozen between check and effect.
    pub(super) freezes: u32,
    /// How many faults are struck.
    pub(super) faults: u64,
}

impl Setup {
    pub(super) fn draw(rng: &mut ChaCha8Rng) -> Self {
        let part = between(rng, 0, 1000);
        let calm = chance(rng, 150);
        let often = |rng: &mut ChaCha8Rng, most: u64| match calm || chance(rng, 400) {
            true => 0,
            false => between(rng, 1, most) as u32,
        };
        let leases = 1 + between(rng, 0, 8) as usize / 4;
        Self {
            // Most runs are short; some are ten minutes.
            horizon: 60 * SECOND + 540 * part.pow(3),
            leases: LEASES[..leases.min(LEASES.len())]
                .iter()
                .map(|name| name.parse().expect("a good name"))
                .collect(),
            lost: often(rng, 150),
            duplicated: often(rng, 80),
            slow: often(rng, 200),
            freezes: often(rng, 12),
            faults: if calm { 0 } else { between(rng, 1, 8) },
            holders: between(rng, 2, HOLDERS.len() as u64) as usize,
            scripts: chance(rng, 250),
            store_rate: between(rng, 960_000, 1_040_000),
        }
    }
}

/// The share of the rate of the store that a holder's clock runs at least at, with this drift (A17).
fn least_rate(store: u64, drift: Drift) -> u64 {
    let store_nanos = Duration::from_nanos(store * 1_000);
    let least = store_nanos - drift.of(store_nanos);
    (least.as_nanos() as u64).div_ceil(1_000)
}

impl World {
    /// Starts everybody.
    pub(super) fn populate(&mut self) {
        for (number, holder) in HOLDERS.iter().enumerate().take(self.setup.holders) {
            let plan = self.draw_plan(number);
            let drift = plan.timing.drift();
            let least = least_rate(self.setup.store_rate, drift);
            let rate = match between(&mut self.rng, 0, 2) {
                0 => least,
                1 => self.between(least, TRUE_RATE.max(least)),
                _ => self.between(least, least + least / 8),
            };
            let start = self.between(SECOND, 1_000_000 * SECOND);
            self.hosts.push(Clock::new(start, rate));
            let lease = number % self.setup.leases.len();
            let seed = self.between(0, u64::MAX);
            let role = Role::Holder(Box::new(Holder::new(plan, lease, seed)));
            self.add((*holder).to_owned(), number, role);
            let pid = self.processes.len() - 1;
            let begin = self.between(0, 5 * SECOND);
            self.at(begin, Event::Want(pid));
        }
        if self.setup.scripts {
            let least = least_rate(self.setup.store_rate, Drift::UNKNOWN);
            let rate = self.between(least, TRUE_RATE + 50_000);
            self.hosts.push(Clock::new(SECOND, rate));
            let seed = self.between(0, u64::MAX);
            let role = Role::Script(Box::new(Script::new(0, seed)));
            self.add("script".into(), self.hosts.len() - 1, role);
            let pid = self.processes.len() - 1;
            self.at(3 * SECOND, Event::Script(pid, 0));
        }
        self.schedule_faults();
    }

    pub(super) fn add(&mut self, name: String, host: usize, role: Role) {
        self.processes.push(Process {
            name,
            host,
            alive: true,
            frozen_until: 0,
            inbox: std::collections::VecDeque::new(),
            cut_until: 0,
            role,
        });
    }

    fn draw_plan(&mut self, number: usize) -> Plan {
        let millis = TTLS[self.between(0, TTLS.len() as u64 - 1) as usize];
        let ttl = Ttl::from_millis(millis).expect("a good ttl");
        let overrides = match self.between(0, 3) {
            0 => Overrides {
                time_service: Some(TimeService::Ntp),
                margin: Some(Duration::from_millis(60)),
                ..Overrides::default()
            },
            1 => Overrides {
                time_service: Some(TimeService::Chrony),
                ..Overrides::default()
            },
            _ => Overrides::default(),
        };
        let timing = Timing::with(ttl, &overrides)
            .or_else(|_| Timing::new(ttl))
            .expect("the defaults fit");
        let lease = self.setup.leases[number % self.setup.leases.len()].clone();
        let name: Name = HOLDERS[number].parse().expect("a good name");
        let mut plan = Plan::new(lease, name, timing);
        if self.chance(300) {
            plan.probe = Some(Duration::from_nanos(self.between(4, 20) * SECOND));
        }
        if self.chance(150) {
            let delay = Duration::from_nanos(self.between(1, 3_000) * MS);
            plan.lock_delay = LockDelay::new(delay).expect("a good delay");
        }
        plan
    }
}
