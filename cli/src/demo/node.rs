//! A node of the demo: `lease_a` or `lease_b`. It does what the driver tells it, and reaches everything else by a socket.
//!
//! It ends when the driver does: by the end of its standard input, or, frozen, by the signal the kernel sends it.

use std::io::{self, BufRead, Write};

use anyhow::{Context, bail};
use leasehold::core::{
    Acquire, Answer, Command, Holder, LeaseName, LockDelay, Op, Outcome, Pair, Proof, Release,
    Session, State, Status, Token, Ttl, Value,
};

use super::{
    connection::Connection,
    peer::Peer,
    wire::{self, Ask, Found, Query, Reply, Target},
};

/// What a node knows.
pub(crate) struct Node {
    name: Holder,
    session: Session,
    store: Option<Connection>,
    token: Option<Token>,
    peer: Peer,
}

/// Serves the driver until it is gone.
pub(crate) fn main(name: &str) -> anyhow::Result<()> {
    let mut node = Node::new(name)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    while let Some(ask) = wire::receive(&mut input)? {
        let reply = node.answer(ask, &mut input, &mut output);
        let reply = reply.unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        wire::send(&mut output, &reply)?;
    }
    Ok(())
}

impl Node {
    fn new(name: &str) -> anyhow::Result<Self> {
        Ok(Self {
            name: Holder::new(name)?,
            session: crate::ask::new_session()?,
            store: None,
            token: None,
            peer: Peer::new(name),
        })
    }

    fn answer(
        &mut self,
        ask: Ask,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> anyhow::Result<Reply> {
        Ok(match ask {
            Ask::Use(place) => {
                self.store = Some(Connection::open(place)?);
                Reply::Done
            }
            Ask::Acquire { lease, ttl } => Reply::Lease(self.acquire(lease, ttl)?),
            Ask::Release { lease } => Reply::Lease(self.release(lease)?),
            Ask::Report { lease, to } => {
                let status = match self.query(Query::Status(lease.clone()))? {
                    Found::Status(status) => status,
                    other => return Err(confused(&other)),
                };
                let mine = self.is_mine(status.as_ref());
                wire::send(output, &Reply::Checked { status, mine })?;
                // Here a node freezes: it knows that it holds, and has not written yet.
                match wire::receive(input)? {
                    Some(Ask::GoOn) => Reply::Wrote(self.write(&lease, &to)?),
                    other => bail!("stands between a check and a write, and was told {other:?}"),
                }
            }
            Ask::Read { key } => match self.query(Query::Pair(key))? {
                Found::Pair(pair) => Reply::Text(pair.map(|pair| text(&pair))),
                other => return Err(confused(&other)),
            },
            Ask::Show => Reply::Visible {
                port: self.peer.show()?,
            },
            Ask::Meet { port } => {
                self.peer.meet(port);
                Reply::Done
            }
            Ask::Cut => {
                self.peer.cut();
                Reply::Done
            }
            Ask::Look => {
                let names = self.peer.look();
                // The rule of many a cluster: of all that I see, the first one.
                let runs = names
                    .first()
                    .is_some_and(|first| first == self.name.as_str());
                Reply::Sees { names, runs }
            }
            Ask::Advance { .. } | Ask::GoOn => bail!("a node cannot do that: {ask:?}"),
        })
    }

    /// Every call is a new logical acquire, so it has a new request id (A4).
    fn acquire(&mut self, name: LeaseName, ttl: Ttl) -> anyhow::Result<Answer> {
        let command = Command::Acquire(Acquire {
            session: self.session,
            request_id: crate::ask::new_request_id()?,
            holder: self.name.clone(),
            info: None,
            ttl,
            lock_delay: LockDelay::NONE,
        });
        let answer = self.command(name, command)?;
        if let Answer::Granted(grant) = &answer {
            self.token = Some(grant.token);
        }
        Ok(answer)
    }

    fn release(&mut self, name: LeaseName) -> anyhow::Result<Answer> {
        let token = self.token.context("there is no lease to release")?;
        let session = self.session;
        let command = Command::Release(Release::Tenure { token, session });
        self.command(name, command)
    }

    fn command(&mut self, name: LeaseName, command: Command) -> anyhow::Result<Answer> {
        match self.query(Query::Apply(Op::Lease { name, command }))? {
            Found::Outcome(Outcome::Lease(answer)) => Ok(answer),
            other => Err(confused(&other)),
        }
    }

    fn is_mine(&self, status: Option<&Status>) -> bool {
        status.is_some_and(|status| {
            status.state == State::Held && status.token == self.token && self.token.is_some()
        })
    }

    fn write(&mut self, lease: &LeaseName, to: &[Target]) -> anyhow::Result<Vec<Outcome>> {
        let text = format!("report by {}", short(self.name.as_str()));
        let value = Value::new(text.as_bytes())?;
        let mut outcomes = Vec::with_capacity(to.len());
        for Target { key, fenced } in to {
            let proof = match fenced {
                true => Some(Proof {
                    lease: lease.clone(),
                    token: self.token.context("there is no token to show")?,
                }),
                false => None,
            };
            let (key, value) = (key.clone(), value.clone());
            match self.query(Query::Apply(Op::Put { key, value, proof }))? {
                Found::Outcome(outcome) => outcomes.push(outcome),
                other => return Err(confused(&other)),
            }
        }
        Ok(outcomes)
    }

    fn query(&mut self, query: Query) -> anyhow::Result<Found> {
        let store = self.store.as_mut().context("there is no store to ask")?;
        store.ask(query)
    }
}

fn confused(found: &Found) -> anyhow::Error {
    anyhow::anyhow!("the store answered another question than the one asked: {found:?}")
}

/// `a` of `lease_a`.
pub(crate) fn short(name: &str) -> &str {
    name.strip_prefix("lease_").unwrap_or(name)
}

fn text(pair: &Pair) -> String {
    String::from_utf8_lossy(pair.value.as_bytes()).into_owned()
}
