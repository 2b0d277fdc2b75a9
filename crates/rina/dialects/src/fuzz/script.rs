//! Fuzzing of a whole member of a DIF of another stack's dialect. Scripts contain what the other
//! end of its N-1 flow sends.
//!
//! The first byte of a script selects the member's side: even if the member joins, odd if it
//! admits. Steps follow: operation (1 byte), length (2 bytes, network byte order), then that many
//! bytes.
//!
//! | operation | does |
//! |---|---|
//! | 0 | a PDU, whole |
//! | 1 | a CDAP message between neighbours |
//! | 2 | a CDAP message that the dialect carries in another, from member to member |
//! | 3 | time passes: as many 100 ms as there are bytes |
//! | 4 | orders, one for each byte |

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use carina_ipcp::api::{Command, Event, FlowKey, N1Port, N1Properties, Reason, RibOp};
use carina_ipcp::config::Config;
use carina_ipcp::{Catalogue, Ipcp};
use carina_management::fuzz::member::Open;
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;
use carina_wire::{Bytes, FlowSpec};

use crate::DIALECTS;

const STEPS_MAX: usize = 200;
/// Largest number of deadlines that are handled after the script.
const TIMEOUTS: usize = 64;
/// Bound of the events of one step, and of the PDUs that it sends.
const TURN_MAX: usize = 100_000;
const N1: N1Port = N1Port(1);
/// The application that the script requests flows to.
const APPLICATION: &str = "rpinst1";

/// The member that a script runs against.
pub(crate) struct Fuzzed {
    pub(crate) config: Config,
    pub(crate) seed: u64,
    /// The member has [`APPLICATION`] registered from the start.
    pub(crate) has_application: bool,
    /// Properties of its N-1 flow.
    pub(crate) props: N1Properties,
}

/// The other end of the N-1 flow, which encodes PDUs of a dialect.
pub(crate) trait Peer: Sized {
    /// The member on one side (`is_admitting`), and its peer.
    fn of_side(is_admitting: bool) -> (Fuzzed, Self);

    /// Encodes the PDU of a CDAP message between neighbours.
    fn to_neighbour(&self, message: &[u8]) -> Vec<u8>;

    /// Encodes the PDU of a CDAP message that is carried in another one. `own` is the member's
    /// address.
    fn to_member(&self, own: Option<Address>, message: &[u8]) -> Vec<u8>;
}

/// Runs a script. Whatever it contains, the member must not panic, must become idle, and must still
/// connect its own applications. Returns true when the other side has become a neighbour.
pub(crate) fn run<P: Peer>(script: &[u8]) -> bool {
    let Some((side, mut rest)) = script.split_first() else {
        return false;
    };
    let Some(mut script) = Script::<P>::new(side % 2 == 1) else {
        return false;
    };
    let mut steps = 0;
    while let Some((&[op, high, low], after)) = rest.split_first_chunk() {
        let count = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (bytes, after) = after.split_at(count);
        rest = after;
        steps += 1;
        if steps > STEPS_MAX {
            break;
        }
        script.step(op, bytes);
        script.drain();
    }
    for _ in 0..TIMEOUTS {
        let Some(due) = script.member.poll_timeout() else {
            break;
        };
        script.now = script.now.max(due);
        script.member.handle_timeout(script.now);
        script.drain();
    }
    script.works_still();
    script.was_neighbour
}

struct Script<P> {
    member: Ipcp<Bytes>,
    peer: P,
    now: Instant,
    was_neighbour: bool,
    offered: Vec<FlowKey>,
    opened: Vec<FlowKey>,
    allocated: Option<FlowKey>,
}

impl<P: Peer> Script<P> {
    fn new(is_admitting: bool) -> Option<Script<P>> {
        let (fuzzed, peer) = P::of_side(is_admitting);
        let toolbox = Box::new(Open);
        let member = Ipcp::new(
            DIALECTS,
            fuzzed.config,
            toolbox,
            Catalogue::empty(),
            fuzzed.seed,
        )
        .ok()?;
        let mut script = Script {
            member,
            peer,
            now: Instant::from_secs(1),
            was_neighbour: false,
            offered: Vec::new(),
            opened: Vec::new(),
            allocated: None,
        };
        if is_admitting {
            script.order(Command::Bootstrap);
        }
        if fuzzed.has_application {
            let name = APPLICATION.into();
            script.order(Command::Register { name });
        }
        let props = fuzzed.props;
        script.order(Command::N1Up { n1: N1, props });
        Some(script)
    }

    fn order(&mut self, command: Command) {
        self.member.handle(self.now, command);
        self.drain();
    }

    fn step(&mut self, op: u8, bytes: &[u8]) {
        match op % 5 {
            0 => self.receive(bytes.to_vec()),
            1 => self.receive(self.peer.to_neighbour(bytes)),
            2 => self.receive(self.peer.to_member(self.member.address(), bytes)),
            3 => {
                self.now += Duration::from_millis(100) * bytes.len() as u64;
                if self.member.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.member.handle_timeout(self.now);
                }
            }
            _ => {
                for byte in bytes.iter().take(8) {
                    self.command(*byte % 10);
                }
            }
        }
    }

    fn command(&mut self, which: u8) {
        let name = || String::from("other");
        match which {
            0 => self.open(FlowSpec::unreliable()),
            1 => self.open(FlowSpec::reliable()),
            2 => self.respond(Ok(())),
            3 => self.respond(Err("no".into())),
            4 => {
                if let Some(flow) = self.opened.pop() {
                    let reason = String::new();
                    self.order(Command::Deallocate { flow, reason });
                }
            }
            5 => self.order(Command::Rib {
                id: 1,
                member: None,
                op: RibOp::Read {
                    path: "/".into(),
                    scope: 9,
                    filter: String::new(),
                },
            }),
            6 => self.order(Command::Register { name: name() }),
            7 => self.order(Command::Unregister { name: name() }),
            8 => self.order(Command::Leave),
            _ => {
                let reason = name();
                self.order(Command::GiveUpN1 { n1: N1, reason });
            }
        }
        self.drain();
    }

    fn open(&mut self, spec: FlowSpec) {
        let key = self.member.allocate(self.now, "rpcli1", APPLICATION, spec);
        self.opened.extend(key);
    }

    fn respond(&mut self, answer: Result<(), Reason>) {
        if let Some(flow) = self.offered.pop() {
            self.order(Command::Respond { flow, answer });
        }
    }

    fn receive(&mut self, pdu: Vec<u8>) {
        self.member.on_pdu(self.now, N1, Bytes::from(pdu));
    }

    /// Takes all output of the member; the PDUs that it sends are dropped.
    fn drain(&mut self) {
        self.member.end_of_burst(self.now);
        let mut count = 0;
        let mut turn = || {
            count += 1;
            assert!(count < TURN_MAX, "it never comes to rest");
        };
        while let Some(n1) = self.member.poll_n1() {
            turn();
            let _ = self.member.take_transmit(self.now, n1);
        }
        while self.member.poll_deliver().is_some() {
            turn();
        }
        while self.member.poll_room().is_some() {
            turn();
        }
        while let Some(event) = self.member.poll_event() {
            turn();
            match event {
                Event::NeighbourUp { .. } => self.was_neighbour = true,
                Event::Incoming { flow, .. } => self.offered.push(flow),
                Event::Enrolled { address, .. } => assert_ne!(address.0, 0),
                Event::Allocated {
                    flow,
                    result: Ok(()),
                } => self.allocated = Some(flow),
                _ => {}
            }
        }
        self.member.release_burst();
    }

    /// Checks that two applications of the member can communicate, unless it has left.
    fn works_still(&mut self) {
        if self.member.address().is_none() {
            return;
        }
        let name = "last".into();
        self.order(Command::Register { name });
        self.offered.clear();
        let spec = FlowSpec::reliable();
        let key = match self.member.allocate(self.now, "first", "last", spec) {
            Ok(key) => key,
            Err(error) => panic!("a flow within the member cannot be had: {error}"),
        };
        self.drain();
        while !self.offered.is_empty() {
            self.respond(Ok(()));
        }
        assert_eq!(self.allocated, Some(key), "no flow within the member");
    }
}
