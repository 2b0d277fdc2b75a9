//! Operations inside network namespaces.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use carina_namespaces::{NamespaceAccess, namespace_file};
use carina_vnet_images::absent_is_done;
use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name_inlined, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Attempt, Error, Result};
use crate::rtnetlink::{PortChange, PortRequest, Request, RouteSocket};

/// Moves the calling thread into a namespace, until the thread ends. Threads that it starts later
/// are in the namespace as well.
pub(crate) fn enter(namespace: &str) -> Result<()> {
    let path = namespace_file(namespace);
    let file = File::open(&path).attempt(format!("opening {}", path.display()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .attempt(format!("entering {}", path.display()))
}

/// Runs a function on a thread inside a namespace, and returns its result.
pub(crate) fn within<T: Send>(
    namespace: &str,
    act: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            enter(namespace)?;
            act()
        });
        inside
            .join()
            .unwrap_or(Err(Error::Ended("work inside of a namespace")))
    })
}

/// Writes a file below `/proc/sys/net` in the namespace of this thread. A setting that the kernel
/// does not have is skipped.
pub(crate) fn set(setting: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/net/{setting}");
    absent_is_done(std::fs::write(&path, value)).attempt(format!("writing {path}"))
}

/// Creates a namespace, unless it is in `existing`.
pub(crate) fn make(existing: &[String], namespace: &str) -> Result<()> {
    if existing.iter().any(|known| known == namespace) {
        return Ok(());
    }
    NamespaceAccess::of_root().ip(&["netns", "add", namespace])?;
    batch(namespace, &["link set dev lo up".to_owned()])
}

/// Runs `ip` commands in a namespace, all in one process.
pub(crate) fn batch(namespace: &str, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    Ok(NamespaceAccess::of_root().ip_batch(namespace, lines)?)
}

/// Names of the interfaces in a namespace.
pub(crate) fn interfaces(namespace: &str) -> Result<BTreeSet<String>> {
    let all = within(namespace, || RouteSocket::new()?.interfaces())?;
    Ok(all.into_iter().map(|grant| grant.name).collect())
}

/// Which of the named interfaces a namespace has. A few are looked up one by one, because the
/// namespace of a large network's ports has thousands of interfaces.
pub(crate) fn existing(namespace: &str, names: &[String]) -> Result<BTreeSet<String>> {
    if names.len() > FEW {
        let mut all = interfaces(namespace)?;
        let names: BTreeSet<&String> = names.iter().collect();
        all.retain(|name| names.contains(name));
        return Ok(all);
    }
    within(namespace, || {
        let socket = socket_of_requests()?;
        let mut found = BTreeSet::new();
        for name in names {
            match name_to_index(&socket, name) {
                Err(Errno::NODEV) => {}
                known => {
                    known.attempt(format!("looking up interface {name}"))?;
                    found.insert(name.clone());
                }
            }
        }
        Ok(found)
    })
}

/// Whether no interface of a namespace has one of these indices.
pub(crate) fn are_free(namespace: &str, indices: &[u32]) -> Result<bool> {
    within(namespace, || {
        let socket = socket_of_requests()?;
        let is_free = |index: &u32| index_to_name_inlined(&socket, *index).is_err();
        Ok(indices.iter().all(is_free))
    })
}

/// Renames an interface of a namespace.
///
/// # Errors
/// There is no such interface, or the kernel refuses: before Linux 6.2 if the interface is up.
pub(crate) fn rename(namespace: &str, old: &str, new: &str) -> Result<()> {
    within(namespace, || {
        let found = name_to_index(&socket_of_requests()?, old);
        let index = found.attempt(format!("looking up interface {old}"))?;
        RouteSocket::new()?.execute(&[Request::Rename { index, name: new }])
    })
}

/// Changes what the kernel does with the frames at ports of a namespace. A request that fails stops
/// no other.
///
/// # Errors
/// There is no such port, or the first request that the kernel refuses.
pub(crate) fn change_ports(namespace: &str, requests: &[PortRequest]) -> Result<()> {
    within(namespace, || {
        let socket = socket_of_requests()?;
        let index = |port: &str| {
            let found = name_to_index(&socket, port);
            found.attempt(format!("looking up interface {port}"))
        };
        let with_indices = requests.iter().map(|request| {
            let to = match &request.change {
                PortChange::Redirect { to } => index(to)?,
                _ => 0,
            };
            let indices = [index(&request.port)?, to];
            Ok(Request::Port { request, indices })
        });
        let all = with_indices.collect::<Result<Vec<Request<'_>>>>()?;
        RouteSocket::new()?.execute(&all)
    })
}

/// Like [`change_ports`], but skips ports that do not exist, and ignores what the kernel refuses.
///
/// # Errors
/// The namespace cannot be entered, or a socket cannot be opened.
pub(crate) fn change_existing_ports(namespace: &str, requests: &[PortRequest]) -> Result<()> {
    within(namespace, || {
        let socket = socket_of_requests()?;
        let existing = requests.iter().filter_map(|request| {
            let index = name_to_index(&socket, &request.port).ok()?;
            let indices = [index, 0];
            Some(Request::Port { request, indices })
        });
        let all: Vec<Request<'_>> = existing.collect();
        let _ = RouteSocket::new()?.execute(&all);
        Ok(())
    })
}

/// A socket through which the kernel answers requests about interfaces. (netdevice(7))
fn socket_of_requests() -> Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    );
    socket.attempt("opening a socket to look for interfaces")
}

/// The largest index of an interface in a namespace; 0 without any.
pub(crate) fn last_index(namespace: &str) -> Result<u32> {
    let all = within(namespace, || RouteSocket::new()?.interfaces())?;
    Ok(all
        .iter()
        .map(|interface| interface.index)
        .max()
        .unwrap_or(0))
}

/// Largest number of interfaces that are looked up one by one.
const FEW: usize = 32;
