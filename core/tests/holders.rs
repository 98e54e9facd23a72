//! Several holders, each with a clock of its own, over a network that loses, delays and doubles, with processes that
//! freeze and machines that stand still: whoever acts holds the newest token, and the store has not promised it away.

use std::{cmp::Reverse, collections::BinaryHeap, num::NonZeroU128, time::Duration};

use leasehold_core::*;
use proptest::prelude::*;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Dice for Rng {
    fn roll(&mut self) -> NonZeroU128 {
        NonZeroU128::new(u128::from(self.next()) << 64 | u128::from(self.next())).expect("not zero")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Wake(usize),
    AtStore(usize, u64, usize),
    Answer(usize, u64, usize),
    Drained(usize),
    Stop(usize),
    Act(usize),
}

/// A holder and its host. Its clock shows `offset + true time · rate`.
struct Host {
    hold: Hold,
    offset: u64,
    ppm: u64,
    frozen_until: u64,
    working: bool,
    draining: bool,
}

struct World {
    rng: Rng,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, What)>>,
    events: u64,
    record: Record,
    hosts: Vec<Host>,
    /// Bodies of messages; the queue holds their places.
    commands: Vec<Command>,
    answers: Vec<Answer>,
    acts: u64,
    grants: u64,
    losses: u64,
}

const MS: u64 = 1_000_000;
const TTL: u64 = 2_000;

impl Host {
    fn clock(&self, time: u64) -> BootTime {
        let shown = u128::from(time) * u128::from(self.ppm) / 1_000_000;
        BootTime::from_nanos(self.offset + shown as u64)
    }

    /// The true time at which its clock shows `at` or later.
    fn when(&self, at: BootTime) -> u64 {
        let shown = u128::from(at.as_nanos().saturating_sub(self.offset));
        u64::try_from((shown * 1_000_000).div_ceil(u128::from(self.ppm))).unwrap_or(u64::MAX)
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let timing = Timing::new(Ttl::from_millis(TTL).expect("in range")).expect("it fits");
        let hosts = (0..3).map(|number| {
            let mut plan = Plan::new(
                "jobs".parse().expect("a name"),
                format!("host{number}").parse().expect("a name"),
                timing,
            );
            plan.rest_max = Duration::from_secs(2);
            Host {
                hold: Hold::new(plan, rng.roll().into()),
                // C2: hosts agree on nothing but, within ρ, on how fast time goes. A fast clock is always safe.
                offset: rng.next() >> 20,
                ppm: 900_000 + rng.below(400_000),
                frozen_until: 0,
                working: false,
                draining: false,
            }
        });
        let hosts: Vec<Host> = hosts.collect();
        Self {
            rng,
            now: 0,
            queue: BinaryHeap::new(),
            events: 0,
            record: Record::new(None),
            hosts,
            commands: vec![],
            answers: vec![],
            acts: 0,
            grants: 0,
            losses: 0,
        }
    }

    fn later(&mut self, delay: u64, what: What) {
        self.events += 1;
        self.queue
            .push(Reverse((self.now.saturating_add(delay), self.events, what)));
    }

    fn run(&mut self, until: u64) -> Result<(), TestCaseError> {
        for host in 0..self.hosts.len() {
            self.hear(host, Input::Want(Wait::Forever))?;
            self.later(0, What::Act(host));
        }
        while let Some(Reverse((time, _, what))) = self.queue.pop() {
            if time > until {
                break;
            }
            self.now = time;
            self.happen(what)?;
        }
        Ok(())
    }

    fn happen(&mut self, what: What) -> Result<(), TestCaseError> {
        match what {
            What::AtStore(host, attempt, body) => self.evaluate(host, attempt, body),
            What::Act(host) => {
                let pause = self.rng.below(100 * MS);
                self.later(pause, What::Act(host));
                self.act(host)
            }
            What::Wake(host) | What::Answer(host, ..) | What::Drained(host) | What::Stop(host)
                if self.now < self.hosts[host].frozen_until =>
            {
                let thaw = self.hosts[host].frozen_until - self.now;
                self.later(thaw, what);
                Ok(())
            }
            What::Wake(host) => self.hear(host, Input::Tick),
            What::Answer(host, attempt, body) => {
                let answer = self.answers[body].clone();
                self.hear(host, Input::Answered { attempt, answer })
            }
            What::Drained(host) => {
                self.hosts[host].working = false;
                self.hosts[host].draining = false;
                let failed = self.rng.one_in(4);
                self.hear(host, Input::Drained { failed })?;
                self.hear(host, Input::Want(Wait::Forever))
            }
            What::Stop(host) => self.hear(host, Input::Stop),
        }
    }

    fn evaluate(&mut self, host: usize, attempt: u64, body: usize) -> Result<(), TestCaseError> {
        let command = self.commands[body].clone();
        let now = StoreTime::from_nanos(self.now);
        let (record, answer) = decide(self.record.clone(), command.clone(), now);
        if let (Answer::Released, Command::Release(Release::Tenure { token, .. })) =
            (&answer, &command)
        {
            let user = self
                .hosts
                .iter()
                .find(|h| h.working && h.hold.token() == Some(*token));
            prop_assert!(
                user.is_none(),
                "INV-33: token {token} was released under its work"
            );
        }
        self.grants += u64::from(matches!(answer, Answer::Granted(_)));
        self.record = record;
        self.answers.push(answer);
        if !self.rng.one_in(6) {
            let delay = self.delay();
            self.later(delay, What::Answer(host, attempt, self.answers.len() - 1));
        }
        Ok(())
    }

    /// Mostly fast; sometimes longer than an attempt, than a ttl, than everything.
    fn delay(&mut self) -> u64 {
        let most = [20, 20, 20, 300, 1_000, 6_000][self.rng.below(6) as usize];
        self.rng.below(most * MS)
    }

    fn hear(&mut self, number: usize, input: Input) -> Result<(), TestCaseError> {
        if self.rng.one_in(60) {
            self.hosts[number].frozen_until = self.now + self.rng.below(2 * TTL * MS);
        }
        if self.rng.one_in(200) {
            self.step(number, Input::Paused)?;
        }
        if self.rng.one_in(150) {
            let delay = self.delay();
            self.later(delay, What::Stop(number));
        }
        self.step(number, input)
    }

    fn step(&mut self, number: usize, input: Input) -> Result<(), TestCaseError> {
        let now = self.hosts[number].clock(self.now);
        let actions = self.hosts[number].hold.step(now, input, &mut self.rng);
        for action in actions {
            match action {
                Action::Send {
                    attempt,
                    op: Op::Lease { command, .. },
                    ..
                } => self.carry(number, attempt, command),
                Action::Send { op, .. } => panic!("{op:?}"),
                Action::Tell(tell) => self.told(number, &tell)?,
            }
        }
        if let Some(wake) = self.hosts[number].hold.wake_at() {
            let wake = self.hosts[number].when(wake).max(self.now);
            self.later(wake - self.now, What::Wake(number));
        }
        self.act(number)
    }

    /// Requests are lost, doubled, and overtake each other.
    fn carry(&mut self, number: usize, attempt: u64, command: Command) {
        self.commands.push(command);
        let copies = [0, 1, 1, 1, 1, 1, 1, 2][self.rng.below(8) as usize];
        for _ in 0..copies {
            let delay = self.delay();
            self.later(
                delay,
                What::AtStore(number, attempt, self.commands.len() - 1),
            );
        }
    }

    fn told(&mut self, number: usize, tell: &Tell) -> Result<(), TestCaseError> {
        match tell {
            Tell::Held(_) => {
                prop_assert!(!self.hosts[number].working, "two tenures at once");
                self.hosts[number].working = true;
                if self.rng.one_in(3) {
                    let delay = self.rng.below(10_000 * MS);
                    self.end_work(number, delay);
                }
            }
            Tell::Stop { .. } => {
                self.losses += 1;
                let delay = self.rng.below(3_000 * MS);
                self.end_work(number, delay);
            }
            Tell::GaveUp(_) => {
                let delay = self.rng.below(1_000 * MS);
                self.later(delay, What::Drained(number));
            }
            _ => {}
        }
        Ok(())
    }

    fn end_work(&mut self, number: usize, delay: u64) {
        if !std::mem::replace(&mut self.hosts[number].draining, true) {
            self.later(delay, What::Drained(number));
        }
    }

    /// INV-30, INV-31: work acts whenever its check allows it.
    fn act(&mut self, number: usize) -> Result<(), TestCaseError> {
        let host = &self.hosts[number];
        let now = host.clock(self.now);
        let Some(term) = host
            .hold
            .term()
            .filter(|term| host.working && term.check(now))
        else {
            return Ok(());
        };
        if !host.hold.is_held() {
            return Ok(());
        }
        self.acts += 1;
        let state = self.record.at(StoreTime::from_nanos(self.now));
        prop_assert_eq!(
            self.record.token,
            Some(term.token()),
            "INV-30: host {} acts",
            number
        );
        prop_assert_eq!(
            state,
            State::Held,
            "INV-30: host {} acts on an expired lease",
            number
        );
        Ok(())
    }
}

proptest! {
    /// P-TIME within its bounds: whoever checks and acts holds the newest token, unexpired.
    #[test]
    fn whoever_acts_holds(seed in any::<u64>()) {
        let mut world = World::new(seed);
        world.run(120_000 * MS)?;
        prop_assert!(world.grants > 0 && world.acts > 0, "nothing happened");
    }
}

/// The world above is worth nothing if nothing goes wrong in it.
#[test]
fn the_world_is_harsh_enough() {
    let (mut acts, mut grants, mut losses) = (0, 0, 0);
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.run(120_000 * MS).expect("it holds");
        acts += world.acts;
        grants += world.grants;
        losses += world.losses;
    }
    assert!(
        acts > 2_000 && grants > 200 && losses > 100,
        "{acts} {grants} {losses}"
    );
}
