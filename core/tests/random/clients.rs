//! Clients that remember what they were told, and turn wishes into requests.

use super::{Ask, CLIENTS, LEASES, Said, Wish};

/// What one client knows of one lease.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    request: u64,
    token: u64,
    number: u64,
    id: u64,
}

#[derive(Debug)]
pub(crate) struct Clients {
    known: Vec<Known>,
    fresh: u64,
}

impl Clients {
    pub(crate) fn new() -> Self {
        Self {
            known: vec![Known::default(); CLIENTS as usize * LEASES as usize],
            fresh: 0,
        }
    }

    /// The request that a client makes of its wish, at `now` by the wall clock.
    pub(crate) fn ask(&mut self, wish: Wish, now: u64) -> Ask {
        let Wish {
            lease,
            object,
            luck,
            ttl,
            ..
        } = wish;
        let session = u64::from(wish.client) + 1;
        let fresh = self.fresh();
        let known = self.of(wish.client, lease);
        let token = guess(known.token, luck);
        let work = (lease, object);
        let helpless = known.token == 0 && luck < 224;
        match wish.kind % 36 {
            kind if kind < 8 || helpless => {
                if known.request == 0 || luck.is_multiple_of(2) {
                    known.request = fresh;
                }
                let delay = if luck.is_multiple_of(3) { 3_000 } else { 0 };
                Ask::Acquire {
                    lease,
                    session,
                    request: known.request,
                    ttl,
                    delay,
                }
            }
            8..13 => {
                match luck % 8 {
                    // A retry has the same number and id.
                    0 | 1 => {}
                    // A clone has the same number and another id.
                    2 => known.id = fresh,
                    3 => known.number += 2,
                    _ => (known.number, known.id) = (known.number + 1, fresh),
                }
                Ask::Renew {
                    lease,
                    token,
                    session,
                    number: known.number,
                    id: known.id.max(1),
                    ttl,
                }
            }
            13..16 => Ask::Release {
                lease,
                token,
                session,
            },
            16 => Ask::Cancel {
                lease,
                session,
                request: known.request.max(1),
            },
            17 => Ask::Force {
                lease,
                now: luck.is_multiple_of(4),
            },
            18 if luck < 40 => Ask::Quarantine {
                lease,
                above: u64::from(luck) + 1,
            },
            18 if luck < 64 => Ask::Quarantine {
                lease,
                above: i64::MAX as u64 - u64::from(luck % 4),
            },
            18 => Ask::Raise {
                place: object,
                lease,
                token,
            },
            19..22 => {
                let proof = (!luck.is_multiple_of(5)).then_some((lease, token));
                Ask::Put {
                    key: object,
                    value: luck,
                    proof,
                }
            }
            22 => {
                let proof = (!luck.is_multiple_of(5)).then_some((lease, token));
                Ask::Delete { key: object, proof }
            }
            23 | 24 => Ask::Raise {
                place: object,
                lease,
                token,
            },
            25..31 => Ask::Begin {
                work,
                token,
                attempt: u64::from(luck % 2) + 1,
                session,
                what: u8::from(luck > 240),
                leave: (luck / 2).is_multiple_of(2),
                born: (luck.is_multiple_of(4))
                    .then_some(now.saturating_sub(u64::from(luck) * 200_000_000)),
            },
            31..34 => Ask::Complete {
                work,
                token,
                attempt: u64::from(luck % 2) + 1,
                value: luck,
            },
            34 => Ask::Abandon {
                work,
                token,
                attempt: u64::from(luck % 2) + 1,
            },
            _ if luck < 64 => Ask::Bump {
                above: now + u64::from(luck),
            },
            _ if luck < 96 => Ask::Bump {
                above: now + 86_400_000 - 4 + u64::from(luck % 8),
            },
            _ => Ask::Acquire {
                lease,
                session,
                request: fresh,
                ttl,
                delay: 0,
            },
        }
    }

    /// What the client learns from the answer.
    pub(crate) fn hear(&mut self, ask: &Ask, said: &Said) {
        if let (Ask::Acquire { lease, session, .. }, Said::Granted(token)) = (ask, said) {
            let known = self.of(*session as u8 - 1, *lease);
            if known.token != *token {
                (known.token, known.number, known.id) = (*token, 0, 0);
            }
        }
    }

    fn of(&mut self, client: u8, lease: u8) -> &mut Known {
        &mut self.known[client as usize * LEASES as usize + lease as usize]
    }

    fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        self.fresh
    }
}

/// Mostly the token it has; sometimes one off, or the last one of all.
fn guess(token: u64, luck: u8) -> u64 {
    match luck % 16 {
        13 => token + 1,
        14 => token.saturating_sub(1).max(1),
        15 if luck > 250 => i64::MAX as u64,
        _ => token.max(1),
    }
    .min(i64::MAX as u64)
}
