//! For the tests: plays one holder against one record, by hand or by itself, on one clock in milliseconds.

use core::num::NonZeroU128;
use std::vec::Vec;

use super::*;
use crate::{Answer, Command, Record, Release, StoreTime, Timing, Token, Ttl, decide};

pub(super) struct Seed(pub(super) u64);

impl Dice for Seed {
    fn roll(&mut self) -> NonZeroU128 {
        let mut next = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(z ^ (z >> 31))
        };
        NonZeroU128::new((next() << 64) | next()).expect("not both are zero")
    }
}

pub(super) struct Played {
    pub(super) hold: Hold,
    pub(super) record: Record,
    pub(super) now: u64,
    /// Every command that was sent, with its attempt and its time.
    pub(super) sent: Vec<(u64, u64, Command)>,
    /// Everything that was told, with its time.
    pub(super) told: Vec<(u64, Tell)>,
    /// How long the store may hold back what was sent last.
    pub(super) held_back: Duration,
    dice: Seed,
}

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn boot(millis: u64) -> BootTime {
    BootTime::ZERO.plus(ms(millis))
}

/// ttl 15 s: P 5, A 2.5, D = sent + 12, kill at 11, stop at 9.
pub(super) fn plan() -> Plan {
    let timing = Timing::new(Ttl::DEFAULT).unwrap();
    Plan::new("jobs".parse().unwrap(), "a".parse().unwrap(), timing)
}

pub(super) fn unknown() -> Failure {
    Failure::Unknown("cut off".into())
}

pub(super) fn unavailable() -> Failure {
    Failure::Unavailable("down".into())
}

pub(super) const MINE: u128 = 77;
pub(super) const RENEWED: Answer = Answer::Renewed { ttl: Ttl::DEFAULT };

impl Played {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            hold: Hold::new(plan, crate::Session::from_bits(MINE).unwrap()),
            record: Record::new(None),
            now: 0,
            sent: Vec::new(),
            told: Vec::new(),
            held_back: Duration::ZERO,
            dice: Seed(1),
        }
    }

    /// Holds token 1, granted at 0.
    pub(super) fn held() -> Self {
        Self::held_with(plan())
    }

    pub(super) fn held_with(plan: Plan) -> Self {
        let mut played = Self::new(plan);
        played.hear(Input::Want(Wait::Forever));
        played.answer();
        assert!(played.hold.is_held());
        played
    }

    /// Somebody else holds from now on.
    pub(super) fn take(&mut self, ttl: u64) -> Answer {
        let asked = crate::Acquire {
            session: crate::Session::from_bits(99).unwrap(),
            request_id: Seed(self.now).roll().into(),
            holder: "b".parse().unwrap(),
            info: None,
            ttl: Ttl::from_millis(ttl).unwrap(),
            lock_delay: crate::LockDelay::NONE,
        };
        self.store(Command::Acquire(asked))
    }

    pub(super) fn store(&mut self, command: Command) -> Answer {
        let now = StoreTime::ZERO.plus(ms(self.now));
        let (record, answer) = decide(self.record.clone(), command, now);
        self.record = record;
        answer
    }

    pub(super) fn hear(&mut self, input: Input) {
        for action in self.hold.step(boot(self.now), input, &mut self.dice) {
            match action {
                Action::Send {
                    attempt,
                    op,
                    hold_back,
                    ..
                } => {
                    self.held_back = hold_back;
                    match op {
                        Op::Lease { command, .. } => self.sent.push((attempt, self.now, command)),
                        op => panic!("{op:?}"),
                    }
                }
                Action::Tell(tell) => self.told.push((self.now, tell)),
            }
        }
    }

    /// Moves on to `millis`, waking the holder whenever it asked for it.
    pub(super) fn run_to(&mut self, millis: u64) {
        while let Some(wake) = self.hold.wake_at() {
            let wake = wake.as_nanos().div_ceil(1_000_000).max(self.now);
            if wake > millis {
                break;
            }
            self.now = wake;
            self.hear(Input::Tick);
        }
        self.now = millis;
    }

    /// Moves on until something is sent.
    pub(super) fn run_to_send(&mut self) {
        self.run_to_send_or(u64::MAX);
    }

    /// The same, but not past `millis`.
    pub(super) fn run_to_send_or(&mut self, millis: u64) {
        let before = self.sent.len();
        while self.sent.len() == before && self.now < millis {
            let wake = self.hold.wake_at().expect("it has something to do");
            let wake = wake.as_nanos().div_ceil(1_000_000).max(self.now);
            self.run_to(wake.min(millis));
        }
    }

    pub(super) fn last(&self) -> (u64, Command) {
        let (attempt, _, command) = self.sent.last().unwrap();
        (*attempt, command.clone())
    }

    /// The store evaluates the last command now, and the answer arrives now.
    pub(super) fn answer(&mut self) -> Answer {
        let (attempt, command) = self.last();
        let answer = self.store(command);
        self.hear(Input::Answered {
            attempt,
            answer: answer.clone(),
        });
        answer
    }

    pub(super) fn reply(&mut self, answer: Answer) {
        let (attempt, _) = self.last();
        self.hear(Input::Answered { attempt, answer });
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        let (attempt, _) = self.last();
        self.hear(Input::Failed { attempt, failure });
    }

    /// Runs to `millis`; every attempt fails at once.
    pub(super) fn fail_to(&mut self, millis: u64, failure: &Failure) {
        loop {
            let before = self.sent.len();
            let wake = self
                .hold
                .wake_at()
                .map(|wake| wake.as_nanos().div_ceil(1_000_000));
            let Some(wake) = wake.filter(|wake| *wake <= millis) else {
                break;
            };
            self.run_to(wake.max(self.now));
            if self.sent.len() > before {
                self.fail(failure.clone());
            }
        }
        self.run_to(millis);
    }

    pub(super) fn deadline(&self) -> u64 {
        self.hold.term().unwrap().deadline().as_nanos() / 1_000_000
    }

    /// When renewals were sent.
    pub(super) fn renewals(&self) -> Vec<u64> {
        let sent = self.sent.iter();
        sent.filter_map(|(_, at, command)| matches!(command, Command::Renew(_)).then_some(*at))
            .collect()
    }

    /// When the work was first told to stop.
    pub(super) fn stopped_at(&self) -> Option<u64> {
        self.has_told(|tell| matches!(tell, Tell::Stop { .. }))
    }

    pub(super) fn releases(&self) -> Vec<(u64, Release)> {
        let releases = self
            .sent
            .iter()
            .filter_map(|(_, at, command)| match command {
                Command::Release(release) => Some((*at, release.clone())),
                _ => None,
            });
        releases.collect()
    }

    pub(super) fn has_told(&self, what: impl Fn(&Tell) -> bool) -> Option<u64> {
        self.told
            .iter()
            .find_map(|(at, tell)| what(tell).then_some(*at))
    }

    pub(super) fn loss(&self) -> Option<Loss> {
        self.told.iter().rev().find_map(|(_, tell)| match tell {
            Tell::Stop { loss, .. } => Some(loss.clone()),
            _ => None,
        })
    }

    pub(super) fn gave_up(&self) -> Option<GaveUp> {
        self.told.iter().rev().find_map(|(_, tell)| match tell {
            Tell::GaveUp(why) => Some(why.clone()),
            _ => None,
        })
    }

    pub(super) fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }
}
