//! Files of `carina nfv`: Carina's own, and snabbnfv's.

use carina_nfv::traffic::attach::Card;
use carina_nfv::traffic::changes::Changes;
use carina_nfv::traffic::graph::{graph, port_kinds};
use carina_nfv::traffic::{Defaults, lua, read};

/// Files of ports.
pub fn nfv_ports(data: &[u8]) {
    reads_nfv_ports(data);
}

/// True when the bytes are a file of ports. It then has a graph that passes its check, and each
/// guest's card has arguments; any other text gives an error with a line within it.
pub fn reads_nfv_ports(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let lines = text.lines().count().max(1);
    if let Err(error) = lua::parse(text) {
        let is_inside = (1..=lines + 1).contains(&error.line);
        assert!(is_inside, "{error} in {text:?}");
    }
    let kinds = port_kinds();
    let defaults = Defaults {
        uplink: None,
        sockets: "/run/%s.sock".to_owned(),
    };
    match read(text, &defaults, &kinds) {
        Ok(traffic) => {
            let graph = graph(&traffic, &kinds).expect("a graph of what was read");
            assert_eq!(graph.check(), Ok(()));
            assert!(Changes::between(&traffic, &traffic).is_empty());
            for port in &traffic.ports {
                if let Ok(card) = Card::of(port) {
                    assert!(card.qemu(Some("1G"), false).len() >= 6);
                    assert!(card.libvirt().ends_with("</interface>\n"));
                }
            }
            true
        }
        Err(error) => {
            let is_inside = (1..=lines + 1).contains(&error.line);
            assert!(is_inside, "{error} in {text:?}");
            assert!(!error.fault.to_string().is_empty());
            false
        }
    }
}
