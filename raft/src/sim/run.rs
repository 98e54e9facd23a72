//! One story: three members, a few who want leases, and what goes wrong meanwhile; then calm, in which all must agree.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::clock::Clock;
use leasehold_core::{
    Acquire, Answer, Command, Holder, LeaseName, LockDelay, Op, Outcome, Release, Renew, RenewId,
    RequestId, Session, State, Token, Ttl,
};
use leasehold_torture::history::{Call, History, Outcome as Came};
use tokio::time::{Instant, sleep, timeout};

use super::{
    runtime::{below, roll, simulate},
    world::{Alive, Drifting, World},
};
use crate::{
    types::{self, Act, Address},
    wire::{Failed, Question, Reading},
};

/// How long things go wrong.
const CHAOS: Duration = Duration::from_secs(40);
/// How long all may take to agree in the calm after it.
const CALM: Duration = Duration::from_secs(90);
const ASKERS: u64 = 4;
const LEASES: [&str; 2] = ["one", "two"];

/// What was recorded, and what went wrong.
pub(super) struct Story {
    pub(super) history: History,
    pub(super) faults: Faults,
}

/// How often each thing went wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    crashes: u64,
    parted: u64,
    one_way: u64,
    slow: u64,
    all_down: u64,
    handed_over: u64,
    snapshots: u64,
    leaders: u64,
}

impl Faults {
    pub(super) fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.parted += other.parted;
        self.one_way += other.one_way;
        self.slow += other.slow;
        self.all_down += other.all_down;
        self.handed_over += other.handed_over;
        self.snapshots += other.snapshots;
        self.leaders += other.leaders;
    }

    pub(super) fn all_happened(&self) -> bool {
        let Self {
            crashes,
            parted,
            one_way,
            slow,
            all_down,
            handed_over,
            snapshots,
            leaders,
        } = *self;
        [
            crashes,
            parted,
            one_way,
            slow,
            all_down,
            handed_over,
            snapshots,
        ]
        .iter()
        .all(|count| *count > 0)
            && leaders > 10
    }
}

/// Everybody who is in the story.
struct Stage {
    world: World,
    members: Mutex<BTreeMap<u64, Alive>>,
    clocks: BTreeMap<u64, Arc<dyn Clock>>,
    history: Mutex<History>,
    began: Instant,
    over: AtomicBool,
}

pub(super) fn play(seed: u64) -> Story {
    simulate(seed, story(seed)).unwrap()
}

async fn story(seed: u64) -> Story {
    let clocks: BTreeMap<u64, Arc<dyn Clock>> =
        (1..=3).map(|node| (node, Drifting::clock())).collect();
    let stage = Arc::new(Stage {
        world: World::new(),
        members: Mutex::default(),
        clocks,
        history: Mutex::new(History::new(format!("raft simulation, seed {seed}"))),
        began: Instant::now(),
        over: AtomicBool::new(false),
    });
    for node in 1..=3 {
        stage.start(node).await;
    }
    let all = (1..=3)
        .map(|node| (node, Address(node.to_string())))
        .collect::<BTreeMap<_, _>>();
    stage.member(1).node.engine.initialize(all).await.unwrap();
    let askers: Vec<_> = (0..ASKERS)
        .map(|who| tokio::spawn(stage.clone().ask(who)))
        .collect();
    let looker = tokio::spawn(stage.clone().look_on());
    let mut faults = stage.go_wrong().await;
    stage.over.store(true, Ordering::Relaxed);
    stage.calm(seed).await;
    for asker in askers.into_iter().chain([looker]) {
        asker.await.expect("whoever asks comes to an end");
    }
    faults.leaders =
        u64::from(stage.member(1).node.report().term > 1) * stage.member(1).node.report().term;
    for node in 1..=3 {
        let alive = stage.member(node);
        faults.snapshots += u64::from(alive.node.report().snapshot.is_some());
        stage.world.crash(&alive).await;
    }
    let history = std::mem::take(&mut *stage.history.lock().unwrap());
    Story { history, faults }
}

impl Stage {
    async fn start(&self, node: u64) {
        let alive = self.world.start(node, self.clocks[&node].clone()).await;
        self.members.lock().unwrap().insert(node, alive);
    }

    fn member(&self, node: u64) -> Alive {
        self.members.lock().unwrap()[&node].clone()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    /// One thing after another goes wrong, and is mended again.
    async fn go_wrong(&self) -> Faults {
        let mut faults = Faults::default();
        sleep(Duration::from_secs(2)).await;
        while self.began.elapsed() < CHAOS {
            let (one, other) = (1 + below(3), 1 + below(3));
            let lasts = Duration::from_millis(50 + below(4_000));
            match below(8) {
                0 | 1 => {
                    faults.crashes += 1;
                    self.world.crash(&self.member(one)).await;
                    sleep(lasts).await;
                    self.start(one).await;
                }
                2 => {
                    faults.all_down += 1;
                    for node in 1..=3 {
                        self.world.crash(&self.member(node)).await;
                    }
                    sleep(lasts).await;
                    for node in 1..=3 {
                        self.start(node).await;
                    }
                }
                3 | 4 => {
                    faults.parted += 1;
                    for node in 1..=3 {
                        self.world.cut(one, node);
                        self.world.cut(node, one);
                    }
                    sleep(lasts).await;
                }
                5 if one != other => {
                    faults.one_way += 1;
                    self.world.cut(one, other);
                    sleep(lasts).await;
                }
                6 => {
                    faults.slow += 1;
                    self.world.slow(one);
                    sleep(lasts).await;
                }
                _ => {
                    faults.handed_over += 1;
                    let _ = self
                        .member(one)
                        .node
                        .engine
                        .trigger()
                        .transfer_leader(other)
                        .await;
                }
            }
            self.world.heal();
            sleep(Duration::from_millis(below(3_000))).await;
        }
        faults
    }

    /// When nothing goes wrong any more, all come to one and the same state.
    async fn calm(&self, seed: u64) {
        self.world.calm();
        let agreed = async {
            loop {
                sleep(Duration::from_millis(200)).await;
                let members = self.members.lock().unwrap().clone();
                let states = members.values().map(|alive| {
                    let state = alive.node.machine.state();
                    (state.applied, state.table.snapshot(), state.events_ever)
                });
                let states: Vec<_> = states.collect();
                let ends = members.values().all(|alive| {
                    let report = alive.node.report();
                    report.applied == report.last
                        && report.failed.is_none()
                        && report.leads.is_some()
                });
                if ends && states.iter().all(|state| *state == states[0]) {
                    return;
                }
            }
        };
        if timeout(CALM, agreed).await.is_err() {
            let members = self.members.lock().unwrap().clone();
            let reports: Vec<_> = members.values().map(|alive| alive.node.report()).collect();
            panic!("seed {seed}: no agreement in the calm: {reports:#?}");
        }
    }

    /// Looks at the leases again and again, through every member: a member that reads what is old is soon seen to.
    async fn look_on(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            let lease = LEASES[below(LEASES.len() as u64) as usize];
            let asker = Asker {
                stage: &self,
                process: "looker",
                lease,
                session: Session::from_bits(bits()).unwrap(),
                ttl: Ttl::DEFAULT,
            };
            asker.look().await;
            sleep(Duration::from_millis(20 + below(100))).await;
        }
    }

    /// Wants a lease, keeps it a while, gives it back or forgets about it; again and again.
    async fn ask(self: Arc<Self>, who: u64) {
        let process = format!("asker-{who}");
        while !self.over.load(Ordering::Relaxed) {
            let lease = LEASES[below(LEASES.len() as u64) as usize];
            let asker = Asker {
                stage: &self,
                process: &process,
                lease,
                session: Session::from_bits(bits()).unwrap(),
                ttl: Ttl::from_millis(500 + below(2_500)).unwrap(),
            };
            match below(5) {
                0 => asker.look().await,
                _ => asker.hold().await,
            }
            sleep(Duration::from_millis(below(500))).await;
        }
    }
}

fn bits() -> u128 {
    u128::from(roll()) << 64 | u128::from(roll()) | 1
}

struct Asker<'a> {
    stage: &'a Stage,
    process: &'a str,
    lease: &'static str,
    session: Session,
    ttl: Ttl,
}

impl Asker<'_> {
    fn name(&self) -> LeaseName {
        self.lease.parse().unwrap()
    }

    /// Records the call, makes it through any member, and records the answer if the member lives to give it.
    async fn call(&self, call: Call, command: Command) -> Came {
        let stage = self.stage;
        let session = format!("{:08x}", self.session.fingerprint());
        let id = (stage.history.lock().unwrap()).invoke(
            stage.now(),
            self.process,
            self.lease,
            session,
            call,
        );
        let alive = stage.member(1 + below(3));
        let op = Op::Lease {
            name: self.name(),
            command,
        };
        let until = Instant::now() + Duration::from_millis(200 + below(4_000));
        let came = match alive.node.submit(vec![Act::Op(op)], until, false) {
            Ok(answer) => match answer.await {
                Ok(Some(mut came)) => translate(came.pop()),
                _ => Came::Unknown,
            },
            Err(_) => Came::Failed,
        };
        // The answer of a member that crashed meanwhile reaches nobody.
        let came = match alive.lives.load(Ordering::Relaxed) {
            true => came,
            false => Came::Unknown,
        };
        let mut history = stage.history.lock().unwrap();
        history.answer(stage.now(), self.process, id, came.clone());
        came
    }

    async fn hold(&self) {
        let request_id = RequestId::from_bits(bits()).unwrap();
        let ttl = self.ttl;
        let acquire = Acquire {
            session: self.session,
            request_id,
            holder: Holder::new(self.process).unwrap(),
            info: None,
            ttl,
            lock_delay: LockDelay::NONE,
        };
        let call = Call::Acquire {
            request: request_id.expose(),
            ttl: u64::from(ttl.as_millis()) * 1_000_000,
        };
        let mut token = None;
        for _ in 0..1 + below(8) {
            match self
                .call(call.clone(), Command::Acquire(acquire.clone()))
                .await
            {
                Came::Granted { token: granted, .. } => {
                    token = Some(granted);
                    break;
                }
                Came::AlreadyUsed => return,
                _ => sleep(Duration::from_millis(20 + below(600))).await,
            }
        }
        let Some(token) = token else {
            let release = Release::Request {
                session: self.session,
                request_id,
            };
            let request = Some(request_id.expose());
            let call = Call::Release {
                token: None,
                request,
            };
            self.call(call, Command::Release(release)).await;
            return;
        };
        self.keep(token).await;
    }

    async fn keep(&self, token: u64) {
        let tenure = Token::new(token).unwrap();
        for number in 1..=below(6) {
            sleep(Duration::from_millis(u64::from(self.ttl.as_millis()) / 3)).await;
            let renew_id = RenewId::from_bits(bits()).unwrap();
            let renew = Renew {
                token: tenure,
                session: self.session,
                ttl: self.ttl,
                number,
                renew_id,
            };
            let call = Call::Renew {
                token,
                ttl: u64::from(self.ttl.as_millis()) * 1_000_000,
            };
            let mut tries = 3;
            loop {
                match self.call(call.clone(), Command::Renew(renew.clone())).await {
                    Came::Renewed { .. } => break,
                    Came::Unknown | Came::Failed if tries > 0 => tries -= 1,
                    _ => return,
                }
            }
        }
        if below(3) > 0 {
            let release = Release::Tenure {
                token: tenure,
                session: self.session,
            };
            let call = Call::Release {
                token: Some(token),
                request: None,
            };
            self.call(call, Command::Release(release)).await;
        }
    }

    async fn look(&self) {
        let stage = self.stage;
        let session = format!("{:08x}", self.session.fingerprint());
        let id = (stage.history.lock().unwrap()).invoke(
            stage.now(),
            self.process,
            self.lease,
            session,
            Call::Read,
        );
        let alive = stage.member(1 + below(3));
        let until = Instant::now() + Duration::from_millis(500);
        let read = alive
            .node
            .read(Question::Status(self.name()), until, false)
            .await;
        let came = match read {
            Some(Ok(Reading::Status(status))) if alive.lives.load(Ordering::Relaxed) => {
                Came::Seen {
                    token: status
                        .as_ref()
                        .and_then(|status| status.token)
                        .map_or(0, Token::get),
                    held: status
                        .as_ref()
                        .is_some_and(|status| status.state == State::Held),
                    by: None,
                }
            }
            _ => Came::Unknown,
        };
        (stage.history.lock().unwrap()).answer(stage.now(), self.process, id, came);
    }
}

fn translate(came: Option<Result<types::Came, Failed>>) -> Came {
    let answer = match came {
        Some(Ok(types::Came::Outcome(Outcome::Lease(answer)))) => answer,
        Some(Err(Failed::Unavailable(_) | Failed::Invalid(_))) => return Came::Failed,
        _ => return Came::Unknown,
    };
    match answer {
        Answer::Granted(grant) => Came::Granted {
            token: grant.token.get(),
            ttl: u64::from(grant.ttl.as_millis()) * 1_000_000,
        },
        Answer::Held(held) => Came::Held {
            token: held.token.get(),
            by: None,
        },
        Answer::Renewed { ttl } => Came::Renewed {
            ttl: u64::from(ttl.as_millis()) * 1_000_000,
        },
        Answer::AlreadyUsed => Came::AlreadyUsed,
        Answer::Lost(_) => Came::Lost,
        Answer::Released => Came::Released,
        Answer::AlreadyOver => Came::AlreadyOver,
        other => Came::Refused {
            why: format!("{other:?}"),
        },
    }
}
