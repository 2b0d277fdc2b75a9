//! Network cards of a VM: `--nic` of `carina vm run`.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use carina_api::LocalName;
use carina_vm::{Backend, Model, Nic};
use carina_wire::ether::Mac;

use crate::Shared;
#[cfg(feature = "packet")]
use crate::commands::nfv;
use crate::failure::{Attempt, Failure, failed, refused};

/// A network card for the VM at a vhost-user socket. The port at that socket determines the card's
/// address and number of queues.
pub(super) fn card(
    shared: &Shared,
    vm: &LocalName,
    number: usize,
    nic: &NicArg,
) -> Result<Nic, Failure> {
    let socket = &nic.socket;
    let socket = std::path::absolute(socket).attempt(format!("finding {}", socket.display()))?;
    let port = port_at(shared, &socket)?;
    if let Some(port) = &port
        && port.is_client
    {
        return Err(refused(format!(
            "--nic {}: port {} has client = true, so that QEMU would have to create the socket; \
             remove that key, so that the port creates the socket",
            socket.display(),
            port.name
        )));
    }
    // QEMU would wait for the socket without a message.
    UnixStream::connect(&socket).map_err(|error| {
        failed(format!(
            "--nic {}: {error}; a port of carina nfv run, or a vhost_user app of carina graph run, \
             listens at such a socket: start it first",
            socket.display()
        ))
    })?;
    let of_port = port.as_ref().and_then(|port| port.mac);
    let mac = nic.mac.map(|mac| mac.0).or(of_port);
    Ok(Nic {
        model: Model::VirtioNet,
        backend: Backend::VhostUser {
            queues: port.and_then(|port| port.queues).unwrap_or(1),
            packed: false,
            socket,
        },
        mac: mac.or_else(|| Some(own_mac(vm, number))),
    })
}

/// Settings that a card takes from the port of `carina nfv run` to which it attaches.
struct PortOfCard {
    name: String,
    mac: Option<[u8; 6]>,
    is_client: bool,
    queues: Option<u16>,
}

/// The port of `carina nfv run` that has this socket; `None` for other sockets, and in a build
/// without `carina nfv`.
#[cfg(feature = "packet")]
fn port_at(shared: &Shared, socket: &Path) -> Result<Option<PortOfCard>, Failure> {
    let port = nfv::port_at(shared, socket)?;
    Ok(port.map(|port| {
        let is_client = port.app.get("client").and_then(|value| value.as_bool());
        let queues = port.app.get("queues").and_then(|value| value.as_integer());
        PortOfCard {
            is_client: is_client == Some(true),
            queues: queues.and_then(|queues| u16::try_from(queues).ok()),
            mac: port.mac.map(|mac| mac.0),
            name: port.name,
        }
    }))
}

#[cfg(not(feature = "packet"))]
fn port_at(_: &Shared, _: &Path) -> Result<Option<PortOfCard>, Failure> {
    Ok(None)
}

/// A MAC address for a card whose port has none. It is computed from the VM's name and the card's
/// number, so that cards of several VMs on one bridge differ, and a card has the same address at
/// each start.
fn own_mac(vm: &LocalName, number: usize) -> [u8; 6] {
    let bytes = vm.as_str().bytes().chain([0, number as u8]);
    // FNV-1a with 64 bits.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let [a, b, c, ..] = (hash >> 32 ^ hash).to_le_bytes();
    [0x52, 0x54, 0, a, b, c]
}

/// The value of `--nic`: `SOCKET` or `SOCKET,mac=MAC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NicArg {
    socket: PathBuf,
    mac: Option<Mac>,
}

/// The MAC address of a card is not the address of a single station.
#[derive(Debug, thiserror::Error)]
#[error("mac={0}: must be the address of one station, such as 52:54:00:00:00:01")]
pub(super) struct NicError(String);

impl FromStr for NicArg {
    type Err = NicError;

    fn from_str(text: &str) -> Result<NicArg, NicError> {
        let (socket, mac) = match text.rsplit_once(",mac=") {
            None => (text, None),
            Some((socket, mac)) => {
                let read: Option<Mac> = mac.parse().ok();
                let read = read.filter(|mac| !mac.is_group());
                (socket, Some(read.ok_or_else(|| NicError(mac.to_owned()))?))
            }
        };
        Ok(NicArg {
            socket: socket.into(),
            mac,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_a_socket_and_perhaps_an_address() {
        let nic = |text: &str| text.parse::<NicArg>();
        let plain = nic("/run/a,b.sock").unwrap();
        assert_eq!((plain.socket, plain.mac), ("/run/a,b.sock".into(), None));
        let with = nic("/run/a,b.sock,mac=52:54:00:00:00:01").unwrap();
        assert_eq!(with.mac, Some(Mac([0x52, 0x54, 0, 0, 0, 1])));
        for wrong in ["/a,mac=", "/a,mac=x", "/a,mac=ff:ff:ff:ff:ff:ff"] {
            assert!(nic(wrong).is_err(), "{wrong}");
        }
    }
}
