//! Which apps the engine must visit because of their links.

use super::{Links, Side};
use crate::ids::{AppId, LinkId};

impl Links {
    pub(crate) fn admit(&mut self, app: AppId) {
        let index = app.index as usize;
        if self.sides.len() <= index {
            self.sides.resize_with(index + 1, Side::default);
        }
        self.sides[index] = Side {
            generation: app.generation,
            ..Side::default()
        };
    }

    /// Forgets an app. Its links must have been removed, or be removed by their other ends.
    pub(crate) fn dismiss(&mut self, app: AppId) {
        if let Some(side) = self.side_mut(app) {
            *side = Side {
                generation: app.generation.wrapping_add(1),
                ..Side::default()
            };
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.woken.is_empty() || !self.retries.is_empty() || !self.dirty.is_empty()
    }

    pub(crate) fn take_woken(&mut self, into: &mut Vec<AppId>) {
        for app in self.woken.drain(..) {
            if let Some(side) = self.sides.get_mut(app.index as usize)
                && side.generation == app.generation
            {
                side.woken = false;
                into.push(app);
            }
        }
    }

    pub(crate) fn next_dirty(&mut self) -> Option<AppId> {
        let app = self.dirty.pop_front()?;
        if let Some(side) = self.side_mut(app) {
            side.listed_dirty = false;
        }
        Some(app)
    }

    pub(crate) fn take_finished(&mut self) -> Vec<AppId> {
        std::mem::take(&mut self.finished)
    }

    pub(crate) fn take_left_over(&mut self) -> Vec<LinkId> {
        std::mem::take(&mut self.left_over)
    }
}
