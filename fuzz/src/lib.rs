//! Fuzz targets as plain functions of bytes: the fuzzer calls them, and so do the tests, with every
//! file of `corpus/TARGET` and with seeded mutations of them.
//!
//! A target checks more than the absence of a panic: what decodes must encode to the same bytes,
//! and what a consumer accepts must lie inside its ring.

#![forbid(unsafe_code)]

mod access;
mod captures;
mod efcp;
mod filters;
mod flows;
mod graphs;
mod headers;
mod imports;
mod lua;
mod lwaftr;
mod memory;
mod ports;
mod rings;
mod sockets;
mod streams;
mod text;
mod vnet;

pub use access::{reads_vnet_access, reads_vnet_token, vnet_access, vnet_token};
pub use captures::{
    capture, capture_frames, dissect, reads_capture, reads_capture_frames, reads_packets,
};
pub use carina_dialects::fuzz::irati::{irati, reads_irati};
pub use carina_dialects::fuzz::rlite::{reads_rlite, rlite};
pub use carina_gateway::proxy::fuzz::{http_proxy, reads_http_proxy, reads_socks5, socks5};
pub use carina_ip::fuzz::{ip_sdu, reads_ip_sdu};
pub use carina_lab::fuzz::{lab, reads_lab};
pub use carina_management::fuzz::member::ipcp;
pub use carina_management::fuzz::values::{
    enrollment, link_state, reads_enrollment, reads_link_state,
};
pub use carina_protect::fuzz::{auth, reads_auth, reads_unprotect, unprotect};
pub use carina_shims::fuzz::{reads_shim_frames, shim_frames};
pub use carina_wrap::fuzz::{dns_query, reads_dns_query};
pub use efcp::efcp;
pub use filters::{filter, reads_filter};
pub use flows::{ipfix_flows, measures_flows};
pub use graphs::{
    app_frames, graph_file, reads_app_frames, reads_graph_file, reads_trace_request, trace_request,
};
pub use headers::{
    arp, cdap, connect_reader, frame, pcapng, pci, reads_arp, reads_cdap, reads_connect,
    reads_frame, reads_pcapng, reads_pci,
};
pub use imports::{
    import_irati, import_rlite, import_vnet, reads_irati_conf, reads_networks, reads_rlite_ctl,
};
pub use lua::{lua_script, runs_lua_script};
pub use lwaftr::{
    changes_by_lwaftr_requests, forwards_lwaftr_frames, lwaftr_file, lwaftr_frames,
    lwaftr_requests, reads_lwaftr_file,
};
pub use memory::{ring_consumer, vmpi_block, vmpi_control, vmpi_endpoint, xenstore};
pub use ports::{nfv_ports, reads_nfv_ports};
pub use rings::{
    nic_device, nic_rings, reads_nic_device, reads_vhost_user, receives_nic_rings, vhost_user,
    vring_device, vring_driver,
};
pub use sockets::ivshmem_server;
pub use streams::{vmpi_stream, vsock_hybrid, vsock_packets};
pub use text::{configuration, ipc_message, reads_configuration, reads_ipc_message};
pub use vnet::{
    reads_vnet_document, reads_vnet_guest, reads_vnet_part, reads_vnet_saved, vnet_document,
    vnet_guest, vnet_part, vnet_saved,
};
