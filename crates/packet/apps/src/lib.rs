//! Stock apps of frames, and files that describe graphs of them.
//!
//! Each module of an app opens with the same block: what it does, its ports, its configuration, its
//! counters and its cost. Cost is per frame, beside the move over a link.
//!
//! | app | does |
//! |---|---|
//! | [`source`], [`sink`] | make frames, and drop them |
//! | [`pcap_read`], [`pcap_write`] | send what a file has, write what comes |
//! | [`tee`], [`join`], [`split`] | copy to all outputs, bring together, spread |
//! | [`rss`] | balance load: spread by class, weight and flow |
//! | [`repeater`], [`truncate`], [`sample`] | send again, cut, let each n-th pass |
//! | [`hop`], [`route4`], [`route6`] | count a hop, choose the output by longest prefix |
//! | [`bridge`] | learn where stations are, as an Ethernet switch |
//! | [`mac_mux`] | share an uplink among stations with known addresses and VLANs |
//! | [`vlan_tag`], [`vlan_untag`], [`vlan_mux`] | put VLAN tags in, take them out, make a trunk |
//! | [`pcap_filter`], [`rate_limiter`] | let frames pass by a filter, by a rate |
//! | [`impair`] | lose, delay, reorder and duplicate frames |
//! | [`ipfix`] | measure flows, and export them by IPFIX |
//! | [`l2tpv3`], [`gre`], [`vxlan`], [`ipip`] | tunnels of Ethernet frames and of IP packets |
//! | [`tunnel_mux`] | share an interface among tunnels, each with a far end of its own |
//! | [`esp`], [`esp_tunnel`] | protect packets of IPv6, or any in a tunnel |
//! | [`arp`], [`nd`], [`icmp_echo`] | find and give MAC addresses, answer echo requests |
//!
//! [`graph_file`] reads graphs from TOML, [`runner`] runs one, [`picture`] draws one, [`trace`]
//! copies what passes its links. [`fragment`] and [`reassembly`] cut packets and put them together.
#![forbid(unsafe_code)]

pub mod arp;
pub mod bridge;
pub mod capture_file;
pub mod congestion;
pub mod esp;
pub mod esp_tunnel;
pub mod flow_hash;
pub mod fragment;
pub mod graph_file;
pub mod gre;
pub mod hex_text;
pub mod hop;
pub mod icmp_echo;
pub mod impair;
pub mod ipfix;
pub mod ipip;
pub mod join;
pub mod l2tpv3;
pub mod mac_mux;
pub mod mac_text;
pub mod metadata;
pub mod nd;
pub mod next_hop;
pub mod outer;
pub mod pcap_filter;
pub mod pcap_read;
pub mod pcap_write;
pub mod picture;
pub mod prefix;
pub mod rate_limiter;
pub mod reassembly;
pub mod repeater;
pub mod route4;
pub mod route6;
mod route_lines;
mod route_outputs;
pub mod router;
pub mod rss;
pub mod runner;
pub mod sample;
pub mod sample_packet;
pub mod sink;
pub mod source;
pub mod split;
pub mod station;
pub mod tee;
pub mod trace;
pub mod truncate;
pub mod tunnel;
pub mod tunnel_mux;
pub mod vlan;
pub mod vlan_mux;
pub mod vlan_tag;
pub mod vlan_untag;
pub mod vxlan;
