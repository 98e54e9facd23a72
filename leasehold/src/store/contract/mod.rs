//! The contract of every store as tests: plain functions that ask a store and panic at the first answer that is wrong.
//!
//! ```no_run
//! # async fn test() -> Result<(), leasehold::StoreError> {
//! use leasehold::store::contract::{self, Time};
//! let store = leasehold::connect("sqlite:leases.db").await?;
//! let report = contract::all(&*store, Time::Real).await;
//! println!("{} passed, skipped: {:?}", report.passed.len(), report.skipped);
//! # Ok(()) }
//! ```
//!
//! The suite uses names of its own, but its bump quarantines every lease of the store: give it a store for tests.

mod answers;
mod ask;
mod leases;
mod ledger;
mod race;
mod reads;
mod rows;
mod takeovers;

use std::{cell::RefCell, collections::BTreeSet, fmt, time::Duration};

use leasehold_core::{LeaseName, Op, Outcome, Ttl};

use super::{Profile, Store};

/// How the suite lets the store's time pass.
#[derive(Clone, Copy)]
pub enum Time<'a> {
    /// By waiting, with the shortest ttl that the store grants.
    Real,
    /// By a hook that moves the store's clock, and its wall clock with it.
    Virtual(&'a (dyn Fn(Duration) + Sync)),
}

impl fmt::Debug for Time<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Time::Real => "Real",
            Time::Virtual(_) => "Virtual",
        })
    }
}

/// What the suite did. A test that a store cannot pass by its own profile is skipped, and counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The tests that passed.
    pub passed: Vec<&'static str>,
    /// The tests that were skipped, each with what the store lacks.
    pub skipped: Vec<(&'static str, &'static str)>,
}

/// Runs the whole suite, the race last.
///
/// # Panics
/// At the first thing that breaks the contract; the message says which test and what came instead.
pub async fn all(store: &dyn Store, time: Time<'_>) -> Report {
    let suite = Suite::new(store, time);
    let mut report = Report::default();
    macro_rules! run {
        ($($module:ident :: $test:ident $(if $flag:ident)?),+ $(,)?) => {$(
            let missing: Option<&'static str> = None$(.or(suite.lacks(stringify!($flag))))?;
            match missing {
                Some(missing) => report.skipped.push((stringify!($test), missing)),
                None => {
                    tracing::debug!(test = stringify!($test), "contract");
                    $module::$test(&suite).await;
                    report.passed.push(stringify!($test));
                }
            }
        )+};
    }
    run! {
        leases::a_free_lease_is_granted_for_the_ttl_asked,
        leases::whoever_comes_second_learns_who_holds,
        leases::the_same_request_gets_the_same_token,
        leases::a_duplicate_never_shortens_a_promise,
        leases::a_renewal_extends_and_its_retry_is_harmless,
        leases::a_clone_of_the_holder_is_found_out if counts_renewals,
        leases::only_the_holder_releases,
        leases::a_lost_acquire_is_released_by_its_request,
        leases::many_ops_get_an_answer_each,
        leases::of_many_at_once_one_wins,
        takeovers::a_late_renewal_is_refused,
        takeovers::an_expired_holder_touches_nothing_of_its_successor,
        takeovers::the_lock_delay_follows_an_unclean_end if lock_delay,
        takeovers::force_release_burns_a_token_and_keeps_the_promise,
        takeovers::quarantine_lets_nobody_in_for_one_ttl,
        takeovers::the_last_token_is_the_last,
        takeovers::a_forgotten_name_never_repeats_a_token if virtual_time,
        rows::plain_pairs_are_read_back if pairs,
        rows::the_first_fenced_write_binds_the_key if pairs,
        rows::each_kind_of_stale_write_is_refused_and_leaves_no_trace if pairs,
        rows::a_raised_fence_never_falls if fences,
        ledger::work_is_begun_once_and_done_once if ledger,
        ledger::unfinished_work_goes_to_the_larger_token if ledger,
        ledger::what_the_ledger_forgot_is_refused_by_age if ledger,
        reads::status_and_list_tell_what_is,
        reads::waiters_hear_of_a_release,
        reads::history_tells_what_happened_in_order if history,
        takeovers::a_bump_puts_every_lease_in_quarantine if bumps,
        race::ten_holders_fight_for_one_lease,
    }
    answers::all_were_seen(&suite);
    report
}

/// One run of the suite on one store.
struct Suite<'a> {
    store: &'a dyn Store,
    time: Time<'a>,
    /// Makes the names of this run differ from those of every other.
    run: u32,
    seen: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Suite<'a> {
    fn new(store: &'a dyn Store, time: Time<'a>) -> Self {
        Self {
            store,
            time,
            run: ask::random() as u32,
            seen: RefCell::default(),
        }
    }

    fn profile(&self) -> &Profile {
        self.store.profile()
    }

    /// What keeps the store from a test that needs `flag`.
    fn lacks(&self, flag: &str) -> Option<&'static str> {
        let profile = self.profile();
        let (has, missing) = match flag {
            "lock_delay" => (profile.lock_delay, "no lock delay"),
            "pairs" => (profile.pairs, "no pairs"),
            "fences" => (profile.fences, "no fences"),
            "ledger" => (profile.ledger, "no ledger"),
            "bumps" => (
                self.store.bumps(),
                "no bump: its tokens are numbers of somebody else",
            ),
            "history" => (profile.history, "no history"),
            "counts_renewals" => (self.store.counts_renewals(), "it does not count renewals"),
            _ => (
                matches!(self.time, Time::Virtual(_)),
                "its time cannot be moved by a day",
            ),
        };
        (!has).then_some(missing)
    }

    /// A name that no other run and no other test uses.
    fn lease(&self, name: &str) -> LeaseName {
        let name = format!("contract-{:08x}-{name}", self.run);
        LeaseName::new(&name).expect("a test's name is short and plain")
    }

    /// The shortest ttl of the store: what a test waits for.
    fn short(&self) -> Ttl {
        self.profile().min_ttl
    }

    /// Longer than any test lasts.
    fn long(&self) -> Ttl {
        Ttl::from_millis(3_600_000).expect("an hour is a ttl")
    }

    /// Does it and remembers the kind of answer.
    async fn apply(&self, op: Op) -> Outcome {
        let asked = format!("{op:?}");
        let outcome = match self.store.apply(op).await {
            Ok(outcome) => outcome,
            Err(error) => panic!("{asked}: {error}"),
        };
        self.see(&outcome);
        outcome
    }

    fn see(&self, outcome: &Outcome) {
        self.seen.borrow_mut().insert(answers::kind(outcome));
    }

    /// Lets this much of the store's time pass.
    async fn pass(&self, duration: Duration) {
        match self.time {
            Time::Real => tokio::time::sleep(duration).await,
            Time::Virtual(advance) => advance(duration),
        }
    }

    /// Lets a promise of `ttl` run out for certain.
    async fn outlast(&self, ttl: Ttl) {
        let slack = Duration::from_millis(20);
        self.pass(ttl.get() + self.profile().extension + slack)
            .await;
    }
}
