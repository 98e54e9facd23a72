//! Effects from their start to the moment when all is known of them: the writer learns one half, the resource the other.
//!
//! The one rule: an effect enters the history when its writer learns its fate, or gives it up; if it is committed later
//! than that, its entry is completed.

use super::world::{Pid, World};
use crate::history::{Answer, Effect, What};

/// An effect whose fate is not known to all.
pub(super) struct Open {
    pid: Pid,
    effect: Effect,
    /// Where it stands in the history.
    event: Option<usize>,
}

impl World {
    pub(super) fn effect_started(&mut self, id: u64, pid: Pid, effect: Effect) {
        let event = None;
        self.open.insert(id, Open { pid, effect, event });
    }

    pub(super) fn effect_committed(&mut self, id: u64, position: u64) {
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        open.effect.position = Some(position);
        let event = open.event;
        if let Some(effect) = event.and_then(|event| self.effect_at(event)) {
            effect.position = Some(position);
        }
    }

    /// The writer learnt its fate, or gave it up.
    pub(super) fn effect_answered(&mut self, id: u64, answer: Answer) {
        let place = self.history.events.len();
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        if open.event.is_some() {
            return;
        }
        open.effect.answer = answer;
        open.event = Some(place);
        let (pid, effect) = (open.pid, open.effect.clone());
        self.push(pid, What::Effect(effect));
    }

    /// Whoever waited for answers is gone.
    pub(super) fn effects_forgotten(&mut self, pid: Pid) {
        let mine: Vec<u64> = self
            .open
            .iter()
            .filter_map(|(id, open)| (open.pid == pid).then_some(*id))
            .collect();
        for id in mine {
            self.effect_answered(id, Answer::Unknown);
        }
    }
}

/// A value as the history shows it.
pub(super) fn shown(value: u32) -> String {
    format!("v{value}")
}
