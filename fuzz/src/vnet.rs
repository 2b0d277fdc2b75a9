//! Documents of virtual networks, and parts of them for hosts.

use std::sync::{Arc, Mutex};

use carina_vnet::document::{Document, DocumentError, Form};
use carina_vnet::host_part::HostPart;
use carina_vnet_host::guest_wire::{self, GuestWire, Offer, Sent};
use carina_vnet_host::saved::Manifest;

/// Documents of virtual networks in any form.
pub fn vnet_document(data: &[u8]) {
    reads_vnet_document(data);
}

/// True when the bytes are a document of a virtual network: the form follows from the first byte
/// that is no space. What was read is the same after it was written in every form; any other text
/// gives an error with a line within it.
pub fn reads_vnet_document(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let form = match text.trim_start().as_bytes().first() {
        Some(b'<') => Form::Xml,
        Some(b'{') => Form::Json,
        _ => Form::Toml,
    };
    let lines = text.lines().count().max(1) + 1;
    match Document::read(text, form) {
        Ok(document) => {
            for form in Form::ALL {
                let written = document.write(form);
                let again = Document::read(&written, form);
                assert_eq!(again.as_ref(), Ok(&document), "{form}: {written}");
            }
            for name in document.node.keys() {
                assert!(document.resolved(name).is_some_and(|node| node.cpus > 0));
            }
            true
        }
        Err(DocumentError::Wrong(findings)) => {
            assert!(!findings.is_empty());
            let mut told = findings.iter().filter_map(|finding| finding.line);
            assert!(told.all(|line| (1..=lines).contains(&line)), "{text:?}");
            false
        }
        Err(DocumentError::Text { line, message }) => {
            assert!(line <= lines, "{line}: {message} in {text:?}");
            false
        }
        Err(DocumentError::TooLong(_)) => false,
    }
}

/// Parts of virtual networks, as a management node hands them to the agent of a host.
pub fn vnet_part(data: &[u8]) {
    reads_vnet_part(data);
}

/// True when the bytes are a part of a network. Each of its links then ends at interfaces of it,
/// and it is the same after it was written.
pub fn reads_vnet_part(data: &[u8]) -> bool {
    let Ok(part) = HostPart::read(data) else {
        return false;
    };
    for link in &part.links {
        for end in link.ends() {
            let interface = part.interface(end).expect("the part was checked");
            assert_eq!(interface.link, link.number);
        }
    }
    let again = HostPart::read(part.write().as_bytes());
    assert!(again.is_ok_and(|again| again == part));
    assert!(!part.absent().is_ready() || part.nodes.is_empty());
    true
}

/// What a directory with a saved network says of itself.
pub fn vnet_saved(data: &[u8]) {
    reads_vnet_saved(data);
}

/// True when the bytes are that. Each machine is then a node with hardware that is possible, and it
/// is the same after it was written; any other text gives an error that names the file.
pub fn reads_vnet_saved(data: &[u8]) -> bool {
    let path = std::path::Path::new("/saved/vnet.json");
    let manifest = match Manifest::read(data, path) {
        Ok(manifest) => manifest,
        Err(error) => {
            assert!(error.to_string().contains("/saved/vnet.json"), "{error}");
            return false;
        }
    };
    for (name, saved) in &manifest.machines {
        assert!(manifest.document.node.contains_key(name));
        saved.hardware.check().expect("the manifest was checked");
    }
    let again = Manifest::read(&manifest.write(), path);
    assert!(again.is_ok_and(|again| again == manifest));
    true
}

/// A guest on its way from another agent.
pub fn vnet_guest(data: &[u8]) {
    reads_vnet_guest(data);
}

/// What is said to another agent.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no thread panics with it").clone()
    }
}

impl std::io::Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut heard = self.0.lock().expect("no thread panics with it");
        heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A connection to an agent that sends these bytes.
fn peer(sends: &[u8]) -> (GuestWire, Heard) {
    let heard = Heard::default();
    let sends = std::io::Cursor::new(sends.to_vec());
    (GuestWire::new(sends, heard.clone()), heard)
}

/// True when the bytes are the offer of a guest with hardware that is possible, and all of it. The
/// offer is the same after it was written.
pub fn reads_vnet_guest(data: &[u8]) -> bool {
    let (mut wire, heard) = peer(data);
    let Ok(offer) = guest_wire::read::<Offer>(&mut wire) else {
        return false;
    };
    guest_wire::write(&mut wire, &offer).expect("the peer hears all");
    let again = guest_wire::read::<Offer>(&mut peer(&heard.bytes()).0);
    assert!(again.is_ok_and(|again| again == offer));
    let taken = guest_wire::take_pieces(&mut wire, &mut std::io::sink());
    let sent = taken.and_then(|()| guest_wire::read::<Sent>(&mut wire));
    offer.hardware.check().is_ok() && sent.is_ok()
}
