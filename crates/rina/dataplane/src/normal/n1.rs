//! The N-1 flows that a normal IPCP uses.
//!
//! ```text
//!   Attach ---> attached --N1Up request-> measuring --piece_max known--> up
//!                  |                         |                          |
//!                  +------- link closed from below, or DropN1 ----------+--> gone
//! ```

use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links, Packet, record_cost};
use carina_ipcp::{Command, N1Port, N1Properties};
use carina_wire::Payload;

use super::Normal;
use crate::event::Event;
use crate::ipcp_app::N1Links;

/// State of an N-1 flow.
pub(super) struct N1Flow {
    links: N1Links,
    /// Properties of the flow, kept while its longest PDU is not known.
    props: Option<N1Properties>,
    /// Commands to execute after the flow has come up.
    deferred: Vec<Command>,
    /// PDUs that arrived before this side knew that the flow is allocated. They are kept, because
    /// in some dialects the peer repeats its first message only after seconds.
    early: Vec<Packet>,
    is_up: bool,
    /// Ring bytes received from the input link.
    taken: u64,
    /// The pieces received so far of a PDU that the flow delivers in several pieces.
    assembly: Vec<u8>,
    /// Whether the current PDU is too long, so that its remaining pieces are skipped.
    is_skipping: bool,
}

impl Normal {
    fn n1_mut(&mut self, n1: N1Port) -> Option<&mut N1Flow> {
        self.n1s.get_mut(n1.0 as usize)?.as_mut()
    }

    /// Whether `link` carries the received PDUs of this N-1 flow.
    pub(super) fn has_input(&self, n1: N1Port, link: LinkId) -> bool {
        let flow = self.n1s.get(n1.0 as usize).and_then(Option::as_ref);
        flow.is_some_and(|flow| flow.links.input == link)
    }

    /// Attaches an N-1 flow. An earlier flow with the same number has ended: the manager knows
    /// that, although its link does not show it yet.
    pub(super) fn attach(&mut self, n1: N1Port, new: N1Links, links: &mut Links) {
        self.drop_n1(n1, String::new(), links);
        let index = n1.0 as usize;
        if self.n1s.len() <= index {
            self.n1s.resize_with(index + 1, || None);
        }
        self.n1s[index] = Some(N1Flow {
            links: new,
            props: None,
            deferred: Vec::new(),
            early: Vec::new(),
            is_up: false,
            taken: 0,
            assembly: Vec::new(),
            is_skipping: false,
        });
    }

    /// Notes that the N-1 flow is allocated. The flow comes up when its DIF has reported its
    /// longest PDU.
    pub(super) fn n1_up(&mut self, n1: N1Port, props: N1Properties) {
        if let Some(flow) = self.n1_mut(n1) {
            flow.props = Some(props);
            self.unmeasured.push(n1);
        }
    }

    /// Passes a command about an N-1 flow to the machine, once the flow is up.
    pub(super) fn handle_on(&mut self, n1: N1Port, command: Command) {
        match self.n1_mut(n1) {
            Some(flow) if !flow.is_up => flow.deferred.push(command),
            _ => self.machine.handle(self.now, command),
        }
    }

    /// Brings up the N-1 flows whose DIF has reported their longest PDU.
    pub(super) fn measure(&mut self, links: &Links) {
        for n1 in std::mem::take(&mut self.unmeasured) {
            let Some(flow) = self.n1_mut(n1) else {
                continue;
            };
            let piece_max = links.piece_max(flow.links.output);
            if piece_max == 0 {
                self.unmeasured.push(n1);
                continue;
            }
            let Some(mut props) = flow.props.take() else {
                continue;
            };
            flow.is_up = true;
            let deferred = std::mem::take(&mut flow.deferred);
            let early = std::mem::take(&mut flow.early);
            props.sdu_max = match props.sdu_max {
                0 => piece_max,
                known => known.min(piece_max),
            };
            let up = Command::N1Up { n1, props };
            for command in std::iter::once(up).chain(deferred) {
                self.machine.handle(self.now, command);
            }
            for pdu in early {
                self.machine.on_pdu(self.now, n1, pdu);
            }
        }
    }

    /// Processes all PDUs on the input link of an N-1 flow. Returns whether there were any.
    pub(super) fn drain_n1(&mut self, n1: N1Port, link: LinkId, links: &mut Links) -> bool {
        if self.is_flooded() && links.queued(link) > 0 {
            links.leave(link);
            self.left.push(link);
            return false;
        }
        let (mut moved, mut taken) = (false, 0);
        while let Some(packet) = links.pop(link) {
            moved = true;
            taken += record_cost(packet.len());
            self.receive(n1, packet);
        }
        if moved && let Some(flow) = self.n1_mut(n1) {
            flow.taken += taken;
            links.report(link, flow.taken);
        }
        if let Some(close) = links.closed(link).cloned() {
            self.n1_ended(n1, close, links);
        }
        moved
    }

    fn receive(&mut self, n1: N1Port, packet: Packet) {
        let now = self.now;
        let Some(flow) = self.n1s.get_mut(n1.0 as usize).and_then(Option::as_mut) else {
            return self.row.add(Value::DropFlowEnded, 1);
        };
        if !flow.is_up {
            // The allocation is not confirmed yet. The PDU is copied, because the memory of the
            // packet may not outlive this breath.
            let mut copy = Vec::with_capacity(packet.len());
            Packet::append_to(&packet, &mut copy);
            let is_whole = !packet.more() && flow.early.len() < EARLY_MAX;
            match Packet::from_vec(copy).filter(|_| is_whole) {
                Some(copy) => flow.early.push(copy),
                None => self.row.add(Value::DropLinkDown, 1),
            }
            return;
        }
        if !packet.more() && flow.assembly.is_empty() && !flow.is_skipping {
            return self.machine.on_pdu(now, n1, packet);
        }
        // PDUs of Carina fit into one piece of the N-1 flow, so this is rare.
        if flow.assembly.len() + packet.len() > PDU_BYTES_MAX {
            flow.is_skipping = true;
            flow.assembly.clear();
        }
        if !flow.is_skipping {
            Packet::append_to(&packet, &mut flow.assembly);
        }
        if packet.more() {
            return;
        }
        let whole = std::mem::take(&mut flow.assembly);
        if std::mem::take(&mut flow.is_skipping) {
            return self.row.add(Value::DropTooLong, 1);
        }
        match Packet::from_vec(whole) {
            Some(packet) => self.machine.on_pdu(now, n1, packet),
            None => self.row.add(Value::DropNoBuffer, 1),
        }
    }

    /// Moves PDUs to the N-1 flows while those accept them. Returns whether there were any.
    pub(super) fn transmit(&mut self, links: &mut Links) -> bool {
        let mut moved = false;
        while let Some(n1) = self.machine.poll_n1() {
            let output = self
                .n1s
                .get(n1.0 as usize)
                .and_then(Option::as_ref)
                .map(|flow| flow.links.output);
            while let Some(len) = self.machine.peek_transmit(n1) {
                let Some(output) = output.filter(|output| links.may_push(*output, len)) else {
                    self.machine.block_n1(n1);
                    self.blocked.push(n1);
                    break;
                };
                let Some(pdu) = self.machine.take_transmit(self.now, n1) else {
                    break;
                };
                moved = true;
                if links.push(output, pdu).is_err() {
                    self.row.add(Value::DropFlowEnded, 1);
                }
            }
        }
        moved
    }

    /// Handles an N-1 flow that the DIF below has ended.
    fn n1_ended(&mut self, n1: N1Port, close: Close, links: &mut Links) {
        let is_refused = matches!(close, Close::Refused(_));
        self.forget_n1(n1, close, Close::Graceful(String::new()), is_refused, links);
    }

    /// Ends an N-1 flow from this side.
    pub(super) fn drop_n1(&mut self, n1: N1Port, reason: String, links: &mut Links) {
        let output = match reason.as_str() {
            "" => Close::Graceful(reason.clone()),
            _ => Close::Failed(reason.clone()),
        };
        self.forget_n1(n1, Close::Graceful(reason), output, false, links);
    }

    fn forget_n1(
        &mut self,
        n1: N1Port,
        close: Close,
        output: Close,
        is_refused: bool,
        links: &mut Links,
    ) {
        let Some(flow) = self.n1s.get_mut(n1.0 as usize).and_then(Option::take) else {
            return;
        };
        let reason = match close.reason() {
            "" => "the flow was closed".to_owned(),
            reason => reason.to_owned(),
        };
        links.close(flow.links.output, output);
        let lost = links.disconnect(flow.links.input);
        let lost = lost + flow.early.len();
        self.row.add(Value::DropFlowEnded, lost as u64);
        if flow.is_up {
            let reason = reason.clone();
            self.machine
                .handle(self.now, Command::N1Down { n1, reason });
        }
        // If a request was refused, the IPCP below reports it.
        if !is_refused && !flow.links.is_silent {
            let port = flow.links.port;
            self.ports.remove(port);
            self.events.put(Event::FlowClosed { port, reason });
        }
        links.wake(self.id);
    }

    /// Ends all N-1 flows because the IPCP is destroyed.
    pub(super) fn drop_all_n1s(&mut self, links: &mut Links) {
        for index in 0..self.n1s.len() {
            self.drop_n1(N1Port(index as u32), String::new(), links);
        }
    }
}

/// Largest number of PDUs that wait until an N-1 flow comes up.
const EARLY_MAX: usize = 64;

/// Longest PDU that is assembled from pieces, in bytes, including SDU protection.
const PDU_BYTES_MAX: usize = 66_000;
