//! Counts the frames that this host's engine has dropped in one direction of a link, by reason.

use carina_frame_engine::counter_file::Reading;
use carina_vnet::host_part::LinkEnd;
use carina_vnet::trace::Dropped;

use crate::names::{arp_app, flow_app, impair_app, rate_app, tunnel_app};
use crate::port_selection::both_apps;

/// Frames from end `near` to end `far` that were dropped between two readings of the counters. An
/// end on another host has no apps here; that host reports its own drops.
pub(super) fn dropped_between(
    near: LinkEnd,
    far: LinkEnd,
    (old, new): (&[Reading], &[Reading]),
) -> Dropped {
    let value = |all: &[Reading], name: &str| {
        let found = all.iter().find(|reading| reading.name == name);
        found.map_or(0, |reading| reading.value)
    };
    let more = |name: &str| value(new, name).saturating_sub(value(old, name));
    let (link, side) = near;
    let (rate, impair) = (rate_app(link, side), impair_app(link, side));
    let tunnels = [tunnel_app(link), flow_app(link), arp_app(link)];
    let from = [&rate, &impair].into_iter().chain(&tunnels);
    let [near_ports, far_ports] = [near, far].map(both_apps);
    let room = from.chain(&near_ports).flat_map(|from| {
        let to = [&rate, &impair].into_iter().chain(&far_ports);
        to.map(move |to| format!("{from}.output -> {to}.input/drops"))
    });
    let into_tunnel = [&rate, &impair].into_iter().flat_map(|from| {
        let to = tunnels.iter().flat_map(|to| [(to, "input"), (to, "north")]);
        to.map(move |(to, port)| format!("{from}.output -> {to}.{port}/drops"))
    });
    let out_of_tunnel = tunnels.iter().flat_map(|from| {
        let to = far_ports.iter();
        to.map(move |to| format!("{from}.north -> {to}.input/drops"))
    });
    let room = room.chain(into_tunnel).chain(out_of_tunnel);
    // The flow to another host only drops frames that the end on this host has sent; that end is
    // side 0.
    let flow = |reason: &str| match side {
        0 => more(&format!("{}/{reason}", flow_app(link))),
        _ => 0,
    };
    Dropped {
        no_flow: flow("drop_no_flow"),
        flow: flow("drop_full"),
        rate: more(&format!("{rate}/drop_full")) + more(&format!("{rate}/drop_codel")),
        impairment: more(&format!("{impair}/drop_loss")),
        line: more(&format!("{impair}/drop_full")),
        room: room.map(|name| more(&name)).sum(),
    }
}
