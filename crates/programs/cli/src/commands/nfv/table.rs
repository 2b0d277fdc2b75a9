//! Prints traffic and drops of ports, as a table or as JSON.

use std::collections::BTreeMap;

use carina_nfv::traffic::counts::{PortCounts, TrafficCounts};
use carina_text::table::{Table, short};
use serde_json::{Value, json};

/// The counts at the beginning and at the end of a period.
pub(super) struct Period<'a> {
    pub before: &'a TrafficCounts,
    pub after: &'a TrafficCounts,
    pub seconds: f64,
}

impl Period<'_> {
    /// The counts of the uplink and of each port at the beginning and at the end. A port that is
    /// new in the period begins at zero.
    fn rows(&self) -> Vec<(PortCounts, &PortCounts)> {
        let all = |counts: &TrafficCounts| -> BTreeMap<String, PortCounts> {
            let rows = counts.uplink.iter().chain(&counts.ports);
            rows.map(|row| (row.port.clone(), row.clone())).collect()
        };
        let mut old = all(self.before);
        let rows = self.after.uplink.iter().chain(&self.after.ports);
        rows.map(|row| (old.remove(&row.port).unwrap_or_default(), row))
            .collect()
    }

    fn rate(&self, before: u64, after: u64) -> f64 {
        // The counters of a port that was removed and added again start at zero.
        let count = after.checked_sub(before).unwrap_or(after);
        count as f64 / self.seconds.max(1e-9)
    }

    /// A table of the ports' rates, followed by drops by reason.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new([
            "port",
            "from port, Mpps",
            "Gb/s",
            "to port, Mpps",
            "Gb/s",
            "packets from port",
            "packets to port",
            "dropped",
        ]);
        let mpps = |before, after| short(self.rate(before, after) / 1e6);
        let gbps = |before, after| short(self.rate(before, after) * 8.0 / 1e9);
        for (old, new) in self.rows() {
            table.row([
                new.port.clone(),
                mpps(old.from_packets, new.from_packets),
                gbps(old.from_bytes, new.from_bytes),
                mpps(old.to_packets, new.to_packets),
                gbps(old.to_bytes, new.to_bytes),
                new.from_packets.to_string(),
                new.to_packets.to_string(),
                new.dropped().to_string(),
            ]);
        }
        let reasons = self.reasons();
        let mut text = table.to_string();
        for (_, new) in self.rows() {
            if let Some(state) = &new.state {
                text = format!("{}\n{}: {state}", text.trim_end(), new.port);
            }
        }
        if !reasons.is_empty() {
            text = format!("{}\n\n{reasons}", text.trim_end());
        }
        text.trim_end().to_owned()
    }

    fn reasons(&self) -> Table {
        let mut table = Table::new(["port", "dropped for", "packets", "a second"]);
        let mut add = |port: &str, old: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>| {
            for (reason, count) in new {
                let before = old.get(reason).copied().unwrap_or(0);
                let rate = short(self.rate(before, *count));
                table.row([port.to_owned(), reason.clone(), count.to_string(), rate]);
            }
        };
        for (old, new) in self.rows() {
            add(&new.port, &old.drops, &new.drops);
        }
        add("(between)", &self.before.drops, &self.after.drops);
        table
    }

    /// The table as JSON.
    pub(super) fn json(&self) -> Value {
        let row = |(old, new): &(PortCounts, &PortCounts)| {
            json!({
                "port": new.port,
                "from_packets": new.from_packets,
                "from_bytes": new.from_bytes,
                "to_packets": new.to_packets,
                "to_bytes": new.to_bytes,
                "from_pps": self.rate(old.from_packets, new.from_packets),
                "from_bps": self.rate(old.from_bytes, new.from_bytes) * 8.0,
                "to_pps": self.rate(old.to_packets, new.to_packets),
                "to_bps": self.rate(old.to_bytes, new.to_bytes) * 8.0,
                "drops": new.drops,
                "state": new.state,
            })
        };
        let rows = self.rows();
        let has_uplink = usize::from(self.after.uplink.is_some());
        let (uplink, ports) = rows.split_at(has_uplink);
        json!({
            "seconds": self.seconds,
            "uplink": uplink.first().map(row),
            "ports": ports.iter().map(row).collect::<Vec<_>>(),
            "drops": self.after.drops,
        })
    }
}
