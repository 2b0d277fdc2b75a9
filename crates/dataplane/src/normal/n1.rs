//! The side of a normal IPCP toward its N-1 flows.
//!
//! ```text
//!   Attach ---> attached --N1Up order--> measuring --piece_max known--> up
//!                  |                         |                          |
//!                  +------- link closed by its hub, or a drop ----------+--> gone
//! ```

use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links, Packet, record_cost};
use carina_ipcp::{Command, N1Port, N1Properties};
use carina_wire::Payload;

use super::{N1Wires, Normal};
use crate::command::Event;

/// An N-1 flow.
pub(super) struct N1Line {
    wires: N1Wires,
    /// Known, and waiting for the longest PDU to be.
    props: Option<N1Properties>,
    /// Orders that must not overtake its coming up.
    deferred: Vec<Command>,
    /// PDUs that came before this side knew that the flow is allocated. What the other side says
    /// first is not said again for seconds in some dialects.
    early: Vec<Packet>,
    is_up: bool,
    /// Ring bytes taken off the input.
    taken: u64,
    /// A PDU that comes in pieces, as far as it is there.
    assembly: Vec<u8>,
    /// The PDU under way is longer than any may be: the rest of it is skipped.
    is_skipping: bool,
}

impl Normal {
    fn n1_mut(&mut self, n1: N1Port) -> Option<&mut N1Line> {
        self.n1s.get_mut(n1.0 as usize)?.as_mut()
    }

    /// True when `link` is where the PDUs of this N-1 flow arrive.
    pub(super) fn has_input(&self, n1: N1Port, link: LinkId) -> bool {
        let line = self.n1s.get(n1.0 as usize).and_then(Option::as_ref);
        line.is_some_and(|line| line.wires.input == link)
    }

    pub(super) fn attach(&mut self, n1: N1Port, wires: N1Wires) {
        let index = n1.0 as usize;
        if self.n1s.len() <= index {
            self.n1s.resize_with(index + 1, || None);
        }
        self.n1s[index] = Some(N1Line {
            wires,
            props: None,
            deferred: Vec::new(),
            early: Vec::new(),
            is_up: false,
            taken: 0,
            assembly: Vec::new(),
            is_skipping: false,
        });
    }

    /// The N-1 flow is allocated. It comes up as soon as its DIF says what it carries.
    pub(super) fn n1_up(&mut self, n1: N1Port, props: N1Properties) {
        if let Some(line) = self.n1_mut(n1) {
            line.props = Some(props);
            self.unmeasured.push(n1);
        }
    }

    /// Passes an order that concerns an N-1 flow, not before the flow is up.
    pub(super) fn handle_on(&mut self, n1: N1Port, order: Command) {
        match self.n1_mut(n1) {
            Some(line) if !line.is_up => line.deferred.push(order),
            _ => self.member.handle(self.now, order),
        }
    }

    /// Brings up N-1 flows whose DIF has said by now what they carry.
    pub(super) fn measure(&mut self, links: &Links) {
        for n1 in std::mem::take(&mut self.unmeasured) {
            let Some(line) = self.n1_mut(n1) else {
                continue;
            };
            let piece_max = links.piece_max(line.wires.output);
            if piece_max == 0 {
                self.unmeasured.push(n1);
                continue;
            }
            let Some(mut props) = line.props.take() else {
                continue;
            };
            line.is_up = true;
            let deferred = std::mem::take(&mut line.deferred);
            let early = std::mem::take(&mut line.early);
            props.sdu_max = match props.sdu_max {
                0 => piece_max,
                known => known.min(piece_max),
            };
            let up = Command::N1Up { n1, props };
            for order in std::iter::once(up).chain(deferred) {
                self.member.handle(self.now, order);
            }
            for pdu in early {
                self.member.on_pdu(self.now, n1, pdu);
            }
        }
    }

    /// Takes everything off the input of an N-1 flow. True when there was something.
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
        if moved && let Some(line) = self.n1_mut(n1) {
            line.taken += taken;
            links.report(link, line.taken);
        }
        if let Some(close) = links.closed(link).cloned() {
            self.n1_ended(n1, close, links);
        }
        moved
    }

    fn receive(&mut self, n1: N1Port, packet: Packet) {
        let now = self.now;
        let Some(line) = self.n1s.get_mut(n1.0 as usize).and_then(Option::as_mut) else {
            return self.row.add(Value::DropFlowEnded, 1);
        };
        if !line.is_up {
            // Its allocation is not confirmed here yet. The memory of the packet may not outlive
            // this breath.
            let mut copy = Vec::with_capacity(packet.len());
            Packet::append_to(&packet, &mut copy);
            let is_whole = !packet.more() && line.early.len() < EARLY_MAX;
            match Packet::from_vec(copy).filter(|_| is_whole) {
                Some(copy) => line.early.push(copy),
                None => self.row.add(Value::DropLinkDown, 1),
            }
            return;
        }
        if !packet.more() && line.assembly.is_empty() && !line.is_skipping {
            return self.member.on_pdu(now, n1, packet);
        }
        // PDUs fit one piece of the N-1 flow, so this is another's doing, and rare.
        if line.assembly.len() + packet.len() > PDU_BYTES_MAX {
            line.is_skipping = true;
            line.assembly.clear();
        }
        if !line.is_skipping {
            Packet::append_to(&packet, &mut line.assembly);
        }
        if packet.more() {
            return;
        }
        let whole = std::mem::take(&mut line.assembly);
        if std::mem::take(&mut line.is_skipping) {
            return self.row.add(Value::DropTooLong, 1);
        }
        match Packet::from_vec(whole) {
            Some(packet) => self.member.on_pdu(now, n1, packet),
            None => self.row.add(Value::DropNoBuffer, 1),
        }
    }

    /// Moves PDUs to the N-1 flows as far as those take them. True when there were some.
    pub(super) fn transmit(&mut self, links: &mut Links) -> bool {
        let mut moved = false;
        while let Some(n1) = self.member.poll_n1() {
            let output = self
                .n1s
                .get(n1.0 as usize)
                .and_then(Option::as_ref)
                .map(|line| line.wires.output);
            while let Some(len) = self.member.peek_transmit(n1) {
                let Some(output) = output.filter(|output| links.may_push(*output, len)) else {
                    self.member.block_n1(n1);
                    self.blocked.push(n1);
                    break;
                };
                let Some(pdu) = self.member.take_transmit(self.now, n1) else {
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

    /// The N-1 flow has ended below.
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
        let Some(line) = self.n1s.get_mut(n1.0 as usize).and_then(Option::take) else {
            return;
        };
        let reason = match close.reason() {
            "" => "the flow was closed".to_owned(),
            reason => reason.to_owned(),
        };
        links.close(line.wires.output, output);
        let lost = links.disconnect(line.wires.input);
        let lost = lost + line.early.len();
        self.row.add(Value::DropFlowEnded, lost as u64);
        if line.is_up {
            let reason = reason.clone();
            self.member.handle(self.now, Command::N1Down { n1, reason });
        }
        // A refused request is told by the shim that refused it.
        if !is_refused && !line.wires.is_silent {
            let port = line.wires.port;
            self.directory.borrow_mut().remove(&port);
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

/// PDUs of an N-1 flow that wait for it to come up.
const EARLY_MAX: usize = 64;

/// Longest PDU in bytes that is put together from pieces, protection included.
const PDU_BYTES_MAX: usize = 66_000;
