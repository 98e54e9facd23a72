//! Short words for histories made by hand.

use leasehold_torture::history::{Call, Change, History, Outcome, Step, What};

/// A history of one lease under construction, in any order of time.
#[derive(Clone, Default)]
pub(crate) struct Scene(History);

impl Scene {
    /// A call of the process and session `who`, with its answer.
    pub(crate) fn op(
        mut self,
        from: u64,
        to: u64,
        who: &str,
        call: Call,
        outcome: Outcome,
    ) -> Self {
        let id = self.0.invoke(from, who, "orders", who, call);
        self.0.answer(to, who, id, outcome);
        self
    }

    /// A call that was never answered.
    pub(crate) fn ask(mut self, from: u64, who: &str, call: Call) -> Self {
        self.0.invoke(from, who, "orders", who, call);
        self
    }

    pub(crate) fn at(mut self, time: u64, who: &str, what: What) -> Self {
        self.0.push(time, who, what);
        self
    }

    pub(crate) fn store(self, time: u64, change: Change) -> Self {
        self.at(
            time,
            "store",
            What::Store {
                lease: None,
                change,
            },
        )
    }

    pub(crate) fn fault(self, from: u64, victim: Option<&str>, to: u64, exceeds: bool) -> Self {
        let victim = victim.map(String::from);
        let kind = "freeze".into();
        self.at(
            from,
            "harness",
            What::Fault {
                kind,
                victim,
                until: Some(to),
                exceeds,
            },
        )
    }

    pub(crate) fn step(self, time: u64, who: &str, token: u64, step: Step) -> Self {
        self.at(
            time,
            who,
            What::Tenure {
                lease: "orders".into(),
                token,
                step,
            },
        )
    }

    /// The history, in the order of time.
    pub(crate) fn history(self) -> History {
        History::merge([self.0])
    }
}

/// The same scene with another lease.
pub(crate) fn on(lease: &str, mut scene: Scene) -> Scene {
    for event in &mut scene.0.events {
        event.process = format!("{}-{lease}", event.process);
        if let What::Invoke(invoke) = &mut event.what {
            invoke.lease = lease.into();
        }
    }
    scene
}

/// Seconds.
pub(crate) const fn s(seconds: u64) -> u64 {
    seconds * 1_000_000_000
}

/// Tenths of a second.
pub(crate) const fn tenths(tenths: u64) -> u64 {
    tenths * 100_000_000
}

pub(crate) fn acquire(request: &str) -> Call {
    Call::Acquire {
        request: request.into(),
        ttl: s(10),
    }
}

pub(crate) fn renew(token: u64) -> Call {
    Call::Renew { token, ttl: s(10) }
}

pub(crate) fn release(token: u64) -> Call {
    Call::Release {
        token: Some(token),
        request: None,
    }
}

pub(crate) fn release_request(request: &str) -> Call {
    Call::Release {
        token: None,
        request: Some(request.into()),
    }
}

pub(crate) fn read() -> Call {
    Call::Read
}

pub(crate) fn granted(token: u64, ttl: u64) -> Outcome {
    Outcome::Granted { token, ttl }
}

pub(crate) fn renewed(ttl: u64) -> Outcome {
    Outcome::Renewed { ttl }
}

pub(crate) fn held(token: u64, by: &str) -> Outcome {
    Outcome::Held {
        token,
        by: Some(by.into()),
    }
}

pub(crate) fn free(token: u64) -> Outcome {
    Outcome::Seen {
        token,
        held: false,
        by: None,
    }
}
