//! Fuzz entry point: a member of an rlite DIF. Scripts contain what the other end of its N-1 flow
//! sends, in the format of `script`.

use alloc::vec::Vec;

use carina_ipcp::api::N1Properties;
use carina_ipcp::config::{Config, DifConfig};
use carina_wire::dif::{Address, Dialect};

use super::script::{Fuzzed, Peer, run};
use crate::rlite::{ADDRESS_OF_NEW, a_data};

/// Default address of the other side.
const OTHER: u64 = 3;

/// Bytes of the PCI of a management PDU.
const PCI_BYTES: usize = 28;

const TYPE_MANAGEMENT: u8 = 0x40;
const TTL: u8 = 64;

/// Plays a script of the fuzzer against a member. Whatever the script contains, the member must not
/// panic, must become idle, and must still connect its own applications.
pub fn rlite(script: &[u8]) {
    let _ = reads_rlite(script);
}

/// Whether the other side has become a neighbour in the script.
pub fn reads_rlite(script: &[u8]) -> bool {
    run::<Other>(script)
}

/// The other end of the N-1 flow.
struct Other;

impl Peer for Other {
    fn of_side(is_admitting: bool) -> (Fuzzed, Other) {
        let (own, remote) = if is_admitting {
            ("ynorm.IPCP", "xnorm.IPCP")
        } else {
            ("xnorm.IPCP", "ynorm.IPCP")
        };
        let fuzzed = Fuzzed {
            config: Config {
                name: own.into(),
                dif: "n.DIF".into(),
                dialect: Dialect::Rlite,
                dif_config: Some(DifConfig::of_dialect(Dialect::Rlite)),
            },
            seed: 1,
            has_application: true,
            props: N1Properties {
                dif: "udp.DIF".into(),
                remote: remote.into(),
                sdu_max: 1_452,
                is_reliable: false,
                is_exposed: false,
                is_initiator: !is_admitting,
                cost: 1,
            },
        };
        (fuzzed, Other)
    }

    fn to_neighbour(&self, message: &[u8]) -> Vec<u8> {
        management(0, message)
    }

    fn to_member(&self, own: Option<Address>, message: &[u8]) -> Vec<u8> {
        let own = own.map_or(ADDRESS_OF_NEW, |own| own.0);
        management(own, &a_data(OTHER, own, message.to_vec()))
    }
}

/// A management PDU from [`OTHER`].
fn management(destination: u64, message: &[u8]) -> Vec<u8> {
    let mut pdu = Vec::with_capacity(PCI_BYTES + message.len());
    pdu.extend([0, TYPE_MANAGEMENT, 0, 0, 0, 0, TTL, 0, 0, 0, 0, 0]);
    pdu.extend((destination as u32).to_le_bytes());
    pdu.extend((OTHER as u32).to_le_bytes());
    pdu.extend([0; 4]);
    let length = u16::try_from(PCI_BYTES + message.len()).unwrap_or(u16::MAX);
    pdu.extend(length.to_le_bytes());
    pdu.extend([0; 2]);
    pdu.extend(message);
    pdu
}
