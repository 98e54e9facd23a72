//! One member at work: who leads, what time it is in the log, and how acts and questions get there and back.
//!
//! An act is answered when its entry is applied, and not before (R1). What was certainly not done is tried again; what
//! may have been done is tried again only if doing it twice is doing it once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold::clock::Clock;
use leasehold_core::{Answer, BootTime, Command, Op, Outcome, Stamp, StoreTime, Verdict};
use openraft::{
    Raft, ServerState, async_runtime::watch::WatchReceiver, errors::ClientWriteError,
    impls::OneshotResponder,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    log::Log,
    machine::Machine,
    reign::Reign,
    transport::{Card, NoAnswer, Peer, Transport},
    types::{Act, Batch, Came, Committed, Types},
    wire::{Failed, Request, Response},
};

/// The most acts in one entry.
const ACTS: usize = 256;
/// The most entries that are on their way at once; what comes meanwhile shares the next ones.
const ON_THE_WAY: usize = 4;
/// How long to wait before something that was not done is tried again.
const SOON: Duration = Duration::from_millis(20);

pub(crate) type Engine = Raft<Types, Machine>;
pub(crate) type Result1 = Result<Came, Failed>;

/// What a member has at hand.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) machine: Machine,
    pub(crate) log: Log,
    pub(crate) card: Arc<Card>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) address: String,
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) patience: Duration,
    /// How long another member may take to answer before it counts as gone.
    pub(crate) try_for: Duration,
    pub(crate) reign: Mutex<Option<Reign>>,
}

/// Acts of one caller.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) acts: Vec<Act>,
    pub(crate) received: BootTime,
    pub(crate) until: Instant,
    /// Another member sent it here because this one leads.
    pub(crate) forwarded: bool,
    /// `None`: nothing was done, this member does not lead.
    pub(crate) reply: oneshot::Sender<Option<Vec<Result1>>>,
}

/// Who leads.
pub(crate) enum Place {
    Here { term: u64, now: StoreTime },
    There(Peer),
    Nowhere,
}

/// What became of one try.
enum Tried {
    Came(Vec<Result1>),
    NotDone(String),
    Lost(String),
}

impl Node {
    /// Who leads, as far as this member knows, and log time if it is this one and knows it.
    pub(crate) fn place(&self) -> Place {
        let metrics = self.engine.server_metrics();
        let metrics = metrics.borrow_watched();
        match metrics.current_leader {
            Some(leader) if leader == self.card.node => {
                let term = metrics.vote.leader_id().term;
                let leads = metrics.state == ServerState::Leader && metrics.vote.is_committed();
                drop(metrics);
                match leads.then(|| self.log_time(term)).flatten() {
                    Some(now) => Place::Here { term, now },
                    None => Place::Nowhere,
                }
            }
            Some(leader) => {
                let membership = metrics.membership_config.membership();
                match membership.get_node(&leader) {
                    Some(address) => Place::There(Peer {
                        node: Some(leader),
                        address: address.0.clone(),
                    }),
                    None => Place::Nowhere,
                }
            }
            None => Place::Nowhere,
        }
    }

    /// Not before this leader's own first entry is in the table (A5): until then the log may hold a later time.
    fn log_time(&self, term: u64) -> Option<StoreTime> {
        let mut reign = self.reign.lock().unwrap_or_else(PoisonError::into_inner);
        let current = reign.filter(|reign| reign.term == term);
        if let Some(now) = current.and_then(|reign| reign.now(&self.clock)) {
            return Some(now);
        }
        let state = self.machine.state();
        let applied = state.applied?;
        if **applied.committed_leader_id() != term {
            return None;
        }
        let base = state.table.now();
        drop(state);
        *reign = Some(Reign::begin(term, base, &self.clock));
        Some(base)
    }

    /// Takes jobs as they come and puts many into one entry, until all senders are gone.
    pub(crate) async fn drive(self: Arc<Self>, mut jobs: mpsc::Receiver<Job>) {
        let mut waiting = VecDeque::new();
        let mut going = JoinSet::new();
        loop {
            while going.len() < ON_THE_WAY && !waiting.is_empty() {
                going.spawn(self.clone().carry(group(&mut waiting)));
            }
            // In this order, so that the simulation sees the same twice.
            tokio::select! {
                biased;
                Some(_) = going.join_next() => {}
                job = jobs.recv() => match job {
                    Some(job) => waiting.push_back(job),
                    None => return,
                },
            }
            while let Ok(job) = jobs.try_recv() {
                waiting.push_back(job);
            }
        }
    }

    /// Tries until every act has come to something or time is up.
    async fn carry(self: Arc<Self>, jobs: Vec<Job>) {
        let Some(until) = jobs.iter().map(|job| job.until).min() else {
            return;
        };
        let forwarded = jobs.iter().any(|job| job.forwarded);
        let mut load = Load::new(jobs);
        loop {
            let acts = load.open();
            if acts.is_empty() {
                return load.answer();
            }
            let asked = self.clock.now();
            let tried = match self.place() {
                Place::Here { term, now } => self.write(term, now, acts, until).await,
                _ if forwarded => return load.turn_away(),
                Place::There(leader) => self.forward(&leader, acts, until).await,
                Place::Nowhere => Tried::NotDone("no member leads".into()),
            };
            let why = match tried {
                Tried::Came(came) => {
                    load.fill(came, asked);
                    continue;
                }
                Tried::NotDone(why) => why,
                Tried::Lost(why) => {
                    load.doubt(&why);
                    why
                }
            };
            let stopped = self.failure();
            if Instant::now() + SOON >= until || stopped.is_some() {
                return load.give_up(&stopped.unwrap_or(why));
            }
            sleep(SOON).await;
        }
    }

    /// As one entry of this term, at this time.
    async fn write(&self, term: u64, now: StoreTime, acts: Vec<Act>, until: Instant) -> Tried {
        let wall = self.clock.wall();
        let batch = Batch::new(term, Stamp { now, wall }, acts);
        let (responder, answer) = OneshotResponder::new_pair();
        let proposed = (self.engine.write(batch))
            .with_leader(Committed::new(term))
            .responder(responder);
        if let Err(fatal) = proposed.await {
            return Tried::NotDone(format!("this member has stopped: {fatal}"));
        }
        match timeout_at(until, answer).await {
            Ok(Ok(Ok(response))) => Tried::Came(response.data.into_iter().map(Ok).collect()),
            Ok(Ok(Err(ClientWriteError::ForwardToLeader(_)))) => {
                Tried::NotDone("the leader has changed, or lost touch with the others".into())
            }
            Ok(Ok(Err(error))) => Tried::Lost(error.to_string()),
            Ok(Err(_)) => Tried::Lost("this member has stopped".into()),
            Err(_) => Tried::Lost("no majority has confirmed it in time".into()),
        }
    }

    async fn forward(&self, leader: &Peer, acts: Vec<Act>, until: Instant) -> Tried {
        let patience = self.try_for.min(left(until));
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Apply { acts, patience_ms };
        match self.transport.call(leader, &request, patience).await {
            Ok(Response::Applied(came)) => Tried::Came(came),
            Ok(Response::NotLeading) => Tried::NotDone("the leader has changed".into()),
            Ok(Response::Failed(why)) => Tried::Lost(why),
            Ok(_) => Tried::Lost("an odd response".into()),
            Err(NoAnswer::NotSent(why)) => Tried::NotDone(why),
            Err(NoAnswer::Lost(why)) => Tried::Lost(why),
        }
    }

    /// Lets log time pass and nothing else; whether it did.
    pub(crate) async fn tick(&self, term: u64, now: StoreTime, until: Instant) -> bool {
        matches!(
            self.write(term, now, Vec::new(), until).await,
            Tried::Came(_)
        )
    }

    /// Why this member cannot go on, if it cannot.
    pub(crate) fn failure(&self) -> Option<String> {
        let metrics = self.engine.metrics();
        let metrics = metrics.borrow_watched();
        match &metrics.running_state {
            Ok(()) => None,
            Err(fatal) => Some(format!("this member has stopped: {fatal}")),
        }
    }

    /// Puts acts onto their way; the answer is as in [`Job::reply`].
    pub(crate) fn submit(
        &self,
        acts: Vec<Act>,
        until: Instant,
        forwarded: bool,
    ) -> Result<oneshot::Receiver<Option<Vec<Result1>>>, Failed> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            acts,
            received: self.clock.now(),
            until,
            forwarded,
            reply,
        };
        let full = |error| {
            Failed::Unavailable(match error {
                mpsc::error::TrySendError::Full(_) => "too many operations wait already".into(),
                mpsc::error::TrySendError::Closed(_) => "this member has been stopped".into(),
            })
        };
        self.jobs.try_send(job).map_err(full)?;
        Ok(answer)
    }
}

/// The next jobs that fit into one entry. Those of other members are not mixed with this one's: they go back if it does
/// not lead.
fn group(waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut acts = 0;
    while let Some(job) = waiting.front() {
        let fits = jobs
            .first()
            .is_none_or(|first| first.forwarded == job.forwarded && acts + job.acts.len() <= ACTS);
        if !fits {
            break;
        }
        acts += job.acts.len();
        jobs.extend(waiting.pop_front());
    }
    jobs
}

/// Jobs on their way, and what came of each act so far.
struct Load {
    jobs: Vec<Job>,
    slots: Vec<Slot>,
}

struct Slot {
    act: Act,
    job: usize,
    came: Option<Result1>,
    /// It may have been done.
    doubt: bool,
}

impl Load {
    fn new(mut jobs: Vec<Job>) -> Self {
        let mut slots = Vec::new();
        for (job, taken) in jobs.iter_mut().enumerate() {
            slots.extend(std::mem::take(&mut taken.acts).into_iter().map(|act| Slot {
                act,
                job,
                came: None,
                doubt: false,
            }));
        }
        Self { jobs, slots }
    }

    fn open(&self) -> Vec<Act> {
        let open = self.slots.iter().filter(|slot| slot.came.is_none());
        open.map(|slot| slot.act.clone()).collect()
    }

    /// What came of the open acts, in their order. `asked`: when they were put on their way, before they were evaluated.
    fn fill(&mut self, came: Vec<Result1>, asked: BootTime) {
        let open = self.slots.iter_mut().filter(|slot| slot.came.is_none());
        let mut came = came.into_iter();
        for slot in open {
            match came.next() {
                Some(Ok(mut came)) => {
                    let held = asked.since(self.jobs[slot.job].received);
                    wait_counts(&mut came, held);
                    slot.came = Some(match slot.doubt && !settles(&came) {
                        true => Err(Failed::Unknown("an earlier try may yet be done".into())),
                        false => Ok(came),
                    });
                }
                Some(Err(Failed::Unknown(_))) if repeats(&slot.act) => slot.doubt = true,
                Some(Err(failed)) => slot.came = Some(Err(failed)),
                None => slot.came = Some(Err(Failed::Unknown("it was not answered".into()))),
            }
        }
    }

    /// What may have been done is not done again, unless twice is once.
    fn doubt(&mut self, why: &str) {
        for slot in self.slots.iter_mut().filter(|slot| slot.came.is_none()) {
            slot.doubt = true;
            if !repeats(&slot.act) {
                slot.came = Some(Err(Failed::Unknown(why.to_owned())));
            }
        }
    }

    fn give_up(mut self, why: &str) {
        for slot in self.slots.iter_mut().filter(|slot| slot.came.is_none()) {
            slot.came = Some(Err(match slot.doubt {
                true => Failed::Unknown(why.to_owned()),
                false => Failed::Unavailable(why.to_owned()),
            }));
        }
        self.answer();
    }

    /// To members who thought that this one leads.
    fn turn_away(self) {
        if self
            .slots
            .iter()
            .any(|slot| slot.doubt || slot.came.is_some())
        {
            return self.give_up("the leader has changed");
        }
        for job in self.jobs {
            let _ = job.reply.send(None);
        }
    }

    fn answer(self) {
        let mut answers: Vec<Vec<Result1>> = self.jobs.iter().map(|_| Vec::new()).collect();
        for slot in self.slots {
            let came = slot.came;
            let lost = || Err(Failed::Unknown("it was not answered".into()));
            answers[slot.job].push(came.unwrap_or_else(lost));
        }
        for (job, answer) in self.jobs.into_iter().zip(answers) {
            // A caller that has gone will ask again with the same ids.
            let _ = job.reply.send(Some(answer));
        }
    }
}

/// A1: how long a grant was held back before it was evaluated.
fn wait_counts(came: &mut Came, held: Duration) {
    if let Came::Outcome(Outcome::Lease(Answer::Granted(grant))) = came {
        grant.waited += held;
    }
}

/// Whether doing it twice is doing it once, and is answered as once: it carries an id that the rules know again (A3, A4),
/// or only raises. A release does not: its second answer would be that somebody else had ended the tenure.
fn repeats(act: &Act) -> bool {
    match act {
        Act::Op(Op::Lease { command, .. }) => {
            matches!(command, Command::Acquire(_) | Command::Renew(_))
        }
        Act::Op(Op::Raise { .. } | Op::Begin(_) | Op::Complete(_)) | Act::Collect => true,
        Act::Op(Op::Put { .. } | Op::Delete { .. } | Op::Abandon(_) | Op::Bump { .. }) => false,
    }
}

/// Whether an earlier try of the same, still on its way, can change nothing any more. No is no answer then: the try that
/// was lost may yet be granted, or was and is over.
fn settles(came: &Came) -> bool {
    match came {
        Came::Outcome(Outcome::Lease(answer)) => !matches!(
            answer,
            Answer::Held(_)
                | Answer::Delayed { .. }
                | Answer::Quarantined { .. }
                | Answer::AlreadyUsed
        ),
        Came::Outcome(Outcome::Ledger(verdict)) => matches!(
            verdict,
            Verdict::Begun
                | Verdict::Resumed
                | Verdict::TookOver { .. }
                | Verdict::Completed
                | Verdict::AlreadyDone(_)
        ),
        Came::Outcome(_) | Came::Collected(_) => true,
    }
}

/// How much time is left.
pub(crate) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests;
