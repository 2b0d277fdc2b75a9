//! Flows that wait until the queue of a class gets shorter.

use alloc::collections::VecDeque;

use super::Port;
use crate::api::FlowKey;

impl<P> Port<P> {
    /// Bytes that own flows may still add to the queue of a class; 0 when they must wait.
    #[inline]
    pub(in super::super) fn own_room(&self, class: u8) -> usize {
        let class = &self.classes[usize::from(class)];
        let (pdus, bytes) = self.own_limit;
        if class.pdus >= pdus {
            return 0;
        }
        usize::try_from(bytes.saturating_sub(class.bytes)).unwrap_or(usize::MAX)
    }

    /// Makes a flow wait until the queue of a class gets shorter.
    pub(in super::super) fn hold(&mut self, class: u8, flow: FlowKey) {
        self.held[usize::from(class)].push_back(flow);
    }

    /// True when flows wait for the queue of a class.
    #[inline]
    pub(in super::super) fn holds(&self, class: u8) -> bool {
        !self.held[usize::from(class)].is_empty()
    }

    /// The flows that may continue because the queue of a class has fallen to half of its limit;
    /// `None` while it is longer or no flow waits.
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

    /// Takes all flows that wait for this N-1 flow.
    pub(in super::super) fn take_all_held(&mut self) -> impl Iterator<Item = FlowKey> + use<P> {
        let held = core::mem::take(&mut self.held);
        self.held.resize_with(held.len(), VecDeque::new);
        held.into_iter().flatten()
    }
}
