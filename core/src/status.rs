//! A lease as others see it: for lists, status and dashboards. It has no session: that is the holder's key (A21).

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Holder, Info, LeaseName, Record, State, StoreTime, Token, Ttl};

/// What a reader learns of a lease. True when the store evaluated it; only durations travel (C2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: LeaseName,
    /// What it was.
    pub state: State,
    /// The largest token it ever had.
    pub token: Option<Token>,
    /// Who holds, or who did last.
    pub holder: Option<Holder>,
    /// Tells two holders of one name apart: a hash of the session, shown as eight hex digits.
    pub session_hash: Option<u32>,
    /// Whether the last holder gave it back. Free and not given back: it ran out.
    pub released: bool,
    /// What the holder lets others know.
    pub info: Option<Info>,
    /// The ttl of the last grant or renewal.
    pub ttl: Ttl,
    /// How long ago the token was granted.
    pub since: Option<Duration>,
    /// How long that state lasts if nobody does anything; zero when free.
    pub remaining: Duration,
    /// How many renewals the tenure had.
    pub renewals: u64,
}

impl Status {
    /// What a reader learns of `record` at `now`.
    pub fn of(name: LeaseName, record: &Record, now: StoreTime) -> Self {
        let tenure = record.tenure.as_ref();
        let state = record.at(now);
        Self {
            name,
            state,
            token: record.token,
            holder: tenure.map(|tenure| tenure.holder.clone()),
            session_hash: tenure.map(|tenure| tenure.session.fingerprint()),
            released: tenure.is_some_and(|tenure| tenure.released),
            info: tenure.and_then(|tenure| tenure.info.clone()),
            ttl: record.ttl,
            since: tenure.map(|tenure| now.since(tenure.granted)),
            remaining: match state {
                State::Free => Duration::ZERO,
                State::Held => record.expires.since(now),
                State::Delayed | State::Quarantined => record.free_from().since(now),
            },
            renewals: tenure.map_or(0, |tenure| tenure.renewals),
        }
    }
}
