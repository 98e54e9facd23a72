//! Forgetting, a part at a time, so that renewals go on between the parts. What is forgotten leaves its token in the
//! floor (T5), and its age in `kept_from` (I9).

use leasehold_core::{Rows, Stamp};

use super::{columns::RowError, commit::Ack, rows::Tables};
use crate::store::LEDGER_KEPT;

/// How many leases and lines of the ledger are looked at in one transaction of a collection.
const COLLECTED_AT_ONCE: usize = 1_000;

/// Forgets what may be forgotten of the leases from the name `from` on, and of the ledger.
pub(super) fn collect(tables: &mut Tables<'_>, from: &str, stamp: Stamp) -> Result<Ack, RowError> {
    let mut rows = 0;
    if from.is_empty() {
        tables.forget_sightings()?;
    }
    rows += tables.forget_work(stamp.wall.minus(LEDGER_KEPT), COLLECTED_AT_ONCE)?;
    let more_work = rows as usize == COLLECTED_AT_ONCE;
    let leases = tables.leases_from(from, COLLECTED_AT_ONCE)?;
    let next = match leases.last() {
        // The smallest name after the last one.
        Some((last, _)) if leases.len() == COLLECTED_AT_ONCE => Some(format!("{last}\0")),
        _ => more_work.then(|| "\u{10ffff}".to_owned()),
    };
    let mut floor = tables.floor()?;
    for (name, record) in leases {
        if record.collectable(stamp.now) {
            floor = floor.max(record.token);
            tables.forget_lease(&name)?;
            rows += 1;
        }
    }
    if let Some(floor) = floor {
        tables.set_floor(floor)?;
    }
    Ok(Ack::Collected { rows, next })
}
