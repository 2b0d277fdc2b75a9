//! One N-1 flow in the RMT: its queues, their policies, and SDU protection.

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

/// State of an N-1 flow.
pub(super) struct Port<P> {
    /// Id that the binder gave the N-1 flow.
    pub(super) n1: N1Port,
    /// Properties that the binder gave when the flow came up.
    pub(super) props: N1Properties,
    /// SDU protection of the flow; `None` for none.
    pub(super) protection: Option<Box<dyn SduProtection>>,
    /// Reasons already reported for this N-1 flow: one bit per [`DropReason`].
    pub(super) noticed: u64,
    /// A neighbour is at the other end: PDUs for members are accepted from it.
    pub(super) is_neighbours: bool,
    /// The flow is given up, but the neighbour may not know yet: its PDUs are still accepted.
    pub(super) is_detaching: bool,
    /// The N-1 flow takes no PDUs at present.
    pub(super) is_blocked: bool,
    /// Listed among the N-1 flows that have something to send.
    pub(super) is_listed: bool,
    /// Listed among the N-1 flows whose PDUs may lie in memory of the current burst.
    pub(super) is_unkept: bool,
    /// Since when the flow has taken nothing although PDUs wait; 0 otherwise.
    pub(super) waiting_since: Instant,
    /// Earliest deadline of this N-1 flow in the timer heap; 0 for none.
    pub(super) armed: Instant,
    /// PDUs and bytes sent.
    pub(super) sent: (u64, u64),
    /// PDUs and bytes received.
    pub(super) received: (u64, u64),
    /// PDUs that were dropped, because the queues of this N-1 flow did not accept them.
    pub(super) dropped: u64,
    management: Queue<P>,
    management_bytes: usize,
    queues: Vec<Queue<P>>,
    classes: Vec<Class>,
    /// Bit `i` is set when class `i` has PDUs.
    waiting: u64,
    own_limit: (u32, u64),
    scheduler: Box<dyn Scheduler>,
    policy: Box<dyn QueuePolicy>,
    arrivals: u64,
    /// The PDU that is sent next on this N-1 flow.
    staged: Staged<P>,
    /// By class: flows that wait for its queue to get shorter.
    held: Vec<VecDeque<FlowKey>>,
}

/// State of the PDU that is sent next.
enum Staged<P> {
    Nothing,
    /// The PDU at the front of this queue is sent next; it is not protected yet.
    Chosen(QueueClass),
    /// This PDU is sent next; it has left its queue and is protected.
    Protected(QueueClass, P),
}

/// Queue of an N-1 flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueClass {
    /// Layer management: served first.
    Management,
    /// Layer management between two IPCPs that may not have common keys: served first, sent without
    /// protection.
    Unprotected,
    /// A QoS cube of the DIF, by its index in the configuration.
    Cube(u8),
}

/// Largest number of management PDUs that wait for one N-1 flow.
const MANAGEMENT_PDUS_MAX: usize = 4096;
/// Largest number of bytes of these management PDUs.
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

    /// Sets the DIF's cubes, or their new weights. Queued PDUs stay.
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

    /// The queueing policy's decision on a relayed PDU.
    #[inline]
    pub(super) fn admit(&mut self, class: u8, arrival: Arrival) -> QueueDecision {
        let index = usize::from(class);
        self.policy.admit(index, &self.classes[index], arrival)
    }

    /// Longest PDU that fits in an SDU of the N-1 flow, protection not counted, in bytes.
    #[inline]
    pub(super) fn pdu_max(&self) -> usize {
        let overhead = self
            .protection
            .as_ref()
            .map_or(0, |protection| protection.overhead());
        self.props.sdu_max.saturating_sub(overhead)
    }

    /// Queues a PDU of `len` bytes. Returns false when the management queue is full; the queues of
    /// cubes are bounded by the callers.
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

    /// True when a PDU waits to be sent.
    #[inline]
    pub(super) fn has_output(&self) -> bool {
        self.waiting != 0
            || !self.management.pdus.is_empty()
            || matches!(self.staged, Staged::Protected(..))
    }

    /// PDUs and bytes that wait, in all classes and the management queue.
    pub(super) fn depth(&self) -> (u64, u64) {
        let mut pdus = self.management.pdus.len() as u64;
        let mut bytes = self.management_bytes as u64;
        for class in &self.classes {
            pdus += u64::from(class.pdus);
            bytes += class.bytes;
        }
        (pdus, bytes)
    }

    /// State of the classes, by index.
    pub(super) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Chooses the next PDU and protects it if the flow has protection, unless that was done
    /// before. Returns its length. PDUs that the protection refuses are dropped and counted; the
    /// second value is the reason of the last such refusal.
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

    /// Takes the staged PDU, with the queue that it waited in.
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

    /// The queue to serve next: management first, then the scheduler's choice.
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

    /// Length of the first PDU of a queue that is not empty.
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

    /// Copies everything that waits out of the burst's memory. PDUs for which there is no buffer
    /// are dropped and counted.
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
        // The PDU that was lost may be the chosen one.
        if is_staged_lost || all_lost > 0 {
            all_lost += usize::from(is_staged_lost);
            if is_staged_lost || matches!(self.staged, Staged::Chosen(_)) {
                self.staged = Staged::Nothing;
            }
        }
        counters.drop_many(DropReason::NoBuffer, all_lost as u64);
    }

    /// Takes everything that waits, each PDU with its queue. Returns how many PDUs are lost: a
    /// protected PDU, since its protection belongs to this N-1 flow, and PDUs for the neighbour at
    /// its other end.
    pub(super) fn drain(&mut self, to: &mut Vec<(QueueClass, P)>) -> u64 {
        let staged = core::mem::replace(&mut self.staged, Staged::Nothing);
        let lost = u64::from(matches!(staged, Staged::Protected(..)));
        self.management_bytes = 0;
        let management = core::mem::replace(&mut self.management, Queue::new());
        // Unprotected PDUs are for the neighbour at the other end; they have no other path.
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

    /// Takes what waits in the classes. A protected PDU stays, since its protection belongs to this
    /// N-1 flow.
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

/// Returns a PDU with protection. `None` when there is no buffer.
fn protect<P: Payload>(protection: &mut dyn SduProtection, pdu: &P) -> Result<Option<P>, Reject> {
    let mut bytes = Vec::with_capacity(pdu.len() + protection.overhead());
    pdu.append_to(&mut bytes);
    protection.protect(&mut bytes)?;
    Ok(P::from_vec(bytes))
}
