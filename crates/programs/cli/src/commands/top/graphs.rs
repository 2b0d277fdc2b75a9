//! Rows of `carina top` for graphs of apps: what their links carry, and what their apps drop.

use std::collections::BTreeMap;
use std::path::Path;

use carina_frame_engine::counter_file::{Reading, read};
use carina_ports::state::state;

use super::Rates;
use crate::graph_directory::entries;

/// The counters of one graph at one moment.
pub(super) struct GraphSample {
    name: String,
    readings: Vec<Reading>,
}

/// Reads the counters of all graphs that run below a run directory. Skips files that cannot be
/// read: their graphs are just starting or ending.
pub(super) fn running_graphs(run: &Path) -> Vec<GraphSample> {
    let graphs = entries(run).into_iter();
    graphs
        .filter_map(|graph| {
            Some(GraphSample {
                readings: read(&graph.counters).ok()?,
                name: graph.name,
            })
        })
        .collect()
}

/// One row for each link, and one for each app that has counted something or has a state to show.
pub(super) fn rates(before: &[GraphSample], after: &[GraphSample], seconds: f64) -> Vec<Rates> {
    let of_graph = |(number, graph): (usize, &GraphSample)| {
        let mut owners: BTreeMap<&str, Vec<&Reading>> = BTreeMap::new();
        for reading in &graph.readings {
            if let Some((owner, _)) = reading.name.rsplit_once('/') {
                owners.entry(owner).or_default().push(reading);
            }
        }
        let old = before.iter().find(|old| old.name == graph.name);
        let rows = owners.into_iter().map(|(owner, readings)| {
            let mut row = row(number, graph, old, owner, &readings, seconds);
            row.state = state_of(owner, &readings);
            row
        });
        // An app without counts and without a state has nothing to show.
        rows.filter(|row| row.state.is_some() || row.kind == LINK || !row.totals.is_empty())
            .collect::<Vec<_>>()
    };
    after.iter().enumerate().flat_map(of_graph).collect()
}

/// Why an app that is a port carries no frames, as text; `None` if it carries them.
fn state_of(owner: &str, readings: &[&Reading]) -> Option<String> {
    let is_it = |reading: &Reading, name: &str| reading.name[owner.len() + 1..] == *name;
    state(|name| {
        let found = readings.iter().find(|reading| is_it(reading, name));
        found.map(|reading| reading.value)
    })
}

fn row(
    number: usize,
    graph: &GraphSample,
    old: Option<&GraphSample>,
    owner: &str,
    readings: &[&Reading],
    seconds: f64,
) -> Rates {
    let what = |reading: &Reading| reading.name[owner.len() + 1..].to_owned();
    let rate = |wanted: &str| {
        let now = readings.iter().find(|reading| what(reading) == wanted);
        let Some(now) = now else { return 0.0 };
        let is_same = |was: &&Reading| was.name == now.name && was.changes == now.changes;
        let was = old.and_then(|old| old.readings.iter().find(is_same));
        let gone = now.value.wrapping_sub(was.map_or(0, |was| was.value));
        gone as f64 / seconds.max(1e-6)
    };
    let is_link = owner.contains(" -> ");
    let is_drop = |reading: &&&Reading| what(reading) == "drops" || reading.dropped().is_some();
    let drops = readings.iter().filter(is_drop);
    Rates {
        kind: if is_link { LINK } else { APP },
        id: number as u64,
        name: format!("{}: {owner}", graph.name),
        state: None,
        sdus_in_per_s: rate("packets"),
        mbps_in: rate("bytes") * 8e-6,
        sdus_out_per_s: 0.0,
        mbps_out: 0.0,
        doorbells_per_s: 0.0,
        drops: drops.map(|reading| reading.value).sum(),
        totals: readings
            .iter()
            .filter(|reading| reading.value > 0)
            .map(|reading| (what(reading), reading.value))
            .collect(),
    }
}

const LINK: &str = "link";
const APP: &str = "app";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_rates_and_apps_their_drops() {
        let graph = |packets, bytes| {
            let reading = |name: &str, value| Reading {
                name: name.to_owned(),
                changes: 1,
                value,
            };
            GraphSample {
                name: "g.toml".to_owned(),
                readings: vec![
                    reading("a.o -> b.i/packets", packets),
                    reading("a.o -> b.i/bytes", bytes),
                    reading("a.o -> b.i/drops", 3),
                    reading("b/drop_short", 4),
                    reading("b/drop_short_bytes", 240),
                    reading("b/answered", 9),
                    reading("idle/drop_short", 0),
                    reading("web_port/is_connected", 0),
                ],
            }
        };
        let rows = rates(&[graph(100, 1000)], &[graph(300, 251_000)], 2.0);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[2].name, "g.toml: web_port");
        let state = rows[2].state.as_deref();
        assert_eq!(state, Some("no QEMU has connected to the socket"));
        assert!(
            rows[2]
                .named()
                .ends_with("web_port: no QEMU has connected to the socket")
        );
        assert_eq!(
            (rows[0].kind, rows[0].name.as_str()),
            ("link", "g.toml: a.o -> b.i")
        );
        assert_eq!(
            (rows[0].sdus_in_per_s, rows[0].mbps_in, rows[0].drops),
            (100.0, 1.0, 3)
        );
        assert_eq!(
            (rows[1].kind, rows[1].drops, rows[1].totals["answered"]),
            ("app", 4, 9)
        );
    }
}
