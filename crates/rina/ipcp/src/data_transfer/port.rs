//! One N-1 flow as the RMT sees it: queues, the policies that serve them, and protection.

mod held;
mod queue;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use carina_time::Instant;
use carina_wire::Payload;

use self::queue::{Queue, Waiting};
use super::counters::{Counters, DropReason};
use crate::api::{FlowKey, N1Port, N1Properties, Passage, Watch};
use crate::config::QosCube;
use crate::policy::{Arrival, Class, QueueDecision, QueuePolicy, Scheduler};
use crate::security::{Reject, SduProtection};

/// An N-1 flow.
pub(super) struct Port<P> {
    /// How the binder calls it.
    pub(super) n1: N1Port,
    /// What is known of it.
    pub(super) props: N1Properties,
    /// Protection.
    pub(super) protection: Option<Box<dyn SduProtection>>,
    /// Kinds of notices that were given: one bit per [`DropReason`].
    pub(super) noticed: u64,
    /// A neighbour is at its other end: what is for members is taken from it.
    pub(super) is_neighbours: bool,
    /// It is given up, and its neighbour may not have heard of it: what that sent is still taken.
    pub(super) is_detaching: bool,
    /// The N-1 flow has no credit.
    pub(super) is_blocked: bool,
    /// In the list of N-1 flows that have something to send.
    pub(super) is_listed: bool,
    /// In the list of N-1 flows whose PDUs may lie in a burst's memory.
    pub(super) is_unkept: bool,
    /// Since when it has taken nothing although PDUs wait; 0 when that is not so.
    pub(super) waiting_since: Instant,
    /// Earliest deadline in the heap.
    pub(super) armed: Instant,
    /// PDUs and bytes that it took and that came from it.
    pub(super) sent: (u64, u64),
    /// As above.
    pub(super) received: (u64, u64),
    /// PDUs dropped before this N-1 flow.
    pub(super) dropped: u64,
    management: Queue<P>,
    management_bytes: usize,
    queues: Vec<Queue<P>>,
    classes: Vec<Class>,
    /// Bit per class that has PDUs.
    waiting: u64,
    own_limit: (u32, u64),
    scheduler: Box<dyn Scheduler>,
    policy: Box<dyn QueuePolicy>,
    arrivals: u64,
    /// The next PDU.
    staged: Staged<P>,
    /// Flows that wait for each class to get shorter.
    held: Vec<VecDeque<FlowKey>>,
}

/// What is known of the PDU that is sent next.
enum Staged<P> {
    Nothing,
    /// It is the first of this lane.
    Chosen(QueueClass),
    /// It has been taken and protected.
    Protected(QueueClass, P),
}

/// Which queue of an N-1 flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueClass {
    /// Layer management: served first.
    Management,
    /// Layer management between two IPCPs that may not have common keys: served first, without
    /// protection.
    Unprotected,
    /// A class: a cube of the DIF, by its place in the configuration.
    Cube(u8),
}

/// Most management PDUs that wait for one N-1 flow, and most bytes of them.
const MANAGEMENT_PDUS_MAX: usize = 4096;
const MANAGEMENT_BYTES_MAX: usize = 8 << 20;

impl<P: Payload> Port<P> {
    pub(super) fn new(
        n1: N1Port,
        props: N1Properties,
        cubes: &[QosCube],
        scheduler: Box<dyn Scheduler>,
        policy: Box<dyn QueuePolicy>,
    ) -> Port<P> {
        let mut port = Port {
            n1,
            props,
            protection: None,
            noticed: 0,
            is_neighbours: false,
            is_detaching: false,
            is_blocked: false,
            is_listed: false,
            is_unkept: false,
            waiting_since: Instant::ZERO,
            armed: Instant::ZERO,
            sent: (0, 0),
            received: (0, 0),
            dropped: 0,
            management: Queue::new(),
            management_bytes: 0,
            queues: Vec::new(),
            classes: Vec::new(),
            waiting: 0,
            own_limit: policy.own_limit(),
            scheduler,
            policy,
            arrivals: 0,
            staged: Staged::Nothing,
            held: Vec::new(),
        };
        port.set_cubes(cubes);
        port
    }

    /// The DIF's cubes are known, or their weights have changed. Queues stay.
    pub(super) fn set_cubes(&mut self, cubes: &[QosCube]) {
        let count = cubes.len().max(self.queues.len());
        self.queues.resize_with(count, Queue::new);
        self.held.resize_with(count, VecDeque::new);
        self.classes.resize(count, Class::default());
        for (class, cube) in self.classes.iter_mut().zip(cubes) {
            class.qos = carina_wire::dif::QosId(cube.id);
            class.priority = cube.priority;
            class.weight = cube.weight.max(1);
            class.ecn = cube.ecn;
        }
    }

    pub(super) fn set_scheduler(&mut self, scheduler: Box<dyn Scheduler>) {
        self.scheduler = scheduler;
    }

    pub(super) fn set_policy(&mut self, policy: Box<dyn QueuePolicy>) {
        self.own_limit = policy.own_limit();
        self.policy = policy;
    }

    /// What the queueing policy says of a relayed PDU.
    #[inline]
    pub(super) fn admit(&mut self, class: u8, arrival: Arrival) -> QueueDecision {
        let index = usize::from(class);
        self.policy.admit(index, &self.classes[index], arrival)
    }

    /// Longest PDU that fits, protection not counted, in bytes.
    #[inline]
    pub(super) fn pdu_max(&self) -> usize {
        let overhead = self
            .protection
            .as_ref()
            .map_or(0, |protection| protection.overhead());
        self.props.sdu_max.saturating_sub(overhead)
    }

    /// Queues a PDU of `len` bytes. False when there is no room for it: management has a bound of
    /// its own.
    #[inline]
    pub(super) fn push(
        &mut self,
        queue_class: QueueClass,
        pdu: P,
        len: usize,
        is_kept: bool,
    ) -> bool {
        let waiting = |mark| Waiting {
            mark,
            len: len as u32,
            pdu,
        };
        match queue_class {
            QueueClass::Management | QueueClass::Unprotected => {
                if self.management.pdus.len() >= MANAGEMENT_PDUS_MAX
                    || self.management_bytes + len > MANAGEMENT_BYTES_MAX
                {
                    return false;
                }
                self.management_bytes += len;
                let mark = u64::from(queue_class == QueueClass::Unprotected);
                self.management.push(waiting(mark), is_kept);
            }
            QueueClass::Cube(class) => {
                let index = usize::from(class);
                let state = &mut self.classes[index];
                if state.pdus == 0 {
                    state.head_len = len as u32;
                    state.head_arrival = self.arrivals;
                    self.waiting |= 1 << index;
                }
                state.pdus += 1;
                state.bytes += len as u64;
                self.queues[index].push(waiting(self.arrivals), is_kept);
                self.arrivals += 1;
            }
        }
        true
    }

    /// True when a PDU waits.
    #[inline]
    pub(super) fn has_output(&self) -> bool {
        self.waiting != 0
            || !self.management.pdus.is_empty()
            || matches!(self.staged, Staged::Protected(..))
    }

    /// PDUs and bytes that wait, over all classes and management.
    pub(super) fn depth(&self) -> (u64, u64) {
        let mut pdus = self.management.pdus.len() as u64;
        let mut bytes = self.management_bytes as u64;
        for class in &self.classes {
            pdus += u64::from(class.pdus);
            bytes += class.bytes;
        }
        (pdus, bytes)
    }

    /// State of the classes.
    pub(super) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Chooses the next PDU, and protects it where there is protection, unless that was done;
    /// returns its length. PDUs that protection refuses are dropped and counted; the refusal is
    /// returned beside.
    #[inline]
    pub(super) fn stage(
        &mut self,
        now: Instant,
        counters: &mut Counters,
        watch: Option<&mut Watch<P>>,
    ) -> (Option<usize>, Option<Reject>) {
        match &self.staged {
            Staged::Nothing => {}
            Staged::Chosen(queue_class) => return (Some(self.head_len(*queue_class)), None),
            Staged::Protected(_, pdu) => return (Some(pdu.len()), None),
        }
        if self.protection.is_some() {
            return self.stage_protected(now, counters, watch);
        }
        let Some(queue_class) = self.choose() else {
            return (None, None);
        };
        self.staged = Staged::Chosen(queue_class);
        if let Some(watch) = watch
            && let Some(first) = self.queue_of(queue_class).pdus.front()
        {
            watch(Passage::Out, self.n1, &first.pdu);
        }
        (Some(self.head_len(queue_class)), None)
    }

    fn stage_protected(
        &mut self,
        now: Instant,
        counters: &mut Counters,
        mut watch: Option<&mut Watch<P>>,
    ) -> (Option<usize>, Option<Reject>) {
        let mut refusal = None;
        loop {
            let Some((queue_class, pdu)) =
                self.choose().and_then(|queue_class| self.pop(queue_class))
            else {
                return (None, refusal);
            };
            if let Some(watch) = &mut watch {
                watch(Passage::Out, self.n1, &pdu);
            }
            let protection = self
                .protection
                .as_mut()
                .filter(|_| queue_class != QueueClass::Unprotected);
            let protected = match protection {
                Some(protection) => {
                    protection.set_now(now);
                    protect(protection.as_mut(), &pdu)
                }
                None => Ok(Some(pdu)),
            };
            match protected {
                Ok(Some(protected)) => {
                    let len = protected.len();
                    self.staged = Staged::Protected(queue_class, protected);
                    return (Some(len), refusal);
                }
                Ok(None) => counters.drop_one(DropReason::NoBuffer),
                Err(reject) => {
                    counters.drop_one(reject.into());
                    refusal = Some(reject);
                }
            }
        }
    }

    /// Takes the staged PDU and says where it waited.
    #[inline]
    pub(super) fn take_staged(&mut self) -> Option<(QueueClass, P)> {
        if let Staged::Nothing = self.staged {
            return None;
        }
        match core::mem::replace(&mut self.staged, Staged::Nothing) {
            Staged::Nothing => None,
            Staged::Chosen(queue_class) => self.pop(queue_class),
            Staged::Protected(queue_class, pdu) => Some((queue_class, pdu)),
        }
    }

    /// Where the next PDU waits.
    #[inline]
    fn choose(&mut self) -> Option<QueueClass> {
        if let Some(first) = self.management.pdus.front() {
            return Some(if first.mark == 0 {
                QueueClass::Management
            } else {
                QueueClass::Unprotected
            });
        }
        if self.waiting == 0 {
            return None;
        }
        let mut index = self.scheduler.choose(&self.classes, self.waiting);
        if index >= 64 || self.waiting & (1 << index) == 0 {
            index = self.waiting.trailing_zeros() as usize;
        }
        Some(QueueClass::Cube(index as u8))
    }

    fn queue_of(&self, queue_class: QueueClass) -> &Queue<P> {
        match queue_class {
            QueueClass::Cube(class) => &self.queues[usize::from(class)],
            QueueClass::Management | QueueClass::Unprotected => &self.management,
        }
    }

    /// Length of the first PDU of a lane that has one.
    #[inline]
    fn head_len(&self, queue_class: QueueClass) -> usize {
        match queue_class {
            QueueClass::Cube(class) => self.classes[usize::from(class)].head_len as usize,
            QueueClass::Management | QueueClass::Unprotected => {
                let first = self.management.pdus.front();
                first.map_or(0, |first| first.len as usize)
            }
        }
    }

    #[inline]
    fn pop(&mut self, queue_class: QueueClass) -> Option<(QueueClass, P)> {
        let QueueClass::Cube(class) = queue_class else {
            let first = self.management.pop()?;
            self.management_bytes -= first.len as usize;
            return Some((queue_class, first.pdu));
        };
        let index = usize::from(class);
        let queue = &mut self.queues[index];
        let pdu = queue.pop()?.pdu;
        let state = &mut self.classes[index];
        state.pdus -= 1;
        state.bytes -= u64::from(state.head_len);
        match queue.pdus.front() {
            Some(first) => {
                state.head_len = first.len;
                state.head_arrival = first.mark;
            }
            None => {
                state.head_len = 0;
                self.waiting &= !(1 << index);
            }
        }
        Some((queue_class, pdu))
    }

    /// Makes all that waits last beyond the burst. What has no buffer is dropped, counted.
    pub(super) fn keep(&mut self, counters: &mut Counters) {
        let lost = self.management.keep();
        if lost > 0 {
            self.management_bytes = self.management.bytes() as usize;
        }
        let mut all_lost = lost;
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            if queue.kept == queue.pdus.len() {
                continue;
            }
            let lost = queue.keep();
            if lost > 0 {
                all_lost += lost;
                self.recount(index);
            }
        }
        let is_staged_lost = match &mut self.staged {
            Staged::Protected(_, pdu) => !pdu.keep(),
            _ => false,
        };
        // A chosen PDU may have been the one that was lost.
        if is_staged_lost || all_lost > 0 {
            all_lost += usize::from(is_staged_lost);
            if is_staged_lost || matches!(self.staged, Staged::Chosen(_)) {
                self.staged = Staged::Nothing;
            }
        }
        counters.drop_many(DropReason::NoBuffer, all_lost as u64);
    }

    /// Takes everything that waits: lanes with their PDUs. A PDU that was staged under protection
    /// is lost, since its protection belongs to this N-1 flow; returns how many were.
    pub(super) fn drain(&mut self, to: &mut Vec<(QueueClass, P)>) -> u64 {
        let staged = core::mem::replace(&mut self.staged, Staged::Nothing);
        let lost = u64::from(matches!(staged, Staged::Protected(..)));
        self.management_bytes = 0;
        let management = core::mem::replace(&mut self.management, Queue::new());
        // What was for the neighbour at the other end of this N-1 flow has no other way.
        let mut lost = lost;
        for waiting in management.pdus {
            match waiting.mark {
                0 => to.push((QueueClass::Management, waiting.pdu)),
                _ => lost += 1,
            }
        }
        self.drain_classes(to);
        lost
    }

    /// Takes what waits in the classes. A PDU that was staged under protection stays, since its
    /// protection belongs to this N-1 flow.
    pub(super) fn drain_classes(&mut self, to: &mut Vec<(QueueClass, P)>) {
        if matches!(self.staged, Staged::Chosen(_)) {
            self.staged = Staged::Nothing;
        }
        for index in 0..self.queues.len() {
            let queue = core::mem::replace(&mut self.queues[index], Queue::new());
            let queue_class = QueueClass::Cube(index as u8);
            to.extend(
                queue
                    .pdus
                    .into_iter()
                    .map(|waiting| (queue_class, waiting.pdu)),
            );
            self.recount(index);
        }
    }

    fn recount(&mut self, index: usize) {
        let queue = &self.queues[index];
        let state = &mut self.classes[index];
        state.pdus = queue.pdus.len() as u32;
        state.bytes = queue.bytes();
        state.head_len = 0;
        self.waiting &= !(1 << index);
        if let Some(first) = queue.pdus.front() {
            state.head_len = first.len;
            state.head_arrival = first.mark;
            self.waiting |= 1 << index;
        }
    }
}

/// A PDU under protection. `None` when there is no buffer.
fn protect<P: Payload>(protection: &mut dyn SduProtection, pdu: &P) -> Result<Option<P>, Reject> {
    let mut bytes = Vec::with_capacity(pdu.len() + protection.overhead());
    pdu.append_to(&mut bytes);
    protection.protect(&mut bytes)?;
    Ok(P::from_vec(bytes))
}
