//! The tunnel of a port: its protocol, and how the next hop's MAC address is found.

use std::net::{IpAddr, Ipv4Addr};

use carina_apps::arp::ArpConfig;
use carina_apps::gre::GreConfig;
use carina_apps::ipip::IpipConfig;
use carina_apps::l2tpv3::L2tpv3Config;
use carina_apps::mac_text::MacText;
use carina_apps::tunnel::TunnelKind;
use carina_apps::vxlan::VxlanConfig;
use carina_graph::graph_file::{Kind, read_app};
use carina_wire::ether::Mac;

use super::fault::{At, Fault, FileError, value};

/// The tunnel through which a port's frames pass, and how its next hop is found.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunnel {
    /// The protocol, with its configuration.
    pub protocol: TunnelProtocol,
    /// The app that resolves the next hop's MAC address; `None` if the file gives this address.
    pub resolver: Option<Resolver>,
    /// Whether ESP also protects the resolver's messages, as in snabbnfv. If `false`, the next hop
    /// may be a router without the keys.
    pub protects_resolver: bool,
    /// In a tunnel of packets: the gateway that Carina plays for the station (VM) at the port. It
    /// answers the station's ARP requests for the gateway's address. `None` in a tunnel of frames.
    pub gateway: Option<ArpConfig>,
}

/// The protocol of a tunnel. All but [`TunnelProtocol::Ipip`] carry whole frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TunnelProtocol {
    /// A keyed IPv6 tunnel. (RFC 8159)
    L2tpv3(L2tpv3Config),
    /// GRE over IPv4 or IPv6. (RFC 2784, RFC 2890)
    Gre(GreConfig),
    /// VXLAN over IPv4 or IPv6. (RFC 7348)
    Vxlan(VxlanConfig),
    /// IPv4 packets over IPv4 or IPv6. (RFC 2003, RFC 2473)
    Ipip(IpipConfig),
}

/// The gateway that Carina plays for the station (VM) at a port whose tunnel carries packets; not
/// checked yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatewayDraft {
    /// The gateway's IP address. Carina answers ARP requests for it.
    pub address: Ipv4Addr,
    /// The IP address of the station (VM) at the port.
    pub station: Ipv4Addr,
}

/// The app that resolves the next hop's MAC address, and answers requests for the tunnel's own
/// address.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolver {
    /// The configuration of the app `arp`, for a tunnel over IPv4.
    Arp(toml::Table),
    /// The configuration of the app `nd`, for a tunnel over IPv6.
    Nd(toml::Table),
}

impl TunnelProtocol {
    /// The tunnel's local and remote address, and the next hop's MAC address if the file gives it.
    fn ends(&self) -> (IpAddr, IpAddr, Option<MacText>) {
        match self {
            TunnelProtocol::L2tpv3(config) => {
                (config.local.into(), config.remote.into(), config.next_mac)
            }
            TunnelProtocol::Gre(config) => (config.local, config.remote, config.next_mac),
            TunnelProtocol::Vxlan(config) => (config.local, config.remote, config.next_mac),
            TunnelProtocol::Ipip(config) => (config.local, config.remote, config.next_mac),
        }
    }

    fn set_mac(&mut self, own: MacText) {
        let mac = match self {
            TunnelProtocol::L2tpv3(config) => &mut config.mac,
            TunnelProtocol::Gre(config) => &mut config.mac,
            TunnelProtocol::Vxlan(config) => &mut config.mac,
            TunnelProtocol::Ipip(config) => &mut config.mac,
        };
        *mac = Some(own);
    }
}

/// A tunnel that has not been checked yet.
#[derive(Debug)]
pub(super) struct TunnelDraft {
    pub protocol: TunnelProtocol,
    pub next_hop: Option<IpAddr>,
    pub protects_resolver: bool,
    pub gateway: Option<GatewayDraft>,
}

impl At<TunnelDraft> {
    /// Checks the tunnel of a port whose station has the address `mac`.
    pub(super) fn check(self, mac: Option<Mac>, kinds: &[Kind]) -> Result<Tunnel, FileError> {
        let line = self.line;
        let wrong = |fault| FileError { line, fault };
        let TunnelDraft {
            mut protocol,
            next_hop,
            protects_resolver,
            gateway,
        } = self.value;
        let Some(mac) = mac else {
            let (field, needed) = ("tunnel", "mac, the source address of its packets");
            return Err(wrong(Fault::Needs { field, needed }));
        };
        let (local, remote, next_mac) = protocol.ends();
        check_ends(local, remote).map_err(wrong)?;
        let made = match &protocol {
            TunnelProtocol::L2tpv3(config) => check_l2tpv3(config).and_then(|()| made(config)),
            TunnelProtocol::Gre(config) => made(config),
            TunnelProtocol::Vxlan(config) => made(config),
            TunnelProtocol::Ipip(config) => made(config),
        };
        made.map_err(wrong)?;
        let resolver = match (next_hop, next_mac) {
            (Some(next), next_mac) => {
                if next.is_ipv4() != local.is_ipv4() {
                    let wanted = "must have the same IP version as local_ip";
                    return Err(wrong(value("next_hop", &next, wanted)));
                }
                Some(resolver(local, mac, next, next_mac, kinds).map_err(wrong)?)
            }
            (None, Some(_)) => None,
            (None, None) => {
                let wanted = match local {
                    IpAddr::V4(_) => {
                        "an IPv4 address, or give the MAC address of the next hop in next_mac"
                    }
                    IpAddr::V6(_) => {
                        "an IPv6 address, or give the MAC address of the next hop in next_mac"
                    }
                };
                let field = "next_hop";
                return Err(wrong(Fault::Missing { field, wanted }));
            }
        };
        let gateway = gateway.map(|gateway| gateway.check(mac)).transpose();
        protocol.set_mac(MacText(mac));
        Ok(Tunnel {
            protocol,
            resolver,
            protects_resolver,
            gateway: gateway.map_err(wrong)?,
        })
    }
}

impl GatewayDraft {
    /// Checks the router of a port whose station has the address `mac`.
    fn check(self, mac: Mac) -> Result<ArpConfig, Fault> {
        let GatewayDraft { address, station } = self;
        for (field, ip) in [("gateway_ip", address), ("station_ip", station)] {
            if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
                return Err(value(field, &ip, "must be the address of one station"));
            }
        }
        if address == station {
            return Err(value("station_ip", &station, "must differ from gateway_ip"));
        }
        // The router's MAC address. Only the station sees it; it must differ from the station's
        // own.
        let mut gateway = mac;
        gateway.0[5] ^= 1;
        Ok(ArpConfig {
            address,
            mac: MacText(gateway),
            next: station,
            next_mac: None,
        })
    }
}

fn check_ends(local: IpAddr, remote: IpAddr) -> Result<(), Fault> {
    if local.is_ipv4() != remote.is_ipv4() {
        let wanted = "must have the same IP version as local_ip";
        return Err(value("remote_ip", &remote, wanted));
    }
    if local == remote {
        return Err(value("remote_ip", &remote, "must differ from local_ip"));
    }
    Ok(())
}

fn check_l2tpv3(config: &L2tpv3Config) -> Result<(), Fault> {
    if config.session == 0 || config.peer_session == Some(0) {
        let wanted = "must be 1 to 4294967295: session 0 is reserved for control messages";
        return Err(value("session", &0, wanted));
    }
    Ok(())
}

/// Checks that the protocol accepts the configuration.
fn made(config: &impl TunnelKind) -> Result<(), Fault> {
    let refused = |error: carina_frame_engine::AppError| Fault::Toml(error.to_string());
    config.tunnel().map(drop).map_err(refused)
}

fn resolver(
    local: IpAddr,
    mac: Mac,
    next: IpAddr,
    next_mac: Option<MacText>,
    kinds: &[Kind],
) -> Result<Resolver, Fault> {
    let kind = if local.is_ipv4() { "arp" } else { "nd" };
    let mut app = toml::Table::new();
    let mut put = |key: &str, value: String| app.insert(key.to_owned(), value.into());
    put("kind", kind.to_owned());
    put("address", local.to_string());
    put("mac", mac.to_string());
    put("next", next.to_string());
    if let Some(next_mac) = next_mac {
        put("next_mac", next_mac.0.to_string());
    }
    read_app(kind, app.clone(), kinds)?;
    Ok(match local {
        IpAddr::V4(_) => Resolver::Arp(app),
        IpAddr::V6(_) => Resolver::Nd(app),
    })
}
