//! Tests of commands, each with nodes of its own.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

mod bench_wrap;
mod crowd;
mod forward;
mod gateway;
mod graph;
mod ip;
mod lwaftr;
mod members;
mod names;
mod nfv;
pub(crate) mod node;
mod ping;
mod policies;
mod precedence;
mod programs;
mod providers;
mod proxy;
mod serving;
mod sim;
mod stalls;
mod stopped;
mod system_calls;
mod terminated;
mod unread;
mod users_site;
mod vnet;
mod vnet_access;
mod vnet_between_hosts;
mod vnet_documents;
mod vnet_exec;
mod vnet_far_flows;
mod vnet_moves;
mod vnet_page;
mod vnet_providers;
mod vnet_roles;
mod vnet_stack;
mod vnet_user;
mod vnet_users_dif;
mod within;
mod wrap;
mod wrap_datagrams;
mod wrap_many;
mod wrap_mistakes;
mod wrap_programs;
mod wrap_static;
mod wrap_static_udp;
mod wrap_suites;
mod wrap_udp;
