//! Opening the files of a store: made if they are new, refused if they are not ours.

use std::{fs::File, time::Duration};

use super::{
    commit::Open,
    place::Place,
    schema,
    side::{Side, SideFile},
    turn::Turn,
};
use crate::store::StoreError;

/// How long making a new store waits for another process that makes it too.
const PATIENCE: Duration = Duration::from_secs(5);

/// All that the writing thread has open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) open: Open,
    pub(super) turn: Turn,
}

/// Opens what `place` names, and makes the tables if there are none.
pub(super) fn open(place: &Place) -> Result<Opened, StoreError> {
    let (file, made) = place
        .open_neighbour(&place.side())
        .map_err(|error| place.refuse_io("its side file (.lock) cannot be used", error))?;
    let failed = |error| schema::unavailable(place, error);
    let side_file = SideFile::new(file).map_err(failed)?;
    if made {
        sync_folder(place).map_err(failed)?;
    }
    let mut turn = Turn::new(side_file.handle().map_err(failed)?);
    let db = schema::connect(place)?;
    if !schema::is_ready(&db, place)? {
        if !turn.take(PATIENCE).map_err(failed)? {
            let who = "a process that makes the same store and does not go on".into();
            return Err(StoreError::BlockedBy { who });
        }
        make(&db, place, &side_file)?;
        turn.give().map_err(failed)?;
    }
    schema::use_wal(&db, place)?;
    let identity = place.identity().map_err(failed)?;
    let identity = identity.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    Ok(Opened {
        open: Open {
            db,
            identity,
            side_file,
        },
        turn,
    })
}

/// Opens it again after it was given up. The file must be there: a store that lost it does not begin anew by itself.
pub(super) fn again(place: &Place) -> Result<Opened, StoreError> {
    if matches!(place.identity(), Ok(None)) {
        return Err(schema::unavailable(
            place,
            "it was deleted while in use; put it back, or restart to begin with a new one",
        ));
    }
    open(&Place::find(place.database(), false)?)
}

/// The caller has the turn, and another process may have made everything while it waited.
fn make(db: &rusqlite::Connection, place: &Place, side_file: &SideFile) -> Result<(), StoreError> {
    if schema::is_ready(db, place)? {
        return Ok(());
    }
    let failed = |error| schema::unavailable(place, error);
    schema::use_wal(db, place)?;
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| schema::unavailable(place, error))?;
    let id = u128::from_le_bytes(id) | 1;
    schema::create(db, place, id)?;
    if side_file.read().map_err(failed)?.is_none() {
        side_file
            .write(&Side {
                store: id,
                ..Side::default()
            })
            .map_err(failed)?;
        side_file.sync().map_err(failed)?;
    }
    sync_folder(place).map_err(failed)
}

/// Without it a power loss may forget a new file's name.
fn sync_folder(place: &Place) -> std::io::Result<()> {
    File::open(place.folder())?.sync_all()
}
