//! From the words of the core to statements, each with its values and their types, so that nothing is prepared.

use leasehold_core::{Acquire, Command, LeaseName, Op, Release, Renew, Session, Token};
use tokio_postgres::types::{ToSql, Type};

use super::{link::Param, sighting::Seen};

/// A value with its type, owned.
pub(super) type Boxed = (Box<dyn ToSql + Send + Sync>, Type);

pub(super) fn boxed(value: impl ToSql + Send + Sync + 'static, r#type: Type) -> Boxed {
    (Box::new(value), r#type)
}

pub(super) fn params(values: &[Boxed]) -> Vec<Param<'_>> {
    values
        .iter()
        .map(|(value, r#type)| (&**value as &(dyn ToSql + Sync), r#type.clone()))
        .collect()
}

pub(super) fn id(bits: u128) -> Boxed {
    boxed(format!("{bits:032x}"), Type::TEXT)
}

pub(super) fn int(number: u64) -> Boxed {
    boxed(i64::try_from(number).unwrap_or(i64::MAX), Type::INT8)
}

pub(super) fn string(text: &str) -> Boxed {
    boxed(text.to_owned(), Type::TEXT)
}

/// One statement of the lease protocol.
pub(super) struct Query {
    pub(super) sql: &'static str,
    values: Vec<Boxed>,
}

impl Query {
    pub(super) fn of(
        name: &LeaseName,
        command: &Command,
        seen: Option<Seen>,
        strict: bool,
        notify: bool,
    ) -> Self {
        let name = string(name.as_str());
        match command {
            Command::Acquire(Acquire {
                session,
                request_id,
                holder,
                info,
                ttl,
                lock_delay,
            }) => Self {
                sql: "SELECT * FROM leasehold.acquire($1, $2::uuid, $3::uuid, $4, $5, $6, $7, true, $8, $9, $10)",
                values: vec![
                    name,
                    id(session.bits()),
                    id(request_id.bits()),
                    string(holder.as_str()),
                    boxed(
                        info.as_ref().map(|info| info.as_str().to_owned()),
                        Type::TEXT,
                    ),
                    int(ttl.as_millis().into()),
                    int(lock_delay.as_millis().into()),
                    boxed(seen.map(|seen| seen.token), Type::INT8),
                    boxed(seen.map(|seen| seen.touches), Type::INT8),
                    boxed(strict, Type::BOOL),
                ],
            },
            Command::Renew(Renew {
                token,
                session,
                ttl,
                number,
                renew_id,
            }) => Self {
                sql: "SELECT * FROM leasehold.renew($1, $2, $3::uuid, $4, $5, $6::uuid)",
                values: vec![
                    name,
                    int(token.get()),
                    id(session.bits()),
                    int(ttl.as_millis().into()),
                    int(*number),
                    id(renew_id.bits()),
                ],
            },
            Command::Release(asked) => {
                let (token, session, request): (Option<Token>, Session, _) = match *asked {
                    Release::Tenure { token, session } => (Some(token), session, None),
                    Release::Request {
                        session,
                        request_id,
                    } => (None, session, Some(request_id)),
                };
                Self {
                    sql: "SELECT * FROM leasehold.release($1, $2, $3::uuid, $4::uuid, $5)",
                    values: vec![
                        name,
                        boxed(token.map(|token| token.get() as i64), Type::INT8),
                        id(session.bits()),
                        boxed(request.map(|id| format!("{:032x}", id.bits())), Type::TEXT),
                        boxed(notify, Type::BOOL),
                    ],
                }
            }
            Command::ForceRelease { now } => Self {
                sql: "SELECT * FROM leasehold.force_release($1, $2)",
                values: vec![name, boxed(*now, Type::BOOL)],
            },
            Command::Quarantine { above } => Self {
                sql: "SELECT * FROM leasehold.quarantine($1, $2)",
                values: vec![name, int(above.get())],
            },
        }
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        params(&self.values)
    }
}

/// All of these renewals as one statement (W8).
pub(super) fn renewals(ops: &[Op]) -> (&'static str, [Boxed; 6]) {
    let mut names = Vec::new();
    let (mut tokens, mut sessions, mut ttls, mut numbers, mut ids) =
        (vec![], vec![], vec![], vec![], vec![]);
    for op in ops {
        if let Op::Lease {
            name,
            command: Command::Renew(asked),
        } = op
        {
            names.push(name.as_str().to_owned());
            tokens.push(asked.token.get() as i64);
            sessions.push(format!("{:032x}", asked.session.bits()));
            ttls.push(i64::from(asked.ttl.as_millis()));
            numbers.push(i64::try_from(asked.number).unwrap_or(i64::MAX));
            ids.push(format!("{:032x}", asked.renew_id.bits()));
        }
    }
    let values = [
        boxed(names, Type::TEXT_ARRAY),
        boxed(tokens, Type::INT8_ARRAY),
        boxed(sessions, Type::TEXT_ARRAY),
        boxed(ttls, Type::INT8_ARRAY),
        boxed(numbers, Type::INT8_ARRAY),
        boxed(ids, Type::TEXT_ARRAY),
    ];
    (
        "SELECT nr, (answer).* FROM leasehold.renew_all($1, $2, $3::uuid[], $4, $5, $6::uuid[]) ORDER BY nr",
        values,
    )
}
