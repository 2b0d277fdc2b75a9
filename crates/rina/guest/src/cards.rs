//! The network cards of the guest: addresses, names and states by requests of netdevice(7), and
//! routes by rtnetlink(7).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use crate::echo::{self, Asks};
use crate::netlink::Routes;
use crate::order::{Mac, Prefix, mac_text};
use crate::system::{interface_request, socket_for_interfaces};

/// Why something failed, as text.
pub(crate) type Failure = String;

/// The network cards, and what this agent has changed.
pub(crate) struct Cards {
    socket: OwnedFd,
    routes: Routes,
    /// Names of the interfaces to which the agent gave an address.
    linked: BTreeSet<String>,
    /// How many interfaces were renamed because another one needed their name.
    moved: u32,
}

impl Cards {
    pub(crate) fn new() -> io::Result<Cards> {
        Ok(Cards {
            socket: socket_for_interfaces()?,
            routes: Routes::new()?,
            linked: BTreeSet::new(),
            moved: 0,
        })
    }

    /// Changes the MAC address of the card that has the address `from`.
    pub(crate) fn readdress(&self, from: Mac, to: Mac) -> Result<(), Failure> {
        let name = self.find(from)?;
        let mut wanted = [0; UNION];
        wanted[..2].copy_from_slice(&ARPHRD_ETHER.to_ne_bytes());
        wanted[2..8].copy_from_slice(&to);
        self.ask(SET_MAC, &name, wanted)
            .map_err(|error| failed("giving an address to", &name, &error))
            .map(drop)
    }

    /// Sets a card's name, its only IP address and its MTU, brings it up, and enables forwarding.
    /// Another interface with this name is renamed; configure that one afterwards.
    pub(crate) fn link(
        &mut self,
        mac: Mac,
        name: &str,
        own: Prefix,
        mtu: u32,
    ) -> Result<(), Failure> {
        let was = self.find(mac)?;
        if was != name {
            if self.index(name).is_ok() {
                self.moved += 1;
                self.rename(name, &format!("x{}", self.moved))?;
            }
            self.rename(&was, name)?;
        }
        if !self.linked.insert(name.to_owned()) {
            self.flush(name)?;
        }
        self.set_mtu(name, mtu)?;
        self.set_up(name, true)?;
        let index = self.index(name);
        index
            .and_then(|index| self.routes.add_address(index, own))
            .map_err(|error| failed(&format!("adding {} to", own.address), name, &error))?;
        fs::write(FORWARDING, "1").map_err(|error| failed("writing", FORWARDING, &error))
    }

    /// Adds routes to several prefixes over one neighbour.
    pub(crate) fn via(&mut self, neighbour: Ipv4Addr, prefixes: &[Prefix]) -> Result<(), Failure> {
        for prefix in prefixes {
            let done = self.routes.replace_route(*prefix, neighbour);
            done.map_err(|error| {
                let Prefix { address, bits } = prefix;
                format!("a route to {address}/{bits} via {neighbour}: {error}")
            })?;
        }
        Ok(())
    }

    /// Configures a card as a node configures its cards, and restores it.
    pub(crate) fn rehearse(
        &mut self,
        mac: Mac,
        other: Mac,
        own: Prefix,
        neighbour: Ipv4Addr,
    ) -> Result<(), Failure> {
        let was = self.find(mac)?;
        let mtu = self.mtu(&was)?;
        self.readdress(mac, other)?;
        self.link(other, REHEARSAL, own, 1400)?;
        let documentation = Prefix {
            address: Ipv4Addr::new(198, 51, 100, 0),
            bits: 24,
        };
        self.via(neighbour, &[documentation])?;
        for peer in [own.address, neighbour] {
            // A missing answer is not a failure.
            let _ = echo::round_trip(own.address, peer, echo::ONCE, Asks::Once);
        }
        self.flush(REHEARSAL)?;
        self.linked.remove(REHEARSAL);
        self.rename(REHEARSAL, &was)?;
        self.set_mtu(&was, mtu)?;
        self.readdress(other, mac)
    }

    /// Brings an interface up or down.
    pub(crate) fn set_up(&self, name: &str, is_up: bool) -> Result<(), Failure> {
        let change = || {
            let mut flags = self.ask(GET_FLAGS, name, [0; UNION])?;
            let was = i16::from_ne_bytes([flags[0], flags[1]]);
            let wanted = if is_up { was | IFF_UP } else { was & !IFF_UP };
            if wanted != was {
                flags[..2].copy_from_slice(&wanted.to_ne_bytes());
                self.ask(SET_FLAGS, name, flags)?;
            }
            Ok(())
        };
        change().map_err(|error| failed("changing the state of", name, &error))
    }

    /// The name of the card with a MAC address.
    fn find(&self, mac: Mac) -> Result<String, Failure> {
        let has_it = |name: &String| {
            let address = self.ask(GET_MAC, name, [0; UNION]);
            address.is_ok_and(|address| address[2..8] == mac)
        };
        // Most cards are found by index, without reading the file system.
        let near = (1..NEAR).find_map(|index| self.name(index).filter(has_it));
        near.or_else(|| {
            let all = fs::read_dir("/sys/class/net").ok()?.flatten();
            let mut names = all.filter_map(|entry| entry.file_name().into_string().ok());
            names.find(has_it)
        })
        .ok_or_else(|| format!("there is no card {}", mac_text(mac)))
    }

    fn name(&self, index: i32) -> Option<String> {
        let mut about = [0; NAME + UNION];
        about[NAME..NAME + 4].copy_from_slice(&index.to_ne_bytes());
        interface_request(&self.socket, GET_NAME, &mut about).ok()?;
        let length = about[..NAME].iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&about[..length]).into_owned())
    }

    fn index(&self, name: &str) -> io::Result<u32> {
        let answer = self.ask(GET_INDEX, name, [0; UNION])?;
        Ok(u32::from_ne_bytes([
            answer[0], answer[1], answer[2], answer[3],
        ]))
    }

    /// Renames an interface, which must be down for that.
    fn rename(&self, name: &str, to: &str) -> Result<(), Failure> {
        self.set_up(name, false)?;
        let mut wanted = [0; UNION];
        wanted[..to.len()].copy_from_slice(to.as_bytes());
        self.ask(SET_NAME, name, wanted)
            .map_err(|error| failed(&format!("giving the name {to} to"), name, &error))
            .map(drop)
    }

    fn mtu(&self, name: &str) -> Result<u32, Failure> {
        let answer = self.ask(GET_MTU, name, [0; UNION]);
        let answer = answer.map_err(|error| failed("asking for the MTU of", name, &error))?;
        Ok(u32::from_ne_bytes([
            answer[0], answer[1], answer[2], answer[3],
        ]))
    }

    fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), Failure> {
        let mut wanted = [0; UNION];
        wanted[..4].copy_from_slice(&mtu.to_ne_bytes());
        self.ask(SET_MTU, name, wanted)
            .map_err(|error| failed(&format!("giving an MTU of {mtu} to"), name, &error))
            .map(drop)
    }

    /// Removes all IPv4 addresses from an interface.
    fn flush(&self, name: &str) -> Result<(), Failure> {
        for _ in 0..ADDRESSES_MAX {
            let mut none = [0; UNION];
            none[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            if self.ask(GET_ADDRESS, name, none).is_err() {
                return Ok(());
            }
            self.ask(SET_ADDRESS, name, none)
                .map_err(|error| failed("taking an address from", name, &error))?;
        }
        Err(format!("{name} has more than {ADDRESSES_MAX} addresses"))
    }

    /// Sends a request about an interface. Takes the union of `struct ifreq` before the request,
    /// and returns it after.
    fn ask(&self, request: u32, name: &str, union: [u8; UNION]) -> io::Result<[u8; UNION]> {
        let mut about = [0; NAME + UNION];
        // The last byte ends the name.
        let room = &mut about[..NAME - 1];
        let Some(room) = room.get_mut(..name.len()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        room.copy_from_slice(name.as_bytes());
        about[NAME..].copy_from_slice(&union);
        interface_request(&self.socket, request, &mut about)?;
        let mut answer = [0; UNION];
        answer.copy_from_slice(&about[NAME..]);
        Ok(answer)
    }
}

fn failed(what: &str, name: &str, error: &io::Error) -> Failure {
    format!("{what} {name}: {error}")
}

/// Bytes of the two parts of `struct ifreq`: the name, and the union.
const NAME: usize = 16;
const UNION: usize = 24;

const GET_NAME: u32 = 0x8910;
const GET_FLAGS: u32 = 0x8913;
const SET_FLAGS: u32 = 0x8914;
const GET_ADDRESS: u32 = 0x8915;
const SET_ADDRESS: u32 = 0x8916;
const GET_MTU: u32 = 0x8921;
const SET_MTU: u32 = 0x8922;
const SET_NAME: u32 = 0x8923;
const SET_MAC: u32 = 0x8924;
const GET_MAC: u32 = 0x8927;
const GET_INDEX: u32 = 0x8933;
const IFF_UP: i16 = 1;
const AF_INET: u16 = 2;
const ARPHRD_ETHER: u16 = 1;
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const REHEARSAL: &str = "rehearsal";
/// Highest index of an interface that is tried directly.
const NEAR: i32 = 24;
const ADDRESSES_MAX: usize = 64;
