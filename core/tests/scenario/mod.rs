//! The world of a scenario: one table, one clock that moves by `advance` only, and receivers outside the store.
//!
//! A name stands for an id: `by=a` has the session `a` unless `session=` names another. Every acquire is a new request
//! unless `request=` names one; a renewal has an id of its own unless `id=` names one.

mod line;
mod words;

use std::{collections::BTreeMap, time::Duration};

use leasehold_core::{
    Abandon, Acquire, AttemptId, Begin, Command, Complete, Entry, Event, Fence, Fingerprint,
    Holder, Info, LeaseName, LockDelay, Op, Outcome, Proof, Release, Renew, RenewId, RequestId,
    Session, Stamp, StoreTime, Table, Token, Unfinished, Value, WallTime, Work,
};

pub(crate) use line::Line;

/// A scenario begins on 1 January 2026 by the wall clock, and at 0 s by the store's.
const START: WallTime = WallTime::from_nanos(1_767_225_600_000_000_000);

pub(crate) struct World {
    table: Table,
    now: StoreTime,
    wall: WallTime,
    receivers: BTreeMap<String, Fence>,
    events: Vec<Event>,
    requests: u128,
}

type Answer = Result<Vec<String>, String>;

impl World {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            now: StoreTime::ZERO,
            wall: START,
            receivers: BTreeMap::new(),
            events: Vec::new(),
            requests: 0,
        }
    }

    /// Does what one line says and answers in lines.
    pub(crate) fn obey(&mut self, line: &str) -> Answer {
        let mut line = Line::read(line)?;
        let answer = match line.verb.as_str() {
            "advance" => self.advance(&line)?,
            "wall" => self.step_wall(&line)?,
            "admit" | "barrier" | "check" => self.receive(&mut line)?,
            "status" | "list" | "get" | "fence" | "floor" | "events" => self.look(&mut line)?,
            "collect" => vec![self.collect(&mut line)?],
            "restart" => self.restart()?,
            _ => {
                let op = self.op(&mut line)?;
                let lease = match &op {
                    Op::Lease { name, .. } => Some(name.clone()),
                    _ => None,
                };
                let outcome = self.apply(op);
                let until = lease.and_then(|name| self.table.record(&name).map(|r| r.expires));
                vec![words::outcome(&outcome, until)]
            }
        };
        line.all_used()?;
        Ok(answer)
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            now: self.now,
            wall: self.wall,
        }
    }

    fn apply(&mut self, op: Op) -> Outcome {
        let stamp = self.stamp();
        self.table.apply(op, stamp, &mut self.events)
    }

    fn advance(&mut self, line: &Line) -> Answer {
        let by = line::duration(&line.object)?;
        self.now = self.now.plus(by);
        self.wall = self.wall.plus(by);
        Ok(Vec::new())
    }

    /// `wall +1h`, `wall -1h`: the wall clock steps, the store's clock does not.
    fn step_wall(&mut self, line: &Line) -> Answer {
        let (sign, by) = line.object.split_at_checked(1).ok_or("+1h or -1h")?;
        let by = line::duration(by)?;
        self.wall = match sign {
            "+" => self.wall.plus(by),
            "-" => self.wall.minus(by),
            _ => return Err("+1h or -1h".into()),
        };
        Ok(Vec::new())
    }

    /// A receiver that is no part of the store: it knows nothing but the largest token it has seen.
    fn receive(&mut self, line: &mut Line) -> Answer {
        let proof: Proof = proof(line)?.ok_or("lease= and token= are missing")?;
        let fence = self.receivers.entry(line.object.clone()).or_insert(Fence {
            lease: proof.lease.clone(),
            highest: Token::FIRST,
        });
        let result = match line.verb.as_str() {
            "admit" => fence.admit(&proof.lease, proof.token),
            "barrier" => fence.raise(&proof.lease, proof.token),
            _ => fence.check(&proof.lease, proof.token),
        };
        Ok(vec![match result {
            Ok(()) => "ok".into(),
            Err(refusal) => format!("refused: {refusal}"),
        }])
    }

    fn look(&mut self, line: &mut Line) -> Answer {
        let now = self.now;
        Ok(match line.verb.as_str() {
            "status" => match self.table.status(&name(&line.object)?, now) {
                Some(status) => vec![words::status(&status)],
                None => vec!["unknown".into()],
            },
            "list" => {
                let limit = line.take("limit").map_or(Ok(10), |text| text.parse());
                let limit = limit.map_err(|_| "limit= is a number")?;
                let list = self.table.list(&line.object, limit, now);
                list.iter().map(words::status).collect()
            }
            "get" => match self.table.pair(&parse(&line.object)?) {
                Some(pair) => vec![words::pair(pair)],
                None => vec!["nothing".into()],
            },
            "fence" => match self.table.fence(&parse(&line.object)?) {
                Some(fence) => vec![format!("{} of {}", fence.highest, fence.lease)],
                None => vec!["none".into()],
            },
            "floor" => vec![match self.table.floor() {
                Some(floor) => floor.to_string(),
                None => "none".into(),
            }],
            _ => self
                .events
                .drain(..)
                .map(|event| words::event(&event))
                .collect(),
        })
    }

    fn collect(&mut self, line: &mut Line) -> Result<String, String> {
        let age = line
            .take("age")
            .map_or(Ok(Entry::KEPT), |text| line::duration(&text))?;
        let stamp = self.stamp();
        let gone = self.table.collect(stamp, age);
        Ok(format!("{gone} gone, {} left", self.table.len()))
    }

    /// The store goes down, comes back from its snapshot, and counts on from where it was.
    fn restart(&mut self) -> Answer {
        self.table.advance(self.now);
        let table = Table::restore(&self.table.snapshot()).map_err(|error| error.to_string())?;
        if table != self.table {
            return Err("the restored table is another one".into());
        }
        self.now = table.now();
        self.table = table;
        Ok(Vec::new())
    }

    fn op(&mut self, line: &mut Line) -> Result<Op, String> {
        Ok(match line.verb.as_str() {
            "put" => Op::Put {
                key: parse(&line.object)?,
                value: value(line)?,
                proof: proof(line)?,
            },
            "delete" => Op::Delete {
                key: parse(&line.object)?,
                proof: proof(line)?,
            },
            "raise" => Op::Raise {
                resource: parse(&line.object)?,
                proof: proof(line)?.ok_or("lease= and token= are missing")?,
            },
            "bump" => Op::Bump {
                above: parse(&line.object)?,
            },
            "begin" => Op::Begin(self.begin(line)?),
            "complete" => Op::Complete(Complete {
                token: parse(&line.need("token")?)?,
                attempt: attempt(line)?,
                response: value(line)?,
                work: work(line)?,
            }),
            "abandon" => Op::Abandon(Abandon {
                token: parse(&line.need("token")?)?,
                attempt: attempt(line)?,
                work: work(line)?,
            }),
            _ => Op::Lease {
                name: name(&line.object)?,
                command: self.command(line)?,
            },
        })
    }

    fn command(&mut self, line: &mut Line) -> Result<Command, String> {
        Ok(match line.verb.as_str() {
            "acquire" => {
                self.requests += 1;
                let by = line.need("by")?;
                let request = line.take("request");
                Command::Acquire(Acquire {
                    session: session(line, &by)?,
                    request_id: request
                        .map_or(RequestId::from_bits(self.requests), |word| {
                            RequestId::from_bits(line::bits(&word))
                        })
                        .ok_or("request= is empty")?,
                    holder: Holder::new(&by).map_err(|error| error.to_string())?,
                    info: line
                        .take("info")
                        .map(|text| parse::<Info>(&text))
                        .transpose()?,
                    ttl: line::ttl(&line.need("ttl")?)?,
                    lock_delay: line
                        .take("lock-delay")
                        .map_or(Ok(LockDelay::NONE), |text| {
                            LockDelay::new(line::duration(&text)?)
                                .map_err(|error| error.to_string())
                        })?,
                })
            }
            "renew" => {
                let by = line.need("by")?;
                let number = line.need("number")?;
                let id = line.take("id").unwrap_or(format!("{by}{number}"));
                Command::Renew(Renew {
                    token: parse(&line.need("token")?)?,
                    session: session(line, &by)?,
                    ttl: line::ttl(&line.need("ttl")?)?,
                    number: number.parse().map_err(|_| "number= is a number")?,
                    renew_id: RenewId::from_bits(line::bits(&id)).ok_or("id= is empty")?,
                })
            }
            "release" => Command::Release(release(line)?),
            "force-release" => Command::ForceRelease {
                now: line.take_word("now"),
            },
            "quarantine" => Command::Quarantine {
                above: parse(&line.need("above")?)?,
            },
            verb => return Err(format!("nobody knows how to {verb}")),
        })
    }

    fn begin(&mut self, line: &mut Line) -> Result<Begin, String> {
        let what = line.take("what").unwrap_or_default();
        let mut fingerprint = [0; 32];
        fingerprint[..16].copy_from_slice(&line::bits(&what).to_be_bytes());
        let age = line
            .take("born")
            .map(|text| line::duration(&text))
            .transpose()?;
        Ok(Begin {
            token: parse(&line.need("token")?)?,
            attempt: attempt(line)?,
            holder: Holder::new(&line.need("by")?).map_err(|error| error.to_string())?,
            fingerprint: Fingerprint(fingerprint),
            unfinished: if line.take_word("at-most-once") {
                Unfinished::Leave
            } else {
                Unfinished::TakeOver
            },
            born: age.map(|at: Duration| START.plus(at)),
            work: work(line)?,
        })
    }
}

fn release(line: &mut Line) -> Result<Release, String> {
    let by = line.need("by")?;
    let session = session(line, &by)?;
    Ok(match line.take("request") {
        Some(word) => Release::Request {
            session,
            request_id: RequestId::from_bits(line::bits(&word)).ok_or("request= is empty")?,
        },
        None => Release::Tenure {
            token: parse(&line.need("token")?)?,
            session,
        },
    })
}

fn session(line: &mut Line, by: &str) -> Result<Session, String> {
    let word = line.take("session");
    let bits = line::bits(word.as_deref().unwrap_or(by));
    Session::from_bits(bits).ok_or("session= is empty".into())
}

fn attempt(line: &mut Line) -> Result<AttemptId, String> {
    let word = line.need("attempt")?;
    AttemptId::from_bits(line::bits(&word)).ok_or("attempt= is empty".into())
}

fn work(line: &mut Line) -> Result<Work, String> {
    Ok(Work {
        lease: name(&line.need("lease")?)?,
        key: parse(&line.object)?,
    })
}

fn value(line: &mut Line) -> Result<Value, String> {
    Value::new(line.need("value")?.as_bytes()).map_err(|error| error.to_string())
}

fn proof(line: &mut Line) -> Result<Option<Proof>, String> {
    match (line.take("lease"), line.take("token")) {
        (None, None) => Ok(None),
        (Some(lease), Some(token)) => Ok(Some(Proof {
            lease: name(&lease)?,
            token: parse(&token)?,
        })),
        _ => Err("lease= and token= come together".into()),
    }
}

fn name(text: &str) -> Result<LeaseName, String> {
    parse(text)
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}
