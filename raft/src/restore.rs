//! A new cluster from a snapshot of an old one (R9, A21): another cluster id, one new member, and no promise of the past
//! kept for less than it was given, since whatever was granted after the snapshot is forgotten.

use std::{collections::BTreeMap, fs, path::Path};

use leasehold::StoreError;
use leasehold_core::{NotBumped, Op, Outcome, Stamp, Token};

use crate::{
    codec::Id,
    config::Config,
    disk::{Change, Disk, Identity, unusable},
    machine::State,
    snapshot::{self, Image, Shelf},
    types::{Address, Membership, StoredMembership},
};

/// Makes the folder of `config` the first member of a new cluster, with what is in the snapshot `file`; others find it
/// at `address`. Every lease goes into quarantine and every later token is larger than the unix time in milliseconds.
/// The members of the old cluster must not be started again: their tokens would go on where they were.
///
/// `Invalid`: nothing was made; the error says why.
pub fn restore(
    file: impl AsRef<Path>,
    config: &Config,
    address: impl Into<String>,
) -> Result<(), StoreError> {
    let file = file.as_ref();
    config.check()?;
    if config.folder.join("log.db").exists() || snapshot::path(&config.folder).exists() {
        let what = "there is a member in it already: a restore needs a new folder";
        return Err(unusable(&config.folder, &what));
    }
    let bytes = fs::read(file).map_err(|error| unusable(file, &error))?;
    let state = State::from_image(&Image::from_bytes(bytes));
    let mut state = state.map_err(|error| unusable(file, &error))?;
    bump(&mut state, config)?;
    let identity = Identity {
        node: fresh_id(&state, config)?,
        cluster: Some(crate::member::random_bits()?),
    };
    let last = state.begin_anew(identity.node, Address(address.into()));
    let (mut disk, _) = Disk::open(&config.folder, identity)?;
    let image = state.to_image();
    let shelf = Shelf::Folder(config.folder.clone());
    shelf
        .store(&image)
        .map_err(|error| unusable(&config.folder, &error))?;
    let vote = crate::codec::Ballot {
        term: last.term,
        node: identity.node,
        committed: false,
    };
    disk.write(&[Change::Vote(vote), Change::Purge(last)])
        .map_err(|error| unusable(&config.folder, &error))
}

/// T6, A10: above whatever may have been issued since the snapshot.
fn bump(state: &mut State, config: &Config) -> Result<(), StoreError> {
    let wall = config.clock.wall();
    let above = Token::new(wall.as_millis()).map_err(StoreError::from)?;
    let now = state.table.now();
    let mut events = Vec::new();
    let stamp = Stamp { now, wall };
    match state.table.apply(Op::Bump { above }, stamp, &mut events) {
        Outcome::NotBumped(why @ NotBumped::TooSmall { .. }) => Err(StoreError::Invalid {
            what: format!("the wall clock of this machine will not do: {why}"),
        }),
        Outcome::NotBumped(why) => Err(StoreError::Invalid {
            what: why.to_string(),
        }),
        _ => {
            events.into_iter().for_each(|event| state.record(event));
            Ok(())
        }
    }
}

/// An id that no member of the old cluster had.
fn fresh_id(state: &State, config: &Config) -> Result<u64, StoreError> {
    match config.node {
        Some(node) if state.ever.contains(&node) => Err(StoreError::Invalid {
            what: format!("member id {node} is not allowed: a member of the old cluster had it"),
        }),
        Some(node) => Ok(node),
        None => loop {
            let node = crate::member::random_id()?;
            if !state.ever.contains(&node) {
                return Ok(node);
            }
        },
    }
}

impl State {
    /// One member, as of the last entry that is in here; answers which that is.
    fn begin_anew(&mut self, node: u64, address: Address) -> Id {
        let last = self
            .applied
            .as_ref()
            .map_or(Id { term: 1, index: 0 }, Id::from);
        let membership = Membership::from(BTreeMap::from([(node, address)]));
        self.ever.insert(node);
        self.applied = Some(last.into());
        self.membership = StoredMembership::new(Some(last.into()), membership);
        last
    }
}
