//! Fuzz entry point: a whole IPCP, a member of a native DIF.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use carina_ipcp::api::{Command, Event, FlowKey, N1Port, N1Properties, RibOp};
use carina_ipcp::config::{Config, DifConfig, PolicySpec};
use carina_ipcp::security::{AuthStep, Authenticator, PolicyRow, SduProtection, Toolbox};
use carina_ipcp::{Catalogue, Cause, Dialects, Ipcp};
use carina_time::{Duration, Instant};
use carina_wire::dif::{
    Address, CepId, Dialect, NEIGHBOUR_CHECK_BYTES, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax,
    append_neighbour_check,
};
use carina_wire::{Bytes, FlowSpec, Payload};

/// Feeds a member of a DIF with the steps of a script: raw PDUs, PDUs with a valid header around
/// the given bytes, SDUs, commands, passing time. Whatever the script, the member must not panic,
/// must become idle, and must still allocate a flow between two of its own applications.
///
/// A script is a list of steps: operation (1 byte), argument (1 byte), length (2 bytes, network
/// byte order), then that many bytes.
pub fn ipcp(script: &[u8]) {
    let Some(mut member) = member() else { return };
    let mut now = Instant::from_secs(1);
    let mut rest = script;
    let mut steps = 0;
    while let Some((&[op, arg, high, low], after)) = rest.split_first_chunk() {
        let count = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (bytes, after) = after.split_at(count);
        rest = after;
        steps += 1;
        if steps > STEPS_MAX {
            break;
        }
        step(&mut member, &mut now, op, arg, bytes);
        drain(&mut member, now);
    }
    for _ in 0..TIMEOUTS {
        let Some(due) = member.poll_timeout() else {
            break;
        };
        now = now.max(due);
        member.handle_timeout(now);
        drain(&mut member, now);
    }
    works_still(&mut member, now);
}

const NATIVE: Dialects = Dialects::new(&[crate::DIALECT]);
const SECOND: Duration = Duration::from_secs(1);
const STEPS_MAX: usize = 400;
const TIMEOUTS: usize = 200;
/// Bound of the PDUs, SDUs and events in one turn; a member that produces more never becomes idle.
const TURN_MAX: usize = 100_000;

/// The only member of a DIF, with two N-1 flows and one application.
fn member() -> Option<Ipcp<Bytes>> {
    let config = Config {
        name: "fuzzed".into(),
        dif: "fuzz.DIF".into(),
        dialect: Dialect::Native,
        dif_config: Some(DifConfig {
            max_pdu: 1400,
            ..DifConfig::default()
        }),
    };
    let mut member = Ipcp::new(NATIVE, config, Box::new(Open), Catalogue::standard(), 1).ok()?;
    member.handle(Instant::from_nanos(1), Command::Bootstrap);
    member.handle(
        Instant::from_nanos(1),
        Command::Register {
            name: "echo".into(),
        },
    );
    for n1 in [0, 1] {
        member.handle(Instant::from_nanos(1), up(n1, n1 == 1));
    }
    drain(&mut member, Instant::from_nanos(1));
    Some(member)
}

fn up(n1: u32, is_initiator: bool) -> Command {
    Command::N1Up {
        n1: N1Port(n1),
        props: N1Properties {
            dif: "medium".into(),
            remote: "peer".into(),
            sdu_max: 1500,
            is_reliable: false,
            is_exposed: false,
            is_initiator,
            cost: 1,
        },
    }
}

fn step(member: &mut Ipcp<Bytes>, now: &mut Instant, op: u8, arg: u8, bytes: &[u8]) {
    let n1 = N1Port(u32::from(arg & 1));
    let flow = FlowKey(u32::from(arg % 4));
    let text = || String::from_utf8_lossy(bytes).into_owned();
    match op % 12 {
        0 => member.on_pdu(*now, n1, Bytes::from(bytes.to_vec())),
        1 => give(member, *now, n1, PduType::Management, 0, arg, bytes),
        2 => give(member, *now, n1, PduType::Management, 9, arg, bytes),
        3 => give(member, *now, n1, PduType::Data, 9, arg, bytes),
        4 => member.on_sdu(*now, flow, Bytes::from(bytes.to_vec()), arg & 16 != 0),
        5 => *now += SECOND * u64::from(arg) / 16,
        6 => {
            member.handle(*now, Command::N1Down { n1, reason: text() });
            member.handle(*now, up(n1.0, arg & 2 != 0));
        }
        7 => {
            let _ = member.allocate(*now, "fuzz", "echo", FlowSpec::default());
        }
        8 => member.handle(
            *now,
            Command::Respond {
                flow,
                answer: Ok(()),
            },
        ),
        9 => member.handle(
            *now,
            Command::Deallocate {
                flow,
                reason: text(),
            },
        ),
        10 => member.set_delivery_room(*now, flow, usize::from(arg) * 64),
        _ => member.handle(
            *now,
            Command::Rib {
                id: u64::from(arg),
                member: None,
                op: RibOp::Read {
                    path: text(),
                    scope: u32::from(arg % 4),
                    filter: if arg > 7 { text() } else { String::new() },
                },
            },
        ),
    }
    if member.poll_timeout().is_some_and(|due| due <= *now) {
        member.handle_timeout(*now);
    }
}

/// Passes a PDU with a valid header to the member.
fn give(
    member: &mut Ipcp<Bytes>,
    now: Instant,
    n1: N1Port,
    kind: PduType,
    hop_limit: u8,
    arg: u8,
    payload: &[u8],
) {
    let own = member.address().unwrap_or_default();
    let dst = match arg >> 6 {
        _ if hop_limit == 0 => Address::NONE,
        0 => own,
        1 => Address::NONE,
        other => Address(u64::from(other)),
    };
    let is_data = kind == PduType::Data;
    let pci = Pci {
        kind,
        dst,
        src: Address(u64::from(arg >> 4 & 3)),
        qos: QosId(u16::from(arg % 7)),
        dst_cep: CepId(if is_data { u32::from(arg & 7) } else { 0 }),
        src_cep: CepId(if is_data { u32::from(arg >> 3 & 7) } else { 0 }),
        drf: arg & 32 != 0,
        ecn: false,
        seq: if is_data { u64::from(arg) } else { 0 },
    };
    let mut header = [0; PCI_BYTES_MAX];
    // Damaged PDUs end at the checksum; with a valid one, the payload is what a peer could send.
    let is_checked = kind == PduType::Management && hop_limit == 0;
    let check = if is_checked { NEIGHBOUR_CHECK_BYTES } else { 0 };
    let user_bytes = payload.len() + check;
    let encoded = Syntax::default().encode(&pci, None, user_bytes, hop_limit, &mut header);
    if let Ok(len) = encoded {
        let mut pdu = [&header[..len], payload].concat();
        if is_checked {
            append_neighbour_check(&mut pdu);
        }
        member.on_pdu(now, n1, Bytes::from(pdu));
    }
}

/// Takes all output of the member; the PDUs that it sends are dropped.
fn drain(member: &mut Ipcp<Bytes>, now: Instant) {
    member.end_of_burst(now);
    let mut count = 0;
    let mut turn = || {
        count += 1;
        assert!(count < TURN_MAX, "it never comes to rest");
    };
    while let Some(n1) = member.poll_n1() {
        turn();
        let len = member.peek_transmit(n1);
        let pdu = member.take_transmit(now, n1);
        assert_eq!(len, pdu.map(|pdu| pdu.len()));
    }
    while member.poll_deliver().is_some() {
        turn();
    }
    while member.poll_room().is_some() {
        turn();
    }
    while let Some(event) = member.poll_event() {
        turn();
        if let Event::Incoming { flow, .. } = event {
            let answer = Ok(());
            member.handle(now, Command::Respond { flow, answer });
        }
    }
    member.release_burst();
}

/// Checks that two applications of the member can communicate, unless the script made it leave.
fn works_still(member: &mut Ipcp<Bytes>, now: Instant) {
    if member.address().is_none() {
        return;
    }
    member.handle(
        now,
        Command::Register {
            name: "last".into(),
        },
    );
    let key = match member.allocate(now, "first", "last", FlowSpec::default()) {
        Ok(key) => key,
        Err(error) => panic!("a flow within the member cannot be had: {error}"),
    };
    let mut is_delivered = false;
    for _ in 0..8 {
        member.end_of_burst(now);
        while let Some(event) = member.poll_event() {
            match event {
                Event::Incoming { flow, .. } => {
                    let answer = Ok(());
                    member.handle(now, Command::Respond { flow, answer });
                }
                Event::Allocated { flow, result } if flow == key && result.is_ok() => {
                    member.on_sdu(now, key, Bytes::from(vec![42; 3000]), false);
                }
                _ => {}
            }
        }
        while let Some(delivery) = member.poll_deliver() {
            is_delivered |= delivery.sdu.as_slice().contains(&42);
        }
    }
    assert!(is_delivered, "a flow within the member does not work");
}

/// A toolbox with neither authentication nor protection.
pub struct Open;

struct Agreed;

impl Authenticator for Agreed {
    fn step(&mut self, _now: Instant, _message: Option<&[u8]>) -> AuthStep {
        AuthStep::Done {
            last: None,
            secret: None,
            identity: String::new(),
        }
    }
}

impl Toolbox for Open {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause> {
        Ok(Box::new(Agreed))
    }

    fn sdu_protection(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn SduProtection>>, Cause> {
        Ok(None)
    }

    fn list(&self) -> Vec<PolicyRow> {
        vec![
            ("authentication", "none", "", vec![]),
            ("sdu-protection", "none", "", vec![]),
        ]
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn scripts_of_all_steps() {
        super::ipcp(&[]);
        let mut state = 1u64;
        for round in 0..60u8 {
            let mut script = Vec::new();
            for step in 0..80u8 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let random = state.to_le_bytes();
                script.extend([random[7].wrapping_add(step), random[6], 0, random[5] % 9]);
                script.extend(random.iter().cycle().take(usize::from(random[5] % 9)));
                script.push(round);
            }
            super::ipcp(&script);
        }
    }

    extern crate std;
    use std::vec::Vec;
}
