//! Network interfaces: their properties, and notification of changes.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::NetdevError;

/// Properties of an Ethernet interface at the time when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the network interface, such as `eth1`.
    pub name: String,
    /// Index of the interface in its network namespace. It changes when the interface is removed
    /// and created again under the same name.
    pub index: u32,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// MTU of the interface: the longest payload of a frame, in bytes.
    pub mtu: usize,
    /// Whether the interface is administratively up and has a carrier.
    pub is_up: bool,
}

impl Interface {
    /// Looks up an interface in the network namespace of this thread.
    ///
    /// # Errors
    /// [`NetdevError::NoInterface`] with the names that exist, [`NetdevError::NotEthernet`], or the
    /// kernel's refusal.
    pub fn named(name: &str) -> Result<Interface, NetdevError> {
        let missing = || NetdevError::NoInterface {
            name: name.to_owned(),
            have: names().join(", "),
        };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(missing());
        }
        let probe = Probe::new(name)?;
        let index = match probe.ask(libc::SIOCGIFINDEX) {
            // SAFETY: the kernel has filled in the index.
            Ok(answer) => unsafe { answer.ifr_ifru.ifru_ifindex },
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Err(missing()),
            Err(source) => return Err(probe.failed(source)),
        };
        let hardware = probe
            .ask(libc::SIOCGIFHWADDR)
            .map_err(|source| probe.failed(source))?;
        // SAFETY: the kernel has filled in the hardware address.
        let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr };
        if hardware.sa_family != libc::ARPHRD_ETHER {
            return Err(NetdevError::NotEthernet {
                name: name.to_owned(),
                kind: hardware.sa_family,
            });
        }
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(hardware.sa_data) {
            *to = from as u8;
        }
        let mtu = probe
            .ask(libc::SIOCGIFMTU)
            .map_err(|source| probe.failed(source))?;
        let flags = probe
            .ask(libc::SIOCGIFFLAGS)
            .map_err(|source| probe.failed(source))?;
        // SAFETY: the kernel has filled in the MTU and the flags.
        let (mtu, flags) = unsafe { (mtu.ifr_ifru.ifru_mtu, flags.ifr_ifru.ifru_flags) };
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(Interface {
            name: name.to_owned(),
            index: index as u32,
            mac,
            mtu: usize::try_from(mtu).unwrap_or(0),
            is_up: i32::from(flags) & wanted == wanted,
        })
    }
}

/// Checks that a text is a valid interface name.
///
/// # Errors
/// [`NetdevError::Name`]: the kernel does not accept such a name.
pub fn check_interface_name(name: &str) -> Result<(), NetdevError> {
    let is_wrong = |c: u8| matches!(c, 0 | b'/' | b'%' | b':') || c.is_ascii_whitespace();
    let is_name = (1..libc::IFNAMSIZ).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.bytes().any(is_wrong);
    if is_name {
        Ok(())
    } else {
        Err(NetdevError::Name(name.to_owned()))
    }
}

/// Brings up an interface in the network namespace of this thread. If `mtu` is given, sets the MTU
/// first, in bytes.
///
/// # Errors
/// `CAP_NET_ADMIN` is missing, there is no such interface, or it does not support this MTU.
pub fn bring_up(name: &str, mtu: Option<usize>) -> Result<(), NetdevError> {
    if name.len() >= libc::IFNAMSIZ {
        return Err(NetdevError::Name(name.to_owned()));
    }
    let mut probe = Probe::new(name)?;
    if let Some(mtu) = mtu {
        probe.request.ifr_ifru.ifru_mtu = libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX);
        let set = probe.ask(libc::SIOCSIFMTU);
        set.map_err(|error| {
            NetdevError::of_device(format!("setting an MTU of {mtu} on {name}"), error)
        })?;
    }
    let what = || format!("bringing {name} up");
    let flags = probe.ask(libc::SIOCGIFFLAGS);
    let flags = flags.map_err(|error| NetdevError::of_device(what(), error))?;
    // SAFETY: the kernel has filled in the flags.
    let flags = unsafe { flags.ifr_ifru.ifru_flags };
    probe.request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    let set = probe.ask(libc::SIOCSIFFLAGS);
    set.map_err(|error| NetdevError::of_device(what(), error))?;
    Ok(())
}

/// Returns the MTU of an interface of any kind in the network namespace of this thread, in bytes.
///
/// # Errors
/// There is no such interface.
pub fn interface_mtu(name: &str) -> Result<usize, NetdevError> {
    let probe = Probe::new(name)?;
    let answer = probe.ask(libc::SIOCGIFMTU);
    let answer = answer.map_err(|source| probe.failed(source))?;
    // SAFETY: the kernel has filled in the MTU.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Whether the network namespace of this thread has an interface of this name.
#[must_use]
pub fn interface_exists(name: &str) -> bool {
    names().iter().any(|known| known == name)
}

/// Whether the network namespace of this thread has an interface of this name, of any kind, that
/// was brought up.
#[must_use]
pub fn interface_is_up(name: &str) -> bool {
    let flags = Probe::new(name).and_then(|probe| {
        let answer = probe.ask(libc::SIOCGIFFLAGS);
        answer.map_err(|source| probe.failed(source))
    });
    // SAFETY: the kernel has filled in the flags.
    flags.is_ok_and(|flags| i32::from(unsafe { flags.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
}

/// A socket for queries about one interface.
struct Probe {
    fd: OwnedFd,
    name: String,
    request: libc::ifreq,
}

impl Probe {
    fn new(name: &str) -> Result<Probe, NetdevError> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
        if fd < 0 {
            return Err(NetdevError::last(
                "opening a socket to query interfaces",
                "",
            ));
        }
        // SAFETY: the kernel has just made this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let name = name.to_owned();
        Ok(Probe { fd, name, request })
    }

    fn ask(&self, what: libc::c_ulong) -> io::Result<libc::ifreq> {
        let mut request = self.request;
        // SAFETY: these requests read and write one `ifreq`, which is a local; its name ends in a
        // zero byte because it is shorter than the field.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), what as _, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(request)
    }

    fn failed(&self, source: io::Error) -> NetdevError {
        NetdevError::System {
            what: format!("interface {}", self.name),
            source,
        }
    }
}

/// The names of the interfaces in this network namespace.
fn names() -> Vec<String> {
    // SAFETY: takes no arguments; the list is freed below.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut at = list;
    loop {
        // SAFETY: the list ends with an entry without a name, which has not been reached.
        let entry = unsafe { *at };
        if entry.if_name.is_null() {
            break;
        }
        // SAFETY: the name of an entry is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.if_name) };
        names.push(name.to_string_lossy().into_owned());
        // SAFETY: the entry was not the last.
        at = unsafe { at.add(1) };
    }
    // SAFETY: the list came from `if_nameindex` and is freed once.
    unsafe { libc::if_freenameindex(list) };
    names
}

/// Reports changes of the interfaces in this network namespace: an interface goes up or down,
/// appears or disappears, or gets another MTU. [`Interface::named`] returns the new state.
#[derive(Debug)]
pub struct InterfaceWatch {
    fd: OwnedFd,
}

impl InterfaceWatch {
    /// Starts to watch the interfaces of this thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> Result<InterfaceWatch, NetdevError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(NetdevError::last("a netlink socket", "CAP_NET_ADMIN"));
        }
        // SAFETY: the kernel has just made this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid `sockaddr_nl`.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is a local of the size given.
        let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
        if result < 0 {
            return Err(NetdevError::last("a netlink socket", "CAP_NET_ADMIN"));
        }
        Ok(InterfaceWatch { fd })
    }

    /// Whether an interface has changed since the last call. Never blocks.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        let mut changed = false;
        let mut buffer = [0u8; 32];
        loop {
            let (to, bytes) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: the buffer is a local of that size. What a message says does not matter, so
            // a cut one is as good as a whole one.
            let got = unsafe { libc::recv(self.fd.as_raw_fd(), to, bytes, libc::MSG_DONTWAIT) };
            if got > 0 {
                changed = true;
                continue;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // The kernel dropped messages, so there was a change.
                Some(libc::ENOBUFS) => changed = true,
                _ => return changed,
            }
        }
    }
}

impl AsFd for InterfaceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_refused_with_the_known_ones() {
        let error = Interface::named("carina-nope").unwrap_err().to_string();
        assert!(
            error.contains("\"carina-nope\"") && error.contains("lo"),
            "{error}"
        );
        for name in ["", "a-name-that-is-far-too-long", "nul\0"] {
            assert!(matches!(
                Interface::named(name),
                Err(NetdevError::NoInterface { .. })
            ));
        }
    }

    #[test]
    fn the_loopback_interface_carries_no_frames() {
        let error = Interface::named("lo").unwrap_err();
        assert!(
            matches!(error, NetdevError::NotEthernet { kind: 772, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_fresh_watch_has_seen_nothing_and_does_not_block() {
        let watch = InterfaceWatch::new().unwrap();
        // Other programs may change interfaces at the same time. The first call collects their
        // changes.
        let _ = watch.has_changed();
        assert!(!watch.has_changed());
    }
}
