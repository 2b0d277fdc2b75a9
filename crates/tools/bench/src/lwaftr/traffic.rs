//! Binding tables, and frames of the flows in them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use carina_apps::sink::SinkConfig;
use carina_frame_engine::Graph;
use carina_lwaftr::app::LwaftrConfig;
use carina_lwaftr::config::Rules;
use carina_lwaftr::file::{Loaded, read};
use carina_lwaftr::generate::{Plan, from_b4, from_internet};
use carina_lwaftr::monitor::Monitor;
use carina_lwaftr::table::Softwire;

use crate::engine::routes::Numbers;
use crate::error::{Error, Result};
use crate::replay::Replay;

/// The softwires and flows of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// 64 softwires of one IPv4 address, with one flow each.
    Few,
    /// 1,015,936 softwires, 64 for each IPv4 address, and 20,000 random flows.
    Million,
    /// The softwires of `Few`, with frames of several sizes.
    Imix,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Load::Few => "few",
            Load::Million => "million",
            Load::Imix => "imix",
        })
    }
}

/// Sizes of successive frames: 64, 594 and 1500 bytes with FCS, in the ratio 7 to 3 to 1.
const IMIX: [usize; 11] = [60, 590, 60, 60, 590, 60, 60, 1496, 60, 590, 60];

/// Mean of these sizes in bytes.
pub const IMIX_MEAN: u64 = {
    let (mut sum, mut at) = (0, 0);
    while at < IMIX.len() {
        sum += IMIX[at] as u64;
        at += 1;
    }
    sum / IMIX.len() as u64
};

/// Number of flows of `Million`.
const FLOWS: usize = 20_000;

/// Longest packet on either side, in bytes.
const MTU: u16 = 1500;
const ETHER: usize = 14;
const OUTER: usize = 40;

/// A configuration as text, with `addresses` IPv4 addresses and 64 softwires for each.
pub(super) fn text(addresses: u32) -> Result<String> {
    let plan = Plan {
        ipv4: Ipv4Addr::new(10, 0, 0, 0),
        addresses,
        br: Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1),
        b4: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        psid_bits: 6,
    };
    plan.text().map_err(wrong)
}

/// Number of IPv4 addresses of `Million`.
pub(super) const MANY: u32 = 15_874;

/// Configuration of the AFTR, and the frames for both sides.
pub(super) struct Traffic {
    aftr: LwaftrConfig,
    external: Replay,
    internal: Replay,
}

impl Traffic {
    /// Traffic with frames of `size` bytes on the IPv4 side, unless the load has sizes of its own.
    pub(super) fn new(load: Load, size: usize) -> Result<Traffic> {
        let addresses = match load {
            Load::Million => MANY,
            Load::Few | Load::Imix => 1,
        };
        let Loaded {
            mut config, table, ..
        } = read(&text(addresses)?, false).map_err(wrong)?;
        (config.external.mtu, config.internal.mtu) = (MTU, MTU);
        let mut softwires: Vec<Softwire> = table.softwires().collect();
        softwires.sort_by_key(|softwire| (softwire.ipv4, softwire.psid));
        let mut numbers = Numbers(5);
        let flows: Vec<Softwire> = match load {
            Load::Few => softwires,
            // A number of frames that both lengths divide.
            Load::Imix => softwires.repeat(IMIX.len()),
            Load::Million => {
                let any = |_| softwires[numbers.next() as usize % softwires.len()];
                (0..FLOWS).map(any).collect()
            }
        };
        let size_of = |at: usize| match load {
            Load::Imix => IMIX[at % IMIX.len()],
            Load::Few | Load::Million => size,
        };
        let frames = |make: fn(&Softwire, usize) -> Vec<u8>| {
            let flows = flows.iter().enumerate();
            Replay::of(flows.map(|(at, flow)| make(flow, size_of(at))).collect())
        };
        let queues = config
            .instances
            .first()
            .and_then(|instance| instance.queues.first());
        let queue = queues.ok_or_else(|| wrong("no queue"))?.clone();
        Ok(Traffic {
            external: frames(from_internet),
            internal: frames(from_b4),
            aftr: LwaftrConfig {
                config: Arc::new(config),
                table: Arc::new(table),
                queue,
                rules: Rules::RFC,
                is_stick: false,
                monitor: Monitor::None,
                share: None,
            },
        })
    }

    /// The graph with the AFTR, two sources and the sinks.
    pub(super) fn graph(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        graph
            .app("internet", self.external.clone())
            .app("b4s", self.internal.clone())
            .app("aftr", self.aftr.clone())
            .app("sink", SinkConfig {});
        for link in [
            "internet.output -> aftr.external",
            "b4s.output -> aftr.internal",
            "aftr.external -> sink.external",
            "aftr.internal -> sink.internal",
        ] {
            graph.link(link).map_err(wrong)?;
        }
        Ok(graph)
    }

    /// Average number of frames in which a packet leaves towards its B4.
    pub(super) fn fragments_per_packet(&self) -> f64 {
        let frames = self.external.frames();
        let is_long = |frame: &&Vec<u8>| frame.len() - ETHER + OUTER > usize::from(MTU);
        let long = frames.iter().filter(is_long).count();
        1.0 + long as f64 / frames.len() as f64
    }
}

pub(super) fn wrong(error: impl fmt::Display) -> Error {
    Error::Graph(error.to_string())
}
