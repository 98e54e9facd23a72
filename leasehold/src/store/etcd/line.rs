//! Which cluster this is. After a restore its revisions go on where the copy ended, and would be issued again: so the
//! line of a restored cluster adds an offset, and nobody holds until every older promise is over (T6, ET10).

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use leasehold_core::{NotBumped, Outcome, Token, Ttl};

use super::{
    fault, keys,
    link::Link,
    note::{Line, Note},
};
use crate::{
    StoreError,
    clock::{BootClock, Clock},
};

/// The line as it is stored; `None`: this is the first program here.
async fn stored(link: &Link, prefix: &str) -> Result<(Option<Line>, u64, i64), StoreError> {
    let key = keys::line(prefix);
    let mut client = link.client();
    let got = link.read(client.get(key.clone(), None)).await?;
    let header = got
        .header()
        .ok_or_else(|| fault::unavailable("etcd answered without a header"))?;
    let line = match got.kvs().first() {
        Some(kv) => Some(Line::read(&key, kv.value(), kv.mod_revision())?),
        None => None,
    };
    Ok((line, header.cluster_id(), header.revision()))
}

/// Makes the line if there is none, and cuts it if it is another cluster's.
pub(super) async fn settle(link: &Link, prefix: &str) -> Result<(), StoreError> {
    let (line, cluster, revision) = stored(link, prefix).await?;
    let now = BootClock::new().wall().as_millis();
    match line {
        Some(line) if line.cluster == cluster => Ok(()),
        Some(old) => {
            tracing::warn!(
                old = old.cluster,
                new = cluster,
                "etcd was restored from a copy: every lease is in quarantine"
            );
            let above = now.max(old.offset.saturating_add(revision.unsigned_abs()));
            close(link, prefix).await?;
            write(link, prefix, Some(&old), &Line::cut(cluster, above))
                .await
                .map(drop)
        }
        None => write(link, prefix, None, &Line::first(cluster))
            .await
            .map(drop),
    }
}

/// Whether nobody was faster.
async fn write(
    link: &Link,
    prefix: &str,
    old: Option<&Line>,
    new: &Line,
) -> Result<bool, StoreError> {
    let key = keys::line(prefix);
    let same = Compare::mod_revision(
        key.clone(),
        CompareOp::Equal,
        old.map_or(0, |line| line.written),
    );
    let txn = Txn::new()
        .when([same])
        .and_then([TxnOp::put(key, new.text(), None)]);
    Ok(link.write(txn).await?.succeeded())
}

/// Keeps everybody out for as long as any promise of the lost past may last, as far as the copy tells; leases that it
/// does not know had the default ttl, as far as anybody can say.
async fn close(link: &Link, prefix: &str) -> Result<(), StoreError> {
    let mut client = link.client();
    let every = GetOptions::new().with_prefix();
    let got = link
        .read(client.get(keys::notes(prefix), Some(every)))
        .await?;
    let longest = got
        .kvs()
        .iter()
        .filter_map(|kv| Note::read("", kv.value(), kv.mod_revision()).ok())
        .map(|note| note.ttl_ms)
        .fold(u64::from(Ttl::DEFAULT.as_millis()), u64::max);
    let id = super::random_id()?;
    link.grant(id, longest.div_ceil(1000)).await?;
    let put = TxnOp::put(
        keys::quarantine(prefix),
        "restored",
        Some(PutOptions::new().with_lease(id)),
    );
    link.write(Txn::new().and_then([put])).await.map(drop)
}

/// T6, A10: every later token is above `above`; whoever holds now has lost, and its key keeps others out until its
/// promise is over.
pub(super) async fn bump(link: &Link, prefix: &str, above: Token) -> Result<Outcome, StoreError> {
    for _ in 0..super::TRIES {
        let (line, cluster, revision) = stored(link, prefix).await?;
        let offset = line.as_ref().map_or(0, |line| line.offset);
        let newest = newest(link, prefix, offset.saturating_add(revision.unsigned_abs())).await?;
        let most = BootClock::new()
            .wall()
            .as_millis()
            .saturating_add(NotBumped::AHEAD);
        if above.get() <= newest {
            let newest = Token::new(newest).unwrap_or(Token::MAX);
            return Ok(Outcome::NotBumped(NotBumped::TooSmall { above, newest }));
        }
        if above.get() > most {
            return Ok(Outcome::NotBumped(NotBumped::TooLarge { above, most }));
        }
        let new = Line::cut(cluster, above.get() - revision.unsigned_abs());
        if write(link, prefix, line.as_ref(), &new).await? {
            return Ok(Outcome::Done);
        }
    }
    Err(fault::unavailable(super::CROWDED))
}

/// The largest token that may have been issued; lifted leases that no unix time reaches are a mistake of their own.
async fn newest(link: &Link, prefix: &str, natural: u64) -> Result<u64, StoreError> {
    let mut client = link.client();
    let every = GetOptions::new().with_prefix();
    let got = link
        .read(client.get(keys::notes(prefix), Some(every)))
        .await?;
    let lifted = got
        .kvs()
        .iter()
        .filter_map(|kv| Note::read("", kv.value(), kv.mod_revision()).ok())
        .filter(|note| note.lift > 0)
        .filter_map(|note| note.token())
        .map(Token::get)
        .filter(|token| *token <= leasehold_core::Fence::MAX_JUMP);
    Ok(lifted.fold(natural, u64::max))
}
