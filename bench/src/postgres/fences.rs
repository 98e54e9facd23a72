//! What a fence costs: the same write, alone, behind the advisory lock (F14c) and behind a row lock (F14).

use std::sync::Arc;

use leasehold::{BootTime, Ttl, clock::BootClock};
use tokio::sync::Mutex;
use tokio_postgres::{Client, types::Type};

use super::{connect, is_over, leases, server::Server, together};

/// What comes before the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unfenced,
    Fence,
    AdvisoryLock,
    RowLock,
}

pub(super) const KINDS: [Kind; 4] = [
    Kind::Unfenced,
    Kind::Fence,
    Kind::AdvisoryLock,
    Kind::RowLock,
];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Unfenced => "writes without a fence, 16 clients, a row each",
            Kind::Fence => "writes behind leasehold.fence()",
            Kind::AdvisoryLock => {
                "writes behind a shared advisory lock and a look (F14c), as plain SQL"
            }
            Kind::RowLock => "writes behind a row lock FOR KEY SHARE (F14), as plain SQL",
        }
    }

    fn before(self) -> &'static [&'static str] {
        match self {
            Kind::Unfenced => &[],
            Kind::Fence => &["SELECT leasehold.fence('fenced 0', $1)"],
            Kind::AdvisoryLock => &[
                "SELECT pg_advisory_xact_lock_shared(leasehold.barrier_key('fenced 0')) WHERE $1 > 0",
                "SELECT 1 FROM leasehold.lease WHERE name = 'fenced 0' AND token = $1 AND NOT released \
                 AND expires_at > clock_timestamp() AND line = leasehold.line()",
            ],
            Kind::RowLock => &[
                "SELECT 1 FROM leasehold.lease WHERE name = 'fenced 0' AND token = $1 AND NOT released \
                 AND expires_at > clock_timestamp() AND line = leasehold.line() FOR KEY SHARE",
            ],
        }
    }
}

pub(super) struct Fences {
    clients: Vec<Arc<Mutex<Client>>>,
    token: i64,
}

impl Fences {
    pub(super) async fn new(server: &Server, clients: u64) -> anyhow::Result<Self> {
        let store = leasehold::connect(&server.url()).await?;
        let tokens = leases::acquire_all(&store, "fenced", 1, Ttl::MAX).await?;
        let mut all = Vec::new();
        for _ in 0..clients {
            all.push(Arc::new(Mutex::new(connect(server).await?)));
        }
        let token = tokens.first().map_or(0, |token| token.get().cast_signed());
        Ok(Self {
            clients: all,
            token,
        })
    }

    pub(super) async fn run(
        &self,
        kind: Kind,
        clock: &Arc<BootClock>,
        until: BootTime,
    ) -> anyhow::Result<u64> {
        let loops = self.clients.iter().enumerate().map(|(number, client)| {
            let (client, clock, token) = (client.clone(), clock.clone(), self.token);
            async move {
                let client = client.lock().await;
                let mut done = 0;
                while !is_over(&clock, until) {
                    write(&client, kind, number as i64 + 32, token).await?;
                    done += 1;
                }
                Ok(done)
            }
        });
        together(loops).await
    }
}

/// BEGIN, the fence, the write and COMMIT in one round trip (F17).
async fn write(client: &Client, kind: Kind, row: i64, token: i64) -> anyhow::Result<()> {
    let update = "UPDATE bare SET n = n + 1 WHERE id = $1";
    let value = [(
        &token as &(dyn tokio_postgres::types::ToSql + Sync),
        Type::INT8,
    )];
    let row = [(
        &row as &(dyn tokio_postgres::types::ToSql + Sync),
        Type::INT8,
    )];
    let before = kind.before();
    let fence = async {
        let mut passed = true;
        let all = match before {
            [] => return Ok(true),
            [one] => vec![client.query_typed(one, &value).await?],
            [one, two, ..] => {
                let (one, two) = tokio::join!(biased; client.query_typed(one, &value), client.query_typed(two, &value));
                vec![one?, two?]
            }
        };
        for rows in all {
            passed &= !rows.is_empty();
        }
        Ok::<bool, tokio_postgres::Error>(passed)
    };
    let (began, passed, wrote, ended) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        fence,
        client.execute_typed(update, &row),
        client.batch_execute("COMMIT"),
    );
    began?;
    anyhow::ensure!(passed?, "the fence let nothing through");
    wrote?;
    Ok(ended?)
}
