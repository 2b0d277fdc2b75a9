//! Fuzz entry point: a member of an irati DIF. Scripts contain what the other end of its N-1 flow
//! sends, in the format of `script`.

use alloc::string::String;
use alloc::vec::Vec;

use carina_ipcp::api::N1Properties;
use carina_ipcp::config::{Config, DifConfig, PolicySpec};
use carina_ipcp::policy::component;
use carina_wire::dif::{Address, Dialect};

use super::script::{Fuzzed, Peer, run};
use crate::irati::{KNOWN_ADDRESSES, a_data};

/// Bytes of the PCI of a management PDU.
const PCI_BYTES: usize = 19;
/// With this seed, the member's first token is the one in the captures from which the corpus is
/// made.
const SEED: u64 = 0xb622_4354_2164_ce84;

/// Plays a script of the fuzzer against a member. Whatever the script contains, the member must not
/// panic, must become idle, and must still connect its own applications.
pub fn irati(script: &[u8]) {
    let _ = reads_irati(script);
}

/// Whether the other side has become a neighbour in the script.
pub fn reads_irati(script: &[u8]) -> bool {
    run::<Other>(script)
}

/// The other end of the N-1 flow, with its own address and the member's.
struct Other {
    own: u64,
    member: u64,
}

impl Peer for Other {
    fn of_side(is_admitting: bool) -> (Fuzzed, Other) {
        let admitting = ("test1.normal.DIF", 16);
        let joining = ("test2.normal.DIF", 17);
        let (member, other) = if is_admitting {
            (admitting, joining)
        } else {
            (joining, admitting)
        };
        let mut config = DifConfig::of_dialect(Dialect::Irati);
        let table = "test1.normal.DIF=16, test2.normal.DIF=17";
        let addresses = PolicySpec {
            name: KNOWN_ADDRESSES.into(),
            params: [(String::from("addresses"), String::from(table))].into(),
        };
        let place = component::ADDRESS_ASSIGNMENT.into();
        config.policies.insert(place, addresses);
        let fuzzed = Fuzzed {
            config: Config {
                name: member.0.into(),
                dif: "normal.DIF".into(),
                dialect: Dialect::Irati,
                dif_config: Some(config),
            },
            seed: SEED,
            has_application: is_admitting,
            props: N1Properties {
                dif: "eth.DIF".into(),
                remote: other.0.into(),
                sdu_max: 1_500,
                is_reliable: false,
                is_exposed: false,
                is_initiator: !is_admitting,
                cost: 1,
            },
        };
        let (own, member) = (other.1, member.1);
        (fuzzed, Other { own, member })
    }

    fn to_neighbour(&self, message: &[u8]) -> Vec<u8> {
        management(self.own, message)
    }

    fn to_member(&self, _own: Option<Address>, message: &[u8]) -> Vec<u8> {
        management(self.own, &a_data(self.own, self.member, message.to_vec()))
    }
}

/// A management PDU between neighbours.
fn management(src: u64, message: &[u8]) -> Vec<u8> {
    let mut pdu = Vec::with_capacity(PCI_BYTES + message.len());
    pdu.extend([1, 0, 0]);
    pdu.extend((src as u16).to_le_bytes());
    pdu.extend([1, 0, 0, 0, 0, 0, 0x40, 0]);
    let length = u16::try_from(PCI_BYTES + message.len()).unwrap_or(u16::MAX);
    pdu.extend(length.to_le_bytes());
    pdu.extend([0; 4]);
    pdu.extend(message);
    pdu
}
