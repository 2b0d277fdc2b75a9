//! Reads the table `[ports.tunnel]`, whose fields depend on the type of the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carina_apps::gre::GreConfig;
use carina_apps::hex_text::HexText;
use carina_apps::ipip::IpipConfig;
use carina_apps::l2tpv3::L2tpv3Config;
use carina_apps::mac_text::MacText;
use carina_apps::tunnel::Payload;
use carina_apps::vxlan::VxlanConfig;
use serde::Deserialize;

use crate::traffic::fault::{At, Fault, FileError, value};
use crate::traffic::tunnel::{GatewayDraft, TunnelDraft, TunnelProtocol};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TunnelTable {
    #[serde(rename = "type")]
    kind: Option<String>,
    local_ip: IpAddr,
    remote_ip: IpAddr,
    next_hop: Option<IpAddr>,
    next_mac: Option<MacText>,
    #[serde(default = "hop_limit")]
    hop_limit: u8,
    local_cookie: Option<HexText<8>>,
    remote_cookie: Option<HexText<8>>,
    session: Option<u32>,
    peer_session: Option<u32>,
    key: Option<u32>,
    vni: Option<u32>,
    port: Option<u16>,
    gateway_ip: Option<Ipv4Addr>,
    station_ip: Option<Ipv4Addr>,
}

fn hop_limit() -> u8 {
    64
}

/// The UDP port of VXLAN. (RFC 7348 §5)
const VXLAN_PORT: u16 = 4789;

impl At<TunnelTable> {
    /// Checks the fields against the tunnel's type, and returns the tunnel.
    pub(super) fn draft(self) -> Result<At<TunnelDraft>, FileError> {
        let line = self.line;
        let wrong = |fault| FileError { line, fault };
        let protocol = self.value.protocol().map_err(wrong)?;
        let gateway = match protocol {
            TunnelProtocol::Ipip(_) => Some(self.value.gateway().map_err(wrong)?),
            _ => None,
        };
        let value = TunnelDraft {
            protocol,
            next_hop: self.value.next_hop,
            protects_resolver: false,
            gateway,
        };
        Ok(At { line, value })
    }
}

impl TunnelTable {
    fn protocol(&self) -> Result<TunnelProtocol, Fault> {
        let kind = self.kind.as_deref().unwrap_or("l2tpv3");
        let kind = kind.to_ascii_lowercase();
        let known = ["l2tpv3", "gre", "vxlan", "ipip"];
        if !known.contains(&kind.as_str()) {
            let wanted = "must be l2tpv3, gre, vxlan or ipip";
            return Err(value("tunnel.type", &kind, wanted));
        }
        for (field, is_given, of) in [
            ("local_cookie", self.local_cookie.is_some(), "l2tpv3"),
            ("remote_cookie", self.remote_cookie.is_some(), "l2tpv3"),
            ("session", self.session.is_some(), "l2tpv3"),
            ("peer_session", self.peer_session.is_some(), "l2tpv3"),
            ("key", self.key.is_some(), "gre"),
            ("vni", self.vni.is_some(), "vxlan"),
            ("port", self.port.is_some(), "vxlan"),
            ("gateway_ip", self.gateway_ip.is_some(), "ipip"),
            ("station_ip", self.station_ip.is_some(), "ipip"),
        ] {
            if is_given && of != kind {
                let wanted = format!("only a tunnel of type {of} has this field");
                return Err(value("tunnel.type", &kind, &format!("{field}: {wanted}")));
            }
        }
        match kind.as_str() {
            "gre" => Ok(TunnelProtocol::Gre(self.gre())),
            "vxlan" => self.vxlan().map(TunnelProtocol::Vxlan),
            "ipip" => Ok(TunnelProtocol::Ipip(self.ipip())),
            _ => self.l2tpv3().map(TunnelProtocol::L2tpv3),
        }
    }

    fn gre(&self) -> GreConfig {
        GreConfig {
            local: self.local_ip,
            remote: self.remote_ip,
            key: self.key,
            payload: Payload::Ethernet,
            hop_limit: self.hop_limit,
            mac: None,
            next_mac: self.next_mac,
        }
    }

    fn ipip(&self) -> IpipConfig {
        IpipConfig {
            local: self.local_ip,
            remote: self.remote_ip,
            hop_limit: self.hop_limit,
            mac: None,
            next_mac: self.next_mac,
        }
    }

    /// Reads the fields of the router. A tunnel of packets carries no frames, so it must act as the
    /// router of the port's station.
    fn gateway(&self) -> Result<GatewayDraft, Fault> {
        const GATEWAY: &str =
            "the IPv4 address of the router, as the station behind the port has it";
        const STATION: &str = "the IPv4 address of the station behind the port";
        Ok(GatewayDraft {
            address: needed("gateway_ip", self.gateway_ip, GATEWAY)?,
            station: needed("station_ip", self.station_ip, STATION)?,
        })
    }

    fn vxlan(&self) -> Result<VxlanConfig, Fault> {
        Ok(VxlanConfig {
            local: self.local_ip,
            remote: self.remote_ip,
            vni: needed("vni", self.vni, "the number of the network, 0 to 16777215")?,
            port: self.port.unwrap_or(VXLAN_PORT),
            hop_limit: self.hop_limit,
            mac: None,
            next_mac: self.next_mac,
        })
    }

    fn l2tpv3(&self) -> Result<L2tpv3Config, Fault> {
        const COOKIE: &str = "8 bytes in hexadecimal";
        Ok(L2tpv3Config {
            local: ipv6("local_ip", self.local_ip)?,
            remote: ipv6("remote_ip", self.remote_ip)?,
            local_cookie: needed("local_cookie", self.local_cookie, COOKIE)?,
            remote_cookie: needed("remote_cookie", self.remote_cookie, COOKIE)?,
            session: self.session.unwrap_or(u32::MAX),
            peer_session: self.peer_session,
            hop_limit: self.hop_limit,
            mac: None,
            next_mac: self.next_mac,
        })
    }
}

fn needed<T>(field: &'static str, found: Option<T>, wanted: &'static str) -> Result<T, Fault> {
    found.ok_or(Fault::Missing { field, wanted })
}

fn ipv6(field: &str, address: IpAddr) -> Result<Ipv6Addr, Fault> {
    match address {
        IpAddr::V6(address) => Ok(address),
        IpAddr::V4(address) => {
            let wanted = "must be an IPv6 address: L2TPv3 runs over IPv6";
            Err(value(field, &address, wanted))
        }
    }
}
