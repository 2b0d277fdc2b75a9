//! Runs the tests of a document on its network.

use std::net::Ipv4Addr;
use std::time::Duration;

use carina_vnet::document::Test;
use carina_vnet::host_part::HostPart;

use crate::directory::Record;
use crate::error::Result;
use crate::probe::Asks;
use crate::vnet::Vnet;
use carina_vnet::report::TestReport;

/// Probes all links, then runs each test of the document. A link that is switched off is not
/// probed, and the first test names it.
pub(super) fn run(vnet: &Vnet, record: &Record) -> Result<Vec<TestReport>> {
    let probed = vnet.probe(&record.part, PING);
    let off = vnet.switched_off();
    let links = record.part.links.iter();
    let down = links.filter_map(|link| {
        let reason = off.reason(link)?;
        Some(format!("link {} is down: {reason}", link.number))
    });
    let down: Vec<String> = down.collect();
    let (holds, seen) = match probed {
        Err(error) => (false, error.to_string()),
        Ok(()) if down.is_empty() => (true, "probes have passed".to_owned()),
        Ok(()) => (
            true,
            format!("{}; probes have passed the other links", down.join("; ")),
        ),
    };
    let mut reports = vec![TestReport {
        test: "every link, both ways".to_owned(),
        holds,
        seen,
    }];
    let tests = record
        .document()
        .into_iter()
        .flat_map(|document| &document.test);
    reports.extend(tests.map(|test| one(vnet, &record.part, test)));
    Ok(reports)
}

fn one(vnet: &Vnet, part: &HostPart, test: &Test) -> TestReport {
    let (holds, seen, words) = match (&test.ping, &test.throughput) {
        (Some([from, to]), _) => {
            let (holds, seen) = ping(vnet, part, [from, to], test);
            (holds, seen, format!("ping {from} {to}"))
        }
        (_, Some([from, to])) => {
            let (holds, seen) = throughput(vnet, part, [from, to], test);
            (holds, seen, format!("throughput {from} {to}"))
        }
        // A checked document has one of them.
        (None, None) => (
            false,
            "the test has neither ping nor throughput".to_owned(),
            String::new(),
        ),
    };
    TestReport {
        test: words,
        holds,
        seen,
    }
}

fn ping(vnet: &Vnet, part: &HostPart, [from, to]: [&str; 2], test: &Test) -> (bool, String) {
    let echo = match (Vnet::are_in_one_dif(part, [from, to]), address_of(part, to)) {
        (true, _) => vnet.echo_by_name([from, to], PING),
        (false, Some(address)) => vnet.echo(from, address, PING, Asks::Again),
        (false, None) => return (false, format!("{to} has no interface")),
    };
    match echo {
        Err(error) => (false, error.to_string()),
        Ok(round_trip) => {
            let rtt_max = test.rtt_max.map(|span| span.duration().as_nanos());
            let is_late =
                rtt_max.is_some_and(|rtt_max| round_trip.as_nanos() > u128::from(rtt_max));
            let seen = format!("{:.3} ms", round_trip.as_secs_f64() * 1000.0);
            (!is_late, seen)
        }
    }
}

fn throughput(vnet: &Vnet, part: &HostPart, pair: [&str; 2], test: &Test) -> (bool, String) {
    let arrived = match (Vnet::are_in_one_dif(part, pair), address_of(part, pair[1])) {
        (true, _) => vnet.stream_by_name(pair, STREAM, PING),
        (false, Some(address)) => vnet.throughput(pair, address, STREAM),
        (false, None) => return (false, format!("{} has no interface", pair[1])),
    };
    match arrived {
        Err(error) => (false, error.to_string()),
        Ok(arrived) => {
            let least = test.rate_min.map_or(0.0, |rate| rate.bps() as f64);
            let seen = format!("{:.3} Mbit/s", arrived.bps() / 1e6);
            (arrived.bps() >= least, seen)
        }
    }
}

fn address_of(part: &HostPart, node: &str) -> Option<Ipv4Addr> {
    let first = part.node(node)?.interfaces.first()?;
    Some(first.address.address())
}

/// Duration of a stream.
const STREAM: Duration = Duration::from_secs(3);
/// Longest time for an answer.
const PING: Duration = Duration::from_secs(30);
