//! The names of IPCPs are read from the M_CONNECT of each dialect whose first PDU may be one.

use carina_cdap::{Message, Opcode, Party, Rules};
use carina_dialects::DIALECTS;
use carina_ipcp::policy::component;
use carina_ipcp::{ConnectReader, DifConfig, PolicySpec};
use carina_wire::Bytes;
use carina_wire::dif::{
    Address, CepId, Dialect, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax, Widths,
};

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

/// A management PDU to `dst` with `payload`, followed by padding.
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
    let mut pdu = out[..count.expect("room for the PCI")].to_vec();
    pdu.extend_from_slice(payload);
    pdu
}

fn read(reader: &ConnectReader, bytes: &[u8]) -> Option<(String, String)> {
    let padded = [bytes, &[0; 20]].concat();
    let names = reader.read(&Bytes::from(padded))?;
    Some((names.calling, names.called))
}

fn names(calling: &str, called: &str) -> Option<(String, String)> {
    Some((calling.into(), called.into()))
}

#[test]
fn names_are_read_from_connect_of_either_stack() {
    let rlite = ConnectReader::new(DIALECTS, Dialect::Rlite, None).unwrap();
    let syntax = Syntax::of_dialect(Dialect::Rlite);
    let (b, a) = (party("b.IPCP", "", ""), party("a.IPCP", "", ""));
    let message = Rules::RLITE.encode(&connect(&Rules::RLITE, b, a));
    assert_eq!(
        read(&rlite, &pdu(syntax, 0, &message)),
        names("b.IPCP", "a.IPCP")
    );

    let irati = ConnectReader::new(DIALECTS, Dialect::Irati, None).unwrap();
    let syntax = Syntax::of_dialect(Dialect::Irati);
    let (b, a) = (party("b", "1", "Management"), party("a", "1", "Management"));
    let message = Rules::IRATI.encode(&connect(&Rules::IRATI, b, a));
    assert_eq!(read(&irati, &pdu(syntax, 0, &message)), names("b|1", "a|1"));

    assert!(ConnectReader::new(DIALECTS, Dialect::Native, None).is_none());
}

#[test]
fn everything_but_connect_to_a_neighbour_has_no_names() {
    let reader = ConnectReader::new(DIALECTS, Dialect::Rlite, None).unwrap();
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
        assert_eq!(reader.read(&Bytes::from(other)), None);
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
    let reader = ConnectReader::new(DIALECTS, Dialect::Rlite, Some(&config)).unwrap();
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
