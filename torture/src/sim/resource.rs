//! What leases protect, outside the store: a fenced list, and an unfenced one, which is the failing control (10.3).
//!
//! The one rule: check and effect are one step (F2); the order in which steps happen here is the order that is judged.

use leasehold_core::{Fence, Token};

use super::world::{Ask, Request, Said, World};
use super::{effects::shown, network};
use crate::history::{Look, What};

#[derive(Default)]
pub(super) struct Resource {
    fence: Option<Fence>,
    fenced: List,
    plain: List,
}

#[derive(Default)]
struct List {
    values: Vec<u32>,
    position: u64,
}

impl List {
    fn write(&mut self, value: u32, list: Option<Vec<u32>>) -> u64 {
        if let Some(list) = list {
            self.values = list;
        }
        self.values.push(value);
        self.position += 1;
        self.position
    }
}

/// The names in the history.
pub(super) fn list_name(lease: &str, fenced: bool) -> String {
    format!("{} of {lease}", if fenced { "list" } else { "plain" })
}

/// A restored store has other pairs: what it forgot it did not promise to keep.
pub(super) fn pair_name(lease: &str, line: u32) -> String {
    format!("pair {line} of {lease}")
}

impl World {
    pub(super) fn at_resource(&mut self, request: Request) {
        let said = match request.ask.clone() {
            Ask::Raise(lease, token) => self.raise(lease, token),
            Ask::Look(lease, fenced) => {
                let resource = &self.resources[lease];
                let list = if fenced {
                    &resource.fenced
                } else {
                    &resource.plain
                };
                Said::Seen(list.values.clone(), list.position, 0)
            }
            Ask::Write {
                lease,
                fenced,
                token,
                value,
                list,
            } => {
                let said = self.write(lease, fenced, token, value, list);
                if let Said::Done(position) = said {
                    self.effect_committed(request.id, position);
                }
                said
            }
            Ask::Op(_) | Ask::Pair(_) => return,
        };
        self.reply(&request, said);
    }

    fn raise(&mut self, lease: usize, token: u64) -> Said {
        let (name, token) = (&self.setup.leases[lease], number(token));
        let resource = &mut self.resources[lease];
        let fence = resource.fence.get_or_insert_with(|| Fence {
            lease: name.clone(),
            highest: token,
        });
        match fence.raise(name, token) {
            Ok(()) => {
                resource.fenced.position += 1;
                Said::Done(resource.fenced.position)
            }
            Err(refusal) => Said::Refused(refusal),
        }
    }

    fn write(
        &mut self,
        lease: usize,
        fenced: bool,
        token: u64,
        value: u32,
        list: Option<Vec<u32>>,
    ) -> Said {
        let resource = &mut self.resources[lease];
        if !fenced {
            return Said::Done(resource.plain.write(value, list));
        }
        let checked = match &resource.fence {
            Some(fence) => fence.check(&self.setup.leases[lease], number(token)),
            None => return Said::Reset,
        };
        match checked {
            Ok(()) => Said::Done(resource.fenced.write(value, list)),
            Err(refusal) => Said::Refused(refusal),
        }
    }

    /// At the end of a run everything is looked at once more, with a token beyond all others.
    pub(super) fn last_looks(&mut self) {
        for lease in 0..self.setup.leases.len() {
            let name = self.setup.leases[lease].as_str().to_owned();
            let list = &self.resources[lease].fenced;
            let mut looks = vec![(list_name(&name, true), list.values.clone(), list.position)];
            let (pairs, position, line) = self.pairs(lease);
            looks.push((pair_name(&name, line), pairs, position));
            for (resource, values, position) in looks {
                let look = Look {
                    resource,
                    lease: name.clone(),
                    token: network::LAST_TOKEN,
                    fenced: true,
                    position: Some(position),
                    saw: Some(values.into_iter().map(shown).collect()),
                };
                self.history.push(self.now, "sim", What::Look(look));
            }
        }
    }
}

fn number(token: u64) -> Token {
    Token::new(token).expect("a holder's token is a good token")
}
