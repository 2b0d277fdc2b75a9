//! What comes through an N-1 flow or an Ethernet: PCI, CDAP, RINA ARP, frames; files of captures.

use carina_cdap::{Connection, Limits, Message, Rules};
use carina_dialects::DIALECTS;
use carina_ipcp::{ConnectReader, DifConfig, PolicySpec};
use carina_wire::Bytes;
use carina_wire::arp::{self, Arp, Name};
use carina_wire::dif::{Control, Dialect, PCI_BYTES_MAX, PduType, Syntax, Widths};
use carina_wire::ether::{HEADER_BYTES_MAX, Header, TPID_CUSTOMER, TPID_PRISTINE, TPID_PROVIDER};
use carina_wire::pcapng::{Item, Reader};

/// PCI: see [`reads_pci`].
pub fn pci(data: &[u8]) {
    reads_pci(data);
}

/// True for a PDU of a normal DIF of some dialect; the first byte chooses the widths, the rest is
/// the PDU. What decodes lies inside the PDU, a relay sees the same, and it encodes to what decodes
/// to the same: in the native layout to the same bytes.
pub fn reads_pci(data: &[u8]) -> bool {
    let Some((choice, pdu)) = data.split_first() else {
        return false;
    };
    let mut is_read = false;
    for dialect in Dialect::ALL {
        let widths = pci_widths(dialect, *choice);
        let syntax = Syntax { dialect, widths };
        assert_eq!(syntax.check(), Ok(()));
        is_read |= reads_pci_of(syntax, pdu);
    }
    is_read
}

fn pci_widths(dialect: Dialect, choice: u8) -> Widths {
    let pick = |bit: u8, a: u8, b: u8| if choice & (1 << bit) == 0 { a } else { b };
    let native = Widths {
        address: pick(0, 2, 4),
        cep: pick(1, 2, 1),
        qos: pick(2, 1, 2),
        seq: pick(3, 4, 8),
        ctrl_seq: pick(4, 4, 2),
        length: pick(5, 2, 4),
        rate: pick(6, 4, 1),
        frame: pick(7, 4, 2),
    };
    let seq = match dialect {
        Dialect::Rlite => native.seq,
        Dialect::Irati => pick(3, 4, 2),
        _ => return native,
    };
    Widths {
        seq,
        ctrl_seq: seq,
        // The widest are rlite's alone.
        cep: if dialect == Dialect::Rlite {
            pick(1, 2, 8)
        } else {
            native.cep
        },
        ..native
    }
}

fn reads_pci_of(syntax: Syntax, pdu: &[u8]) -> bool {
    let Ok(header) = syntax.decode(pdu, pdu.len()) else {
        return false;
    };
    assert!(header.header_bytes <= header.pdu_bytes && header.pdu_bytes <= pdu.len());
    let route = syntax.peek(pdu).expect("what decodes can be relayed");
    assert_eq!(
        (route.dst, route.pdu_bytes),
        (header.pci.dst, header.pdu_bytes)
    );

    let mut control = None;
    if matches!(header.pci.kind, PduType::Control | PduType::Rendezvous) {
        match syntax.decode_control(pdu, &header) {
            Ok(decoded) => control = Some(decoded),
            Err(_) => return false,
        }
    }
    let user = match control {
        Some(_) => 0,
        None => header.pdu_bytes - header.header_bytes,
    };
    let mut out = [0; PCI_BYTES_MAX];
    let length = syntax
        .encode(
            &header.pci,
            control.as_ref(),
            user,
            header.hop_limit,
            &mut out,
        )
        .expect("what was decoded fits");
    if syntax.dialect == Dialect::Native {
        assert_eq!(out[..length], pdu[..length]);
    }
    let again = syntax.decode(&out[..length], length + user);
    let again = again.expect("what was encoded decodes");
    assert_eq!((again.pci, again.hop_limit), (header.pci, header.hop_limit));
    if let Some(decoded) = control {
        let again = syntax.decode_control(&out[..length], &again);
        let again = again.expect("what was encoded decodes");
        assert_eq!(again.ack, decoded.ack);
        let right = |control: &Control| control.window.map(|window| window.right);
        assert_eq!((again.seq, right(&again)), (decoded.seq, right(&decoded)));
    }
    syntax.mark(&mut out, 0, true);
    assert!(syntax.peek(&out).expect("it stays a PDU").ecn);
    if syntax.has_checksum() {
        let mut summed = pdu[..header.pdu_bytes].to_vec();
        syntax.write_checksum(&mut summed);
        assert!(syntax.has_valid_checksum(&summed));
        syntax.mark(&mut summed, 7, true);
        assert!(syntax.has_valid_checksum(&summed));
    }
    true
}

/// CDAP messages: see [`reads_cdap`].
pub fn cdap(data: &[u8]) {
    reads_cdap(data);
}

/// True for a message. What decodes encodes to something that decodes to the same, and no message
/// brings a connection's machine into disorder.
pub fn reads_cdap(data: &[u8]) -> bool {
    let Ok(message) = Message::decode(data) else {
        return false;
    };
    let encoded = message.encode();
    let again = Message::decode(&encoded).expect("what was encoded decodes");
    assert_eq!(again.encode(), encoded);

    let mut end = Connection::new(Rules::NATIVE, Limits::default());
    for now in 0..3 {
        if end.receive(now, &message).is_ok() && !message.opcode.is_response() {
            let _ = end.send_answer(now, &message.answer());
        }
    }
    end.handle_timeout(u64::MAX);
    assert_eq!(end.poll_timeout(), None);
    true
}

/// RINA ARP: see [`reads_arp`].
pub fn arp(data: &[u8]) {
    reads_arp(data);
}

/// True for RINA ARP. What decodes encodes to the same bytes, padding aside; names survive both
/// dialects.
pub fn reads_arp(data: &[u8]) -> bool {
    let Ok(message) = Arp::decode(data) else {
        return false;
    };
    let encoded = message.encode().expect("names that were decoded");
    assert_eq!(Arp::decode(&encoded), Ok(message));
    for dialect in [arp::Dialect::NATIVE, arp::Dialect::IRATI] {
        if let Ok(name) = Name::parse(message.target, &dialect)
            && let Ok(text) = name.to_text(&dialect)
        {
            assert_eq!(Name::parse(&text, &dialect), Ok(name));
        }
    }
    true
}

/// Ethernet headers: see [`reads_frame`].
pub fn frame(data: &[u8]) {
    reads_frame(data);
}

/// True for a frame, tagged or not. What decodes encodes to the same bytes.
pub fn reads_frame(data: &[u8]) -> bool {
    let tpids = [TPID_CUSTOMER, TPID_PROVIDER, TPID_PRISTINE];
    let Ok((header, length)) = Header::decode(data, &tpids) else {
        return false;
    };
    let mut out = [0; HEADER_BYTES_MAX];
    assert_eq!(header.encode(&mut out), length);
    assert_eq!(out[..length], data[..length]);
    true
}

/// Capture files: see [`reads_pcapng`].
pub fn pcapng(data: &[u8]) {
    reads_pcapng(data);
}

/// True for a capture file that ends with a block. In portions it says the same as at once.
pub fn reads_pcapng(data: &[u8]) -> bool {
    let count = |step: usize| {
        let (mut reader, mut packets) = (Reader::new(), 0);
        for portion in data.chunks(step) {
            reader.feed(portion);
            loop {
                match reader.poll() {
                    Ok(Some(Item::Packet(packet))) => {
                        assert!(packet.bytes.len() <= data.len());
                        packets += 1;
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((packets, reader.rest()))
    };
    let whole = count(data.len().max(1));
    assert_eq!(count(7), whole);
    whole.is_ok_and(|(packets, rest)| packets > 0 && rest == 0)
}

/// First PDUs of N-1 flows: see [`reads_connect`].
pub fn connect_reader(data: &[u8]) {
    reads_connect(data);
}

/// True for M_CONNECT as the first PDU of an N-1 flow. Of the first byte, bit 0 chooses rlite or
/// IRATI and bit 1 a checksum in the PCI; the rest is the PDU. Padding behind it changes nothing.
pub fn reads_connect(data: &[u8]) -> bool {
    let Some((choice, pdu)) = data.split_first() else {
        return false;
    };
    let dialect = match choice & 1 {
        0 => Dialect::Rlite,
        _ => Dialect::Irati,
    };
    let mut config = DifConfig::of_dialect(dialect);
    if choice & 2 != 0 {
        let spec = PolicySpec {
            name: "inet".to_owned(),
            ..PolicySpec::default()
        };
        config.policies.insert("pci-checksum".to_owned(), spec);
    }
    let reader =
        ConnectReader::new(DIALECTS, dialect, Some(&config)).expect("it has M_CONNECT first");
    let read = |bytes: &[u8]| reader.read(&Bytes::from(bytes.to_vec()));
    let Some(names) = read(pdu) else {
        return false;
    };
    let padded = [pdu, &[0; 20]].concat();
    let again = read(&padded).expect("a padded PDU is the same PDU");
    assert_eq!(
        (&again.calling, &again.called),
        (&names.calling, &names.called)
    );
    true
}
