//! Addresses of an access point: its UDP port, and the addresses of this host.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use carina_sys::NetworkNamespace;
use carina_vnet_access::token::ADDRESSES_MAX;

use crate::error::{Attempt, Error, Result};

/// Ports that this process has chosen, perhaps without listening on them yet.
static CHOSEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A free UDP port, which is then marked as chosen; `None` if all are taken.
pub(super) fn free_port(netns: &Path) -> Option<u16> {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ports = FIRST..FIRST + PORTS;
    let port = ports.find(|port| !chosen.contains(port) && listening(netns, *port).is_ok())?;
    chosen.insert(port);
    Some(port)
}

/// Marks a port as chosen that an earlier agent had chosen.
pub(super) fn choose(port: u16) {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    chosen.insert(port);
}

/// Makes a port available again.
pub(super) fn give_back(port: u16) {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    chosen.remove(&port);
}

/// The address to listen on: IPv6, which accepts IPv4 as well, or IPv4 if the system has no IPv6.
///
/// # Errors
/// The namespace cannot be entered, or the port is in use.
pub(super) fn listening(netns: &Path, port: u16) -> Result<SocketAddr> {
    let any: [SocketAddr; 2] = [([0u16; 8], port).into(), ([0u8; 4], port).into()];
    let bind = || -> io::Result<SocketAddr> {
        match UdpSocket::bind(any[0]) {
            Ok(_) => Ok(any[0]),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
            Err(_) => UdpSocket::bind(any[1]).map(|_| any[1]),
        }
    };
    within(netns, bind)?.attempt(format!("listening at port {port} of UDP"))
}

/// The addresses of this host that other systems may reach.
///
/// # Errors
/// The host has no such address.
pub(super) fn addresses(netns: &Path) -> Result<Vec<IpAddr>> {
    let list = || {
        let mut ip = Command::new("ip");
        ip.args(["-o", "address", "show", "up", "scope", "global"])
            .output()
    };
    let output = within(netns, list)?.attempt("listing addresses")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A line of output: `2: eth0    inet 192.0.2.1/24 brd …`
    let address = |line: &str| {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| !word.starts_with("inet"));
        let address = words.nth(1)?.split('/').next()?;
        address.parse().ok()
    };
    let mut found: Vec<IpAddr> = text.lines().filter_map(address).collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.truncate(ADDRESSES_MAX);
    if found.is_empty() {
        Err(Error::NoAddress)
    } else {
        Ok(found)
    }
}

fn within<T>(netns: &Path, act: impl FnOnce() -> T) -> Result<T> {
    let namespace = NetworkNamespace::open(netns);
    namespace
        .and_then(|namespace| namespace.within(act))
        .attempt(format!("entering {}", netns.display()))
}

/// The first port to try: WireGuard's usual one.
const FIRST: u16 = 51_820;
const PORTS: u16 = 2000;
