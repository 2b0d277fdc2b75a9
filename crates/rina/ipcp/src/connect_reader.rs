//! Reads M_CONNECT in the first PDU of an N-1 flow, for a shim whose medium has no message of its
//! own that begins a flow.
//!
//! A station of another stack that has once resolved a name never sends RINA ARP again: after a
//! restart of this side its first frame is M_CONNECT, and only that says which IPCP calls which.

use alloc::vec::Vec;

use carina_wire::Payload;
use carina_wire::dif::{Address, Dialect, PduType, Syntax, Widths};

use crate::config::{DifConfig, component};
use crate::dialects;
use crate::layer::{ConnectNames, ReadNames};

/// Bytes at the front of a PDU that are looked at before the rest: enough for a PCI of any widths.
const PREFIX: usize = 64;

/// Knows the M_CONNECT of one DIF from every other PDU.
#[derive(Clone, Debug)]
pub struct ConnectReader {
    syntax: Syntax,
    has_checksum: bool,
    names: ReadNames,
}

impl ConnectReader {
    /// The reader of a DIF. Without a configuration the DIF has the format that is usual in its
    /// dialect. `None` where a member always has a message of its own before the first PDU.
    #[must_use]
    pub fn new(dialect: Dialect, config: Option<&DifConfig>) -> Option<ConnectReader> {
        let names = dialects::connect_names(dialect)?;
        let widths = match config {
            Some(config) => Widths::from(config.widths),
            None => dialect.widths(),
        };
        let policies = config.map(|config| &config.policies);
        let checksum = policies.and_then(|policies| policies.get(component::PCI_CHECKSUM));
        Some(ConnectReader {
            syntax: Syntax { dialect, widths },
            has_checksum: checksum.is_some_and(|spec| !matches!(&*spec.name, "" | "none")),
            names,
        })
    }

    /// The names in a PDU that is M_CONNECT. Anyone may have written it.
    #[must_use]
    pub fn read(&self, pdu: &impl Payload) -> Option<ConnectNames> {
        let mut prefix = [0; PREFIX];
        let count = pdu.copy_prefix(&mut prefix);
        let header = self.syntax.decode(&prefix[..count], pdu.len()).ok()?;
        if header.pci.kind != PduType::Management || header.pci.dst != Address::NONE {
            return None;
        }
        let mut bytes = Vec::with_capacity(pdu.len());
        pdu.append_to(&mut bytes);
        // A network card may have padded the frame.
        bytes.truncate(header.pdu_bytes);
        if self.has_checksum && !self.syntax.has_valid_checksum(&bytes) {
            return None;
        }
        (self.names)(bytes.get(header.header_bytes..)?)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use carina_cdap::{Message, Opcode, Party, Rules};
    use carina_wire::Bytes;
    use carina_wire::dif::{CepId, PCI_BYTES_MAX, Pci, QosId};

    use super::*;
    use crate::config::PolicySpec;

    fn party(ap: &str, api: &str, ae: &str) -> Party {
        let [ap, api, ae] = [ap, api, ae].map(String::from);
        Party {
            ap,
            api,
            ae,
            ..Party::default()
        }
    }

    fn connect(rules: &Rules, src: Party, dst: Party) -> Message {
        let mut message = Message::connect(src, dst);
        message.invoke_id = 2;
        (message.abstract_syntax, message.version) = (rules.abstract_syntax, rules.version);
        message
    }

    /// A management PDU to `dst` with `payload`, and some padding.
    fn pdu(syntax: Syntax, dst: u64, payload: &[u8]) -> Vec<u8> {
        let pci = Pci {
            kind: PduType::Management,
            dst: Address(dst),
            src: Address(1),
            qos: QosId(0),
            dst_cep: CepId(0),
            src_cep: CepId(0),
            drf: false,
            ecn: false,
            seq: 0,
        };
        let mut out = [0; PCI_BYTES_MAX];
        let count = syntax.encode(&pci, None, payload.len(), 64, &mut out);
        let mut pdu = out[..count.unwrap()].to_vec();
        pdu.extend_from_slice(payload);
        pdu
    }

    fn read(reader: &ConnectReader, bytes: &[u8]) -> Option<(String, String)> {
        let padded = [bytes, &[0; 20]].concat();
        let names = reader.read(&Bytes::from_vec(padded).unwrap())?;
        Some((names.calling, names.called))
    }

    fn names(calling: &str, called: &str) -> Option<(String, String)> {
        Some((calling.into(), called.into()))
    }

    #[test]
    fn names_are_read_from_connect_of_either_stack() {
        let rlite = ConnectReader::new(Dialect::Rlite, None).unwrap();
        let syntax = Syntax::of_dialect(Dialect::Rlite);
        let (b, a) = (party("b.IPCP", "", ""), party("a.IPCP", "", ""));
        let message = Rules::RLITE.encode(&connect(&Rules::RLITE, b, a));
        assert_eq!(
            read(&rlite, &pdu(syntax, 0, &message)),
            names("b.IPCP", "a.IPCP")
        );

        let irati = ConnectReader::new(Dialect::Irati, None).unwrap();
        let syntax = Syntax::of_dialect(Dialect::Irati);
        let (b, a) = (party("b", "1", "Management"), party("a", "1", "Management"));
        let message = Rules::IRATI.encode(&connect(&Rules::IRATI, b, a));
        assert_eq!(read(&irati, &pdu(syntax, 0, &message)), names("b|1", "a|1"));

        assert!(ConnectReader::new(Dialect::Native, None).is_none());
    }

    #[test]
    fn everything_but_connect_to_a_neighbour_has_no_names() {
        let reader = ConnectReader::new(Dialect::Rlite, None).unwrap();
        let syntax = Syntax::of_dialect(Dialect::Rlite);
        let (b, a) = (party("b", "", ""), party("a", "", ""));
        let connect = Rules::RLITE.encode(&connect(&Rules::RLITE, b, a));
        let keepalive = Message::object(Opcode::Read, "keepalive", "/mgmt/keepalive");
        let keepalive = Rules::RLITE.encode(&keepalive);
        let whole = pdu(syntax, 0, &connect);
        for other in [
            pdu(syntax, 0, &keepalive),
            pdu(syntax, 7, &connect),
            pdu(syntax, 0, &connect[..connect.len() - 30]),
            whole[..20].to_vec(),
            Vec::new(),
        ] {
            assert_eq!(reader.read(&Bytes::from_vec(other).unwrap()), None);
        }
        assert_eq!(read(&reader, &whole), names("b", "a"));
    }

    #[test]
    fn format_is_that_of_the_configuration() {
        let mut config = DifConfig::of_dialect(Dialect::Rlite);
        config.widths.address = 1;
        config.widths.seq = 2;
        let inet = PolicySpec {
            name: "inet".into(),
            ..PolicySpec::default()
        };
        config.policies.insert(component::PCI_CHECKSUM.into(), inet);
        let reader = ConnectReader::new(Dialect::Rlite, Some(&config)).unwrap();
        let syntax = Syntax {
            dialect: Dialect::Rlite,
            widths: Widths::from(config.widths),
        };
        let (b, a) = (party("b", "", ""), party("a", "", ""));
        let message = Rules::RLITE.encode(&connect(&Rules::RLITE, b, a));
        let mut good = pdu(syntax, 0, &message);
        assert_eq!(read(&reader, &good), None, "its checksum is wrong");
        syntax.write_checksum(&mut good);
        assert_eq!(read(&reader, &good), names("b", "a"));
        let usual = pdu(Syntax::of_dialect(Dialect::Rlite), 0, &message);
        assert_eq!(read(&reader, &usual), None, "its widths are others");
    }
}
