//! The kernel's side of the benchmark: bridges, and routes into tunnels.

use std::process::Stdio;

use carina_namespaces::NamespaceAccess;

use super::flow::prefix_of;
use super::veths::Veths;
use crate::error::Result;

/// A kind of tunnel of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// IP in IP (RFC 2003).
    Ipip,
    /// VXLAN (RFC 7348).
    Vxlan,
}

impl Tunnel {
    fn kind(self) -> &'static str {
        match self {
            Tunnel::Ipip => "ipip",
            Tunnel::Vxlan => "vxlan",
        }
    }
}

/// Joins the interfaces of each flow by a bridge with a static entry for its packets. Returns false
/// if the kernel has no bridges.
pub(super) fn bridge(veths: &Veths) -> Result<bool> {
    if !is_supported(&["type", "bridge"]) {
        return Ok(false);
    }
    let mut lines = Vec::new();
    for flow in 0..veths.flows() {
        let (entry, exit) = (Veths::entry(flow), Veths::exit(flow));
        lines.extend([
            format!("link add name br{flow} type bridge"),
            format!("link set dev {entry} master br{flow}"),
            format!("link set dev {exit} master br{flow}"),
            format!("link set dev br{flow} up"),
        ]);
    }
    veths.inside(&lines)?;
    let known = (0..veths.flows()).map(|flow| {
        let exit = Veths::exit(flow);
        format!("bridge fdb add {DESTINATION} dev {exit} master static\n")
    });
    veths.script(&known.collect::<String>())?;
    Ok(true)
}

/// Routes each flow into a tunnel of its own. Returns false if the kernel has no such tunnels.
pub(super) fn tunnel(veths: &Veths, tunnel: Tunnel) -> Result<bool> {
    let kind = tunnel.kind();
    let try_words: &[&str] = match tunnel {
        Tunnel::Ipip => &["type", "ipip", "local", "192.0.2.1", "remote", "192.0.2.2"],
        Tunnel::Vxlan => &["type", "vxlan", "id", "1", "dstport", "4789"],
    };
    if !is_supported(try_words) {
        return Ok(false);
    }
    veths.script(
        "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter\n\
         echo 1 >/proc/sys/net/ipv4/ip_forward\n\
         for file in /proc/sys/net/ipv4/conf/in*/rp_filter; do echo 0 >$file; done\n",
    )?;
    let mut lines = Vec::new();
    for flow in 0..veths.flows() {
        let (entry, exit) = (Veths::entry(flow), Veths::exit(flow));
        let (local, remote) = (format!("192.168.{flow}.1"), format!("192.168.{flow}.2"));
        lines.extend([
            format!("link set dev {entry} address {DESTINATION}"),
            format!("address add {local}/24 dev {exit}"),
            format!("neigh add {remote} lladdr {NEXT} dev {exit} nud permanent"),
        ]);
        let prefix = prefix_of(flow);
        match tunnel {
            Tunnel::Ipip => lines.extend([
                format!("link add name t{flow} type {kind} local {local} remote {remote} ttl 64"),
                format!("link set dev t{flow} up"),
                format!("route add {prefix} dev t{flow}"),
            ]),
            Tunnel::Vxlan => lines.extend([
                format!(
                    "link add name t{flow} type {kind} id {} local {local} remote {remote} \
                     dstport 4789 ttl 64",
                    flow + 1
                ),
                format!("address add 172.16.{flow}.1/24 dev t{flow}"),
                format!("link set dev t{flow} up"),
                format!("neigh add 172.16.{flow}.2 lladdr {NEXT} dev t{flow} nud permanent"),
                format!("route add {prefix} via 172.16.{flow}.2"),
            ]),
        }
    }
    veths.inside(&lines)?;
    Ok(true)
}

/// Whether the kernel can make such a device. The device is removed again.
fn is_supported(words: &[&str]) -> bool {
    let run = |words: &[&str]| {
        let mut command = NamespaceAccess::of_root().command("ip");
        let status = command.args(words).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let made = run(&[&["link", "add", "name", "try0"], words].concat());
    made && run(&["link", "del", "dev", "try0"])
}

/// MAC addresses: destination of the sample packets on the first link, and next hop behind the
/// system.
const DESTINATION: &str = "02:00:00:00:00:02";
const NEXT: &str = "02:00:00:00:00:03";
