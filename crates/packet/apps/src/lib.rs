//! Stock apps that move frames.
//!
//! The module of each app begins with the same block: what the app does, its ports, its
//! configuration, its counters and its cost. The cost is per frame, in addition to the move over a
//! link.
//!
//! | app | does |
//! |---|---|
//! | [`source`], [`sink`] | make frames, and drop them |
//! | [`pcap_read`], [`pcap_write`] | send the frames of a file, write frames to a file |
//! | [`tee`], [`join`], [`split`] | copy to all outputs, merge inputs, distribute over outputs |
//! | [`rss`] | distribute frames by class, weight and flow |
//! | [`repeater`], [`truncate`], [`sample`] | repeat frames, cut them, pass every n-th |
//! | [`hop`], [`route4`], [`route6`] | decrement the TTL, choose the output by longest prefix |
//! | [`bridge`] | forward by learned MAC addresses, as an Ethernet switch does |
//! | [`mac_mux`] | share an uplink among stations with known addresses and VLANs |
//! | [`vlan_tag`], [`vlan_untag`], [`vlan_mux`] | add VLAN tags, remove them, form a trunk |
//! | [`pcap_filter`], [`rate_limiter`] | drop frames by a filter, drop frames above a rate |
//! | [`shaper`] | queue frames above a rate, and keep the queue short |
//! | [`impair`] | lose, delay, reorder, duplicate and damage frames |
//! | [`ipfix`] | measure flows, and export them by IPFIX |
//! | [`l2tpv3`], [`gre`], [`vxlan`], [`ipip`] | tunnel Ethernet frames or IP packets |
//! | [`tunnel_mux`] | share an interface among tunnels, each with a far end of its own |
//! | [`esp`], [`esp_tunnel`] | encrypt and authenticate IP packets, in transport or tunnel mode |
//! | [`arp`], [`nd`], [`icmp_echo`] | resolve MAC addresses, answer echo requests |
//!
//! [`shaped_queue`], [`fq_codel`] and [`codel`] are the queue of [`shaper`], for packets of any
//! kind. [`fragment`] and [`reassembly`] fragment and reassemble packets. The crate `carina-graph`
//! reads graphs of these apps from files, and runs them.
#![forbid(unsafe_code)]

pub mod arp;
pub mod bridge;
pub mod capture_file;
pub mod codel;
pub mod congestion;
pub mod esp;
pub mod esp_tunnel;
pub mod flow_hash;
pub mod fq_codel;
pub mod fragment;
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
pub mod sample;
pub mod sample_packet;
pub mod shaped_queue;
pub mod shaper;
pub mod sink;
pub mod source;
pub mod split;
pub mod station;
pub mod tee;
pub mod truncate;
pub mod tunnel;
pub mod tunnel_mux;
pub mod vlan;
pub mod vlan_mux;
pub mod vlan_tag;
pub mod vlan_untag;
pub mod vxlan;
