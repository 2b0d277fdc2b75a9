//! `carina vm run --ip`: addresses of a VM without a network card.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::control::{VmInfo, VmIp};
use carina_ip::{Address, VmLink, read_all};
use carina_vm::Machine;

use super::RunArgs;
use crate::Shared;
use crate::commands::guest_ip;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::report::progress;

/// Kernel module that the guest needs for an interface of its node.
pub(super) const MODULE: &str = "tun";

/// Checks the options before anything is made.
///
/// # Errors
/// An address is wrong, `--dns` does not suit the guest, or this host has no TUN interfaces.
pub(super) fn check(args: &RunArgs) -> Outcome {
    if args.disk.is_some() && !args.dns.is_empty() {
        return Err(usage(
            "--dns is for Carina's own guest, not for --disk; set the name server in the guest",
        ));
    }
    let dif = carina_api::DifName::new("hv").expect("a constant that is a name");
    VmLink::new(dif, args.ip.clone(), args.nat).map_err(usage)?;
    if Path::new(DEVICE).exists() {
        return Ok(());
    }
    Err(failed(format!(
        "--ip needs {DEVICE} on this host: load the kernel's module tun"
    )))
}

/// The table of the configuration of the guest's node that makes the guest's interface.
///
/// # Errors
/// The node of this host has an address that this program does not understand.
pub(super) fn table(info: &VmInfo, link: &VmIp) -> Result<String, Failure> {
    let addresses = link.addresses.iter().map(|text| text.parse::<Address>());
    let addresses = addresses.collect::<Result<Vec<_>, _>>();
    let made = addresses.and_then(|all| VmLink::new(info.dif.clone(), all, link.nat));
    Ok(guest_ip::table(
        &made.attempt("reading the addresses of the VM")?,
    ))
}

/// Has the guest load the module, and tells it the name servers.
pub(super) fn furnish(machine: Machine, dns: &[IpAddr]) -> Machine {
    let machine = machine.module(MODULE);
    let servers = if dns.is_empty() {
        reachable_servers()
    } else {
        dns.to_vec()
    };
    if servers.is_empty() {
        progress("this host has no name server that the VM could reach; --dns ADDRESS sets one");
    }
    let lines = servers
        .iter()
        .map(|server| format!("nameserver {server}\n"));
    machine.file(RESOLVER, 0o644, lines.collect::<String>())
}

/// The name servers of this host that are not the host itself. A resolver of systemd lists the ones
/// that it asks in a file of its own.
fn reachable_servers() -> Vec<IpAddr> {
    let read = |path: &&str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let servers = servers_of(&text);
        (!servers.is_empty()).then_some(servers)
    };
    let files = [RESOLVER, RESOLVER_OF_SYSTEMD];
    files.iter().find_map(read).unwrap_or_default()
}

fn servers_of(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next()?.parse::<IpAddr>().ok())?
    });
    lines
        .filter(|server| !server.is_loopback() && !server.is_unspecified())
        .take(SERVERS_MAX)
        .collect()
}

/// Waits until both interfaces exist and know each other; returns at once for a VM without
/// addresses.
///
/// # Errors
/// The node cannot make the interface of this host, or the guest does not register its address in
/// time.
pub(super) fn wait_until_up(shared: &Shared, info: &VmInfo) -> Outcome {
    let Some(link) = &info.ip else {
        return Ok(());
    };
    let name = &info.name;
    let deadline = Instant::now() + LIMIT;
    loop {
        let members = read_all(&shared.run_dir()).attempt("reading the state of IP interfaces")?;
        let own = members.iter().find(|member| member.tun == link.tun);
        if own.is_some_and(|member| member.members.len() >= link.addresses.len()) {
            return Ok(());
        }
        let now = shared.control().vm(name.as_str());
        let now = now.attempt(format!("asking the node for VM {name}"))?;
        if let Some(error) = now.ip.and_then(|link| link.error) {
            return Err(failed(format!("the IP interface of VM {name}: {error}")));
        }
        if Instant::now() > deadline {
            return Err(failed(format!(
                "VM {name} is up, but its node has no IP interface; see /var/log/carina.log in \
                 the guest"
            )));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

const DEVICE: &str = "/dev/net/tun";
const RESOLVER: &str = "/etc/resolv.conf";
const RESOLVER_OF_SYSTEMD: &str = "/run/systemd/resolve/resolv.conf";
/// Largest number of name servers that resolvers use. (resolv.conf(5))
const SERVERS_MAX: usize = 3;
/// How long the nodes may take to make the interfaces.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_on_the_host_itself_are_left_out() {
        let text = "# a comment\nsearch example\nnameserver 127.0.0.53\nnameserver 192.0.2.1\n\
            nameserver ::1\nnameserver fd00::53\noptions edns0\nnameserver\nnameserver x\n";
        let servers: Vec<String> = servers_of(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1", "fd00::53"]);
    }
}
