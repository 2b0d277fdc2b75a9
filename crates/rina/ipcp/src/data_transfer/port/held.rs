//! Flows that wait for a class of an N-1 flow to get shorter.

use alloc::collections::VecDeque;

use super::Port;
use crate::api::FlowKey;

impl<P> Port<P> {
    /// Bytes that own flows may still add to a class; 0 when they are to wait.
    #[inline]
    pub(in super::super) fn own_room(&self, class: u8) -> usize {
        let class = &self.classes[usize::from(class)];
        let (pdus, bytes) = self.own_limit;
        if class.pdus >= pdus {
            return 0;
        }
        usize::try_from(bytes.saturating_sub(class.bytes)).unwrap_or(usize::MAX)
    }

    /// A flow waits for a class to get shorter.
    pub(in super::super) fn hold(&mut self, class: u8, flow: FlowKey) {
        self.held[usize::from(class)].push_back(flow);
    }

    /// Flows wait for a class to get shorter.
    #[inline]
    pub(in super::super) fn holds(&self, class: u8) -> bool {
        !self.held[usize::from(class)].is_empty()
    }

    /// Flows that may go on because a class has got shorter.
    pub(in super::super) fn take_held(&mut self, class: u8) -> Option<VecDeque<FlowKey>> {
        let index = usize::from(class);
        if self.held[index].is_empty() {
            return None;
        }
        let (pdus, bytes) = self.own_limit;
        let class = &self.classes[index];
        let is_short = class.pdus <= pdus / 2 && class.bytes <= bytes / 2;
        is_short.then(|| core::mem::take(&mut self.held[index]))
    }

    /// Every flow that waits here.
    pub(in super::super) fn take_all_held(&mut self) -> impl Iterator<Item = FlowKey> + use<P> {
        let held = core::mem::take(&mut self.held);
        self.held.resize_with(held.len(), VecDeque::new);
        held.into_iter().flatten()
    }
}
