//! The processes of the demo together: started together, introduced, ended together.

use anyhow::bail;

use super::{
    actor::{Actor, Role},
    wire::{Ask, Place, Reply},
};

/// Two nodes, and the demo's own store if the story needs one.
pub(crate) struct Cast {
    pub(crate) db: Option<Actor>,
    pub(crate) a: Actor,
    pub(crate) b: Actor,
}

impl Cast {
    /// With a store of its own; the nodes know where it is.
    pub(crate) async fn with_store() -> anyhow::Result<Self> {
        let mut db = Actor::start(Role::Db, "lease_db")?;
        let (a, b) = nodes()?;
        let port = match db.hear().await? {
            Reply::Listening { port } => port,
            other => bail!("lease_db was to tell its port, and told {other:?}"),
        };
        let mut cast = Self { db: Some(db), a, b };
        cast.use_store(&Place::Port(port)).await?;
        Ok(cast)
    }

    /// The nodes alone; they have yet to be told where their store is.
    pub(crate) fn without_store() -> anyhow::Result<Self> {
        let (a, b) = nodes()?;
        Ok(Self { db: None, a, b })
    }

    /// Both nodes shall use the store at this place.
    pub(crate) async fn use_store(&mut self, place: &Place) -> anyhow::Result<()> {
        for node in [&mut self.a, &mut self.b] {
            node.do_it(Ask::Use(place.clone())).await?;
        }
        Ok(())
    }

    /// Everybody, the store first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Actor> {
        self.db.iter().chain([&self.a, &self.b])
    }

    /// Ends all of them.
    pub(crate) async fn end(self) {
        let db = async {
            if let Some(db) = self.db {
                db.end().await;
            }
        };
        tokio::join!(self.a.end(), self.b.end(), db);
    }
}

fn nodes() -> anyhow::Result<(Actor, Actor)> {
    Ok((
        Actor::start(Role::Node, "lease_a")?,
        Actor::start(Role::Node, "lease_b")?,
    ))
}
