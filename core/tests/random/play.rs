//! Plays a history on a table, before somebody who watches.

use leasehold_core::{Entry, Event, Outcome, Stamp, StoreTime, Table, WallTime};
use proptest::test_runner::TestCaseError;

use super::{Ask, Clients, START, Step, op, said};

/// One request and what came of it.
pub(crate) struct Moment<'a> {
    pub(crate) ask: &'a Ask,
    pub(crate) outcome: &'a Outcome,
    /// Milliseconds by the store's clock; the wall clock is [`START`] ahead.
    pub(crate) now: u64,
    pub(crate) before: &'a Table,
    pub(crate) after: &'a Table,
}

pub(crate) trait Watch {
    fn asked(&mut self, moment: &Moment<'_>) -> Result<(), TestCaseError>;
    /// The store forgot what it may, at this time.
    fn collected(&mut self, _now: u64) {}
}

/// The table and the events at the end. A restart must not change the table (FB-53).
pub(crate) fn play(
    steps: Vec<Step>,
    watch: &mut impl Watch,
) -> Result<(Table, Vec<Event>), TestCaseError> {
    let mut table = Table::new();
    let (mut clients, mut events) = (Clients::new(), Vec::new());
    let (mut kept, mut sent) = (Vec::new(), Vec::<Ask>::new());
    let mut now = 0;
    for step in steps {
        let ask = match step {
            Step::Now(wish) => Some(clients.ask(wish, START + now)),
            Step::Later(wish) => {
                kept.push(clients.ask(wish, START + now));
                None
            }
            Step::Arrive(any) if !kept.is_empty() => Some(kept.remove(any % kept.len())),
            Step::Again(any) if !sent.is_empty() => Some(sent[any % sent.len()].clone()),
            Step::Arrive(_) | Step::Again(_) => None,
            Step::Pass(span) => {
                now += span;
                None
            }
            Step::Collect => {
                table.collect(stamp(now), Entry::KEPT);
                watch.collected(now);
                None
            }
            Step::Restart => {
                let restored = Table::restore(&table.snapshot());
                if restored.as_ref() != Ok(&table) {
                    return Err(TestCaseError::fail("the restored table is another one"));
                }
                table = restored.unwrap_or_default();
                None
            }
        };
        if let Some(ask) = ask {
            let before = table.clone();
            let outcome = table.apply(op(&ask), stamp(now), &mut events);
            watch.asked(&Moment {
                ask: &ask,
                outcome: &outcome,
                now,
                before: &before,
                after: &table,
            })?;
            clients.hear(&ask, &said(&outcome));
            sent.push(ask);
        }
    }
    Ok((table, events))
}

/// This many milliseconds after the start.
pub(crate) fn stamp(now: u64) -> Stamp {
    Stamp {
        now: StoreTime::from_nanos(now * 1_000_000),
        wall: WallTime::from_nanos((START + now) * 1_000_000),
    }
}
