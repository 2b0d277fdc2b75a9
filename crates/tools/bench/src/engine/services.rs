//! Chains with an app that filters, limits or tunnels, between a source and a sink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carina_apps::esp::EspConfig;
use carina_apps::gre::GreConfig;
use carina_apps::hex_text::{HexText, SecretHex};
use carina_apps::ipip::IpipConfig;
use carina_apps::l2tpv3::L2tpv3Config;
use carina_apps::pcap_filter::{PcapFilterConfig, StateConfig};
use carina_apps::rate_limiter::RateLimiterConfig;
use carina_apps::sample_packet::udp_packet;
use carina_apps::sink::SinkConfig;
use carina_apps::tunnel::{Payload, TunnelConfig};
use carina_apps::vxlan::VxlanConfig;
use carina_frame_engine::{Graph, GraphError};

use crate::replay::Replay;

/// The app or apps between source and sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// A filter with 3 conditions, all of which the frame meets.
    Filter,
    /// A connection table that contains the frame's connection.
    Conntrack,
    /// A token bucket that is never empty.
    RateLimit,
    /// Both ends of a GRE tunnel: headers are added and removed.
    Gre,
    /// Both ends of a VXLAN tunnel.
    Vxlan,
    /// Both ends of an IPIP tunnel.
    Ipip,
    /// Both ends of an L2TPv3 tunnel.
    L2tpv3,
    /// Both ends of a security association: packets are encrypted and decrypted.
    Esp,
}

/// A filter as in a firewall; it also handles IPv6 and fragments.
const FILTER: &str = "udp dst port 9 and src net 198.18.0.0/15";

/// Adds source, service and sink.
pub(super) fn build(graph: &mut Graph, service: Service, size: usize) -> Result<(), GraphError> {
    let bytes = match service {
        Service::Esp => udp6_packet(size),
        _ => udp_packet(size),
    };
    graph
        .app("source", Replay::of(vec![bytes]))
        .app("sink", SinkConfig {});
    let filter = Some(FILTER.to_owned());
    let back_filter = None;
    match service {
        Service::Filter => {
            let state = None;
            graph.app(
                "a",
                PcapFilterConfig {
                    filter,
                    back_filter,
                    state,
                    ..PcapFilterConfig::default()
                },
            );
        }
        Service::Conntrack => {
            let state = Some(StateConfig::default());
            graph.app(
                "a",
                PcapFilterConfig {
                    filter,
                    back_filter,
                    state,
                    ..PcapFilterConfig::default()
                },
            );
        }
        Service::RateLimit => {
            let (bits_per_second, bucket_bytes) = (1_000_000_000_000, None);
            graph.app(
                "a",
                RateLimiterConfig {
                    bits_per_second,
                    bucket_bytes,
                },
            );
        }
        Service::Gre | Service::Vxlan | Service::Ipip | Service::L2tpv3 | Service::Esp => {
            ends(graph, service);
            for link in [
                "source.output -> a.north",
                "a.south -> b.south",
                "b.north -> sink.input",
                "b.south -> a.south",
                "idle.output -> b.north",
                "a.north -> other.input",
            ] {
                graph.link(link)?;
            }
            graph
                .app("idle", Replay::of(Vec::new()))
                .app("other", SinkConfig {});
            return Ok(());
        }
    }
    graph
        .link("source.output -> a.input")?
        .link("a.output -> sink.input")?;
    Ok(())
}

/// Adds the ends `a` and `b` of a tunnel.
fn ends(graph: &mut Graph, service: Service) {
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        match service {
            Service::L2tpv3 => graph.app(name, TunnelConfig(l2tpv3(at))),
            Service::Esp => graph.app(name, esp(at)),
            _ => end4(graph, service, name, at),
        };
    }
}

/// Adds one end of a tunnel over IPv4.
fn end4<'a>(graph: &'a mut Graph, service: Service, name: &str, at: usize) -> &'a mut Graph {
    let address = |at: usize| IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + at as u8));
    let (local, remote) = (address(at), address(1 - at));
    let (hop_limit, mac, next_mac) = (64, None, None);
    match service {
        Service::Gre => {
            let (key, payload) = (Some(5), Payload::Ethernet);
            let end = GreConfig {
                local,
                remote,
                key,
                payload,
                hop_limit,
                mac,
                next_mac,
            };
            graph.app(name, TunnelConfig(end))
        }
        Service::Vxlan => {
            let (vni, port) = (5, 4789);
            let end = VxlanConfig {
                local,
                remote,
                vni,
                port,
                hop_limit,
                mac,
                next_mac,
            };
            graph.app(name, TunnelConfig(end))
        }
        _ => {
            let end = IpipConfig {
                local,
                remote,
                hop_limit,
                mac,
                next_mac,
            };
            graph.app(name, TunnelConfig(end))
        }
    }
}

fn l2tpv3(at: usize) -> L2tpv3Config {
    let address = |at: usize| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1 + at as u16);
    L2tpv3Config {
        local: address(at),
        remote: address(1 - at),
        local_cookie: HexText([1; 8]),
        remote_cookie: HexText([1; 8]),
        session: u32::MAX,
        peer_session: None,
        hop_limit: 64,
        mac: None,
        next_mac: None,
    }
}

fn esp(at: usize) -> EspConfig {
    let key = |end: usize| SecretHex::new([1 + end as u8; 16]);
    let salt = SecretHex::new([2; 4]);
    EspConfig {
        spi: 256,
        transmit_key: key(at),
        transmit_salt: salt,
        receive_key: key(1 - at),
        receive_salt: salt,
        extended: true,
        resync_threshold: 1024,
        resync_attempts: 8,
    }
}

/// A UDP frame over IPv6. Its checksum is not set, because nothing checks it here.
fn udp6_packet(size: usize) -> Vec<u8> {
    let mut frame = vec![0; size.max(62)];
    let payload = (frame.len() - 54) as u16;
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    (frame[14], frame[20], frame[21], frame[22], frame[38]) = (0x60, 17, 64, 0xfd, 0xfd);
    frame[18..20].copy_from_slice(&payload.to_be_bytes());
    frame[58..60].copy_from_slice(&payload.to_be_bytes());
    frame
}
