//! `carina vnet top`: shows live rates of the links of a network.

use carina_text::table::short;
use carina_vnet::report::{LinkReport, Passed, VnetReport};
use carina_vnet_host::client::Client;
use carina_vnet_roles::operator;
use serde::Serialize;

use super::agent::client;
use super::network::report_of;
use super::network_report::link_word;
use super::roles::operator::{OperatorArgs, only};
use crate::Shared;
use crate::commands::top::live::{Column, Live};
use crate::commands::top::{self, TopArgs};
use crate::failure::{Attempt, Failure, Outcome};

/// Options of `carina vnet top`: the network, and the interval of the rates.
#[derive(Debug, clap::Args)]
pub(crate) struct LinkTopArgs {
    /// Name of the network whose links to show [default: the only network]
    name: Option<String>,
    #[command(flatten)]
    top: TopArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Shows live rates of the links of a network, from this host's agent or from a VNO.
///
/// # Errors
/// There is no such network.
pub(super) fn run(shared: &Shared, args: &LinkTopArgs) -> Outcome {
    let name = args.name.as_deref();
    let links = match args.operator.client(shared)? {
        Some(vno) => Links {
            name: only(&vno, name)?,
            reporter: Reporter::Operator(vno),
        },
        None => Links {
            name: report_of(shared, name)?.name,
            reporter: Reporter::Agent(client(shared)),
        },
    };
    top::show(shared, &args.top, &links)
}

/// The links of a network as a source of live rates.
struct Links {
    reporter: Reporter,
    name: String,
}

/// The process that reports the links: this host's agent, or a VNO.
enum Reporter {
    Agent(Client),
    Operator(operator::Client),
}

/// Rates of one direction of a link over an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Rates {
    link: u32,
    from: String,
    to: String,
    state: &'static str,
    rate_bps: u64,
    frames_per_s: f64,
    mbps: f64,
    /// The rate as a percentage of the link's configured rate.
    load_percent: f64,
    dropped_per_s: f64,
    lost_per_s: f64,
    rtt_ms: Option<f64>,
}

impl Live for Links {
    type Sample = VnetReport;
    type Row = Rates;

    const COLUMNS: &'static [Column] = &[
        Column::new("LINK", 5),
        Column::new("FROM", 0),
        Column::new("TO", 0),
        Column::new("STATE", 6),
        Column::wide("RATE", 9),
        Column::new("FRAMES/s", 9),
        Column::new("Mbit/s", 8),
        Column::new("LOAD, %", 7),
        Column::new("DROPPED/s", 9),
        Column::wide("LOST/s", 7),
        Column::wide("RTT, ms", 8),
    ];

    fn sample(&self) -> Result<VnetReport, Failure> {
        let what = || format!("asking for network {}", self.name);
        match &self.reporter {
            Reporter::Agent(client) => client.report(&self.name).attempt(what()),
            Reporter::Operator(vno) => vno.report(&self.name).attempt(what()),
        }
    }

    fn rates(&self, before: &VnetReport, after: &VnetReport, seconds: f64) -> Vec<Rates> {
        let of_link = |link: &LinkReport| {
            let was = before.links.iter().find(|was| was.ends == link.ends);
            let was = was.map_or([Passed::default(); 2], |was| was.passed);
            [0, 1].map(|side| rates(link, side, was[side], seconds))
        };
        after.links.iter().flat_map(of_link).collect()
    }

    fn cells(row: &Rates) -> Vec<String> {
        let rtt = row.rtt_ms.map_or_else(|| "-".to_owned(), short);
        vec![
            row.link.to_string(),
            row.from.clone(),
            row.to.clone(),
            row.state.to_owned(),
            format!("{}M", short(row.rate_bps as f64 / 1e6)),
            short(row.frames_per_s),
            short(row.mbps),
            short(row.load_percent),
            short(row.dropped_per_s),
            short(row.lost_per_s),
            rtt,
        ]
    }

    fn is_marked(row: &Rates) -> bool {
        row.dropped_per_s > 0.0 || row.lost_per_s > 0.0 || row.state != "up"
    }
}

fn rates(link: &LinkReport, side: usize, was: Passed, seconds: f64) -> Rates {
    let now = link.passed[side];
    let rate = |now: u64, was: u64| now.saturating_sub(was) as f64 / seconds.max(1e-6);
    // Frames dropped by the rate limit do not count as passed.
    let frames = rate(now.frames, was.frames);
    let mbps = rate(now.bytes, was.bytes) * 8e-6;
    let rate_bps = link.rate.bps();
    Rates {
        link: link.number,
        from: link.ends[side].clone(),
        to: link.ends[1 - side].clone(),
        state: link_word(&link.state),
        rate_bps,
        frames_per_s: frames,
        mbps,
        load_percent: mbps * 1e8 / rate_bps as f64,
        dropped_per_s: rate(now.dropped, was.dropped),
        lost_per_s: rate(now.lost, was.lost),
        rtt_ms: link.rtt_ns.map(|ns| ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use carina_vnet::document::Carrier;
    use carina_vnet::host_part::LinkState;
    use carina_vnet::impairment::LinkImpairment;

    use super::*;

    #[test]
    fn rates_are_those_of_the_interval() {
        let passed = |frames, bytes, dropped| Passed {
            frames,
            bytes,
            dropped,
            lost: 0,
        };
        let link = LinkReport {
            number: 3,
            ends: ["a:eth0".into(), "b:eth0".into()],
            carrier: Carrier::Ipip,
            rate: "10Mbps".parse().unwrap(),
            path: None,
            state: LinkState::Up,
            rtt_ns: Some(2_000_000),
            passed: [passed(0, 0, 0), passed(300, 1_250_000, 30)],
            impairment: LinkImpairment::default(),
        };
        let back = rates(&link, 1, passed(100, 0, 10), 2.0);
        assert_eq!((back.from.as_str(), back.to.as_str()), ("b:eth0", "a:eth0"));
        assert_eq!((back.frames_per_s, back.mbps), (100.0, 5.0));
        assert_eq!((back.load_percent, back.dropped_per_s), (50.0, 10.0));
        assert!(Links::is_marked(&back));
        assert_eq!(Links::cells(&back).len(), Links::COLUMNS.len());
    }
}
