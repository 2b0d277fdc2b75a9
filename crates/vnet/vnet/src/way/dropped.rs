//! What a host's engine has dropped of a direction of a link, by reason.

use carina_engine::counter_file::Reading;
use serde::{Deserialize, Serialize};

use crate::names::{arp_app, flow_app, impair_app, rate_app, tunnel_app};
use crate::second_ports::{LinkEnd, both_apps};

/// Frames that were dropped on their way from one end of a link to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Above the rate of the link.
    pub rate: u64,
    /// By its impairment.
    pub impairment: u64,
    /// For which an impaired line had no room.
    pub line: u64,
    /// For which there was no room between the apps of the engine.
    pub room: u64,
    /// While the link had no flow to the other host.
    pub no_flow: u64,
    /// For which that flow had no room.
    pub flow: u64,
}

impl Dropped {
    /// What was dropped between two readings of counters, of what the end `near` sends to `far`. An
    /// end on another host has no apps here: what is dropped there is for that host to tell.
    pub fn between(near: LinkEnd, far: LinkEnd, (old, new): (&[Reading], &[Reading])) -> Dropped {
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
        // What a flow to another host drops was sent by the end that is here, which is the first.
        let flow = |reason: &str| match side {
            0 => more(&format!("{}/{reason}", flow_app(link))),
            _ => 0,
        };
        Dropped {
            no_flow: flow("drop_no_flow"),
            flow: flow("drop_full"),
            rate: more(&format!("{rate}/drop_rate")),
            impairment: more(&format!("{impair}/drop_loss")),
            line: more(&format!("{impair}/drop_full")),
            room: room.map(|name| more(&name)).sum(),
        }
    }

    /// Both together. What a host says may be any number.
    #[must_use]
    pub fn and(self, other: Dropped) -> Dropped {
        Dropped {
            rate: self.rate.saturating_add(other.rate),
            impairment: self.impairment.saturating_add(other.impairment),
            line: self.line.saturating_add(other.line),
            room: self.room.saturating_add(other.room),
            no_flow: self.no_flow.saturating_add(other.no_flow),
            flow: self.flow.saturating_add(other.flow),
        }
    }
}

impl std::fmt::Display for Dropped {
    /// `; dropped meanwhile: 2 by its impairment`; nothing where nothing was dropped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [
            (self.rate, "above its rate"),
            (self.impairment, "by its impairment"),
            (self.line, "for which the impaired line had no room"),
            (self.room, "for which there was no room"),
            (self.no_flow, "without a flow"),
            (self.flow, "for which the flow had no room"),
        ];
        let words: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        match words.is_empty() {
            true => Ok(()),
            false => write!(f, "; dropped meanwhile: {}", words.join(", ")),
        }
    }
}
