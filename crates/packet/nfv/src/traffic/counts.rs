//! Traffic and drops of ports, computed from the counters of the graph.

use std::collections::BTreeMap;

use carina_apps::mac_mux::UPLINK;
use carina_frame_engine::LinkName;
use carina_frame_engine::counter_file::Reading;
use carina_ports::state::state;
use serde::Serialize;

use super::Traffic;
use super::graph::{MUX, app_name, step};

/// Frames and bytes of the uplink and of each port of an NFV process, and frames dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrafficCounts {
    /// Traffic of the uplink; `None` without an uplink.
    pub uplink: Option<PortCounts>,
    /// Traffic of the ports, in the order of the file.
    pub ports: Vec<PortCounts>,
    /// Frames dropped in apps that belong to no port, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// Frames and bytes to and from one port since the process started, and why frames were dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounts {
    /// Name of the port that the counts are about.
    pub port: String,
    /// Frames that came from the port.
    pub from_packets: u64,
    /// Bytes of the frames that came from the port, without FCS. Excludes frames that a full link
    /// dropped, which `from_packets` counts.
    pub from_bytes: u64,
    /// Frames that were delivered to the port, or that the port dropped, for instance because it
    /// has no guest.
    pub to_packets: u64,
    /// Total bytes of the frames that `to_packets` counts, without FCS.
    pub to_bytes: u64,
    /// Frames dropped between the port and the switch, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Why the port carries nothing at present, as text; `None` if it works.
    pub state: Option<String>,
}

impl PortCounts {
    fn of(name: &str) -> PortCounts {
        PortCounts {
            port: name.to_owned(),
            ..PortCounts::default()
        }
    }

    /// Number of dropped frames, for all reasons.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }
}

impl TrafficCounts {
    /// Computes the traffic of a configuration's ports from counters.
    #[must_use]
    pub fn of(traffic: &Traffic, readings: &[Reading]) -> TrafficCounts {
        let mut counts = TrafficCounts {
            uplink: traffic.uplink.as_ref().map(|_| PortCounts::of(UPLINK)),
            ports: (traffic.ports.iter())
                .map(|port| PortCounts::of(&port.name))
                .collect(),
            drops: BTreeMap::new(),
        };
        let stems = traffic.ports.iter().enumerate();
        let stems: BTreeMap<String, usize> = stems.map(|(at, port)| (port.stem(), at)).collect();
        for reading in readings.iter().filter(|reading| reading.value > 0) {
            counts.add(reading, &stems);
        }
        let values = readings.iter();
        let values: BTreeMap<&str, u64> = values
            .map(|reading| (&*reading.name, reading.value))
            .collect();
        let state_of = |app: &str| {
            let value = |name: &str| values.get(&*format!("{app}/{name}")).copied();
            state(value)
        };
        for (port, counts) in traffic.ports.iter().zip(&mut counts.ports) {
            counts.state = state_of(&app_name(&port.stem(), step::PORT));
        }
        if let Some(uplink) = &mut counts.uplink {
            uplink.state = state_of(UPLINK);
        }
        counts
    }

    fn add(&mut self, reading: &Reading, stems: &BTreeMap<String, usize>) {
        let Some((of, what)) = reading.name.rsplit_once('/') else {
            return;
        };
        if let Ok(link) = of.parse::<LinkName>() {
            return self.add_link(&link, what, reading.value, stems);
        }
        let Some((_, reason)) = reading.dropped() else {
            return;
        };
        match self.owner(of, stems) {
            Some((port, step)) => {
                drop_for(&mut port.drops, &reason_at(step, reason), reading.value)
            }
            None => drop_for(&mut self.drops, reason, reading.value),
        }
    }

    fn add_link(
        &mut self,
        link: &LinkName,
        what: &str,
        value: u64,
        stems: &BTreeMap<String, usize>,
    ) {
        let is_drop = what == "drops";
        if let Some((port, step::PORT)) = self.owner(&link.from.app, stems) {
            match what {
                // The link dropped these frames after they had come from the port.
                "packets" | "drops" => port.from_packets += value,
                "bytes" => port.from_bytes += value,
                _ => {}
            }
        }
        if let Some((port, step::PORT)) = self.owner(&link.to.app, stems) {
            match what {
                "packets" => port.to_packets += value,
                "bytes" => port.to_bytes += value,
                _ => {}
            }
        }
        if !is_drop {
            return;
        }
        let ends = [&link.from.app, &link.to.app];
        // The links between uplink and mux belong to the uplink.
        let end = ends.into_iter().find(|end| *end != MUX);
        match end.and_then(|end| self.owner(end, stems)) {
            Some((port, _)) => drop_for(&mut port.drops, LINK_FULL, value),
            None => drop_for(&mut self.drops, LINK_FULL, value),
        }
    }

    /// The port that an app belongs to, and the app's step.
    fn owner<'a>(
        &mut self,
        app: &'a str,
        stems: &BTreeMap<String, usize>,
    ) -> Option<(&mut PortCounts, &'a str)> {
        if app == UPLINK {
            return self.uplink.as_mut().map(|uplink| (uplink, step::PORT));
        }
        let (stem, step) = app.rsplit_once('_')?;
        let at = stems.get(stem)?;
        Some((&mut self.ports[*at], step))
    }
}

const LINK_FULL: &str = "link_full";

fn drop_for(drops: &mut BTreeMap<String, u64>, reason: &str, value: u64) {
    *drops.entry(reason.to_owned()).or_default() += value;
}

/// A drop reason under the name of the field in the file that causes it.
fn reason_at(step: &str, reason: &str) -> String {
    match (step, reason) {
        (step::FILTER, "filter") => "egress_filter".to_owned(),
        (step::FILTER, "back_filter") => "ingress_filter".to_owned(),
        (step::EGRESS_RATE, "rate") => "egress_rate".to_owned(),
        (step::INGRESS_RATE, "rate") => "ingress_rate".to_owned(),
        (step::PORT, _) => reason.to_owned(),
        _ => format!("{step}_{reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::graph::port_kinds;
    use crate::traffic::{Defaults, read};

    #[test]
    fn counters_go_to_their_ports_and_reasons() {
        let text = "[uplink]\nkind = \"tap\"\nname = \"u\"\n[[ports]]\nname = \"a_b\"\n\
                    app = { kind = \"tap\", name = \"t\" }\n";
        let traffic = read(text, &Defaults::default(), &port_kinds()).unwrap();
        let readings: Vec<Reading> = [
            ("a_b_port.output -> a_b_filter.input/packets", 10),
            ("a_b_port.output -> a_b_filter.input/drops", 1),
            ("a_b_port.output -> a_b_filter.input/bytes", 640),
            ("a_b_filter.back_output -> a_b_port.input/packets", 20),
            ("mux.a_b -> a_b_filter.back_input/drops", 2),
            ("uplink.output -> mux.uplink/packets", 30),
            ("mux.uplink -> uplink.input/bytes", 90),
            ("a_b_filter/drop_filter", 3),
            ("a_b_filter/drop_back_filter", 4),
            ("a_b_rxrate/drop_rate", 5),
            ("a_b_rxrate/drop_rate_bytes", 500),
            ("a_b_port/drop_down", 6),
            ("a_b_tunnel/drop_cookie", 7),
            ("mux/drop_other_station", 8),
            ("mux/flooded", 9),
            ("uplink/drop_missed", 11),
            ("uplink/is_up", 1),
            ("a_b_port/is_up", 0),
            ("gone_port/drop_down", 12),
        ]
        .map(|(name, value)| Reading {
            name: name.to_owned(),
            changes: 1,
            value,
        })
        .into();
        let counts = TrafficCounts::of(&traffic, &readings);
        let port = &counts.ports[0];
        assert_eq!((port.from_packets, port.from_bytes), (11, 640));
        assert_eq!(port.to_packets, 20);
        let drops: Vec<(&str, u64)> = port
            .drops
            .iter()
            .map(|(reason, count)| (reason.as_str(), *count))
            .collect();
        let wanted = [
            ("down", 6),
            ("egress_filter", 3),
            ("ingress_filter", 4),
            ("ingress_rate", 5),
            ("link_full", 3),
            ("tunnel_cookie", 7),
        ];
        assert_eq!(drops, wanted);
        let uplink = counts.uplink.unwrap();
        assert_eq!((uplink.from_packets, uplink.to_bytes), (30, 90));
        assert_eq!(uplink.drops["missed"], 11);
        assert_eq!(uplink.state, None);
        let state = counts.ports[0].state.as_deref();
        assert_eq!(state, Some("the interface is down, or does not exist"));
        assert_eq!(counts.drops["other_station"], 8);
        assert_eq!(counts.drops["down"], 12);
    }
}
