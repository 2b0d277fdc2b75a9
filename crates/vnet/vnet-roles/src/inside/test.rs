//! Runs the tests of a document and probes its links, with requests to nodes on any host.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use carina_api::ErrorBody;
use carina_vnet::document::{Document, Test};
use carina_vnet::host_part::{Cause, LinkState};
use carina_vnet::report::TestReport;

use super::{Answer, EndReport, Look, NodeRequest};

/// A function that sends a request and returns its answer or refusal.
pub type SendRequest<'a> = dyn Fn(NodeRequest) -> Result<Answer, ErrorBody> + Sync + 'a;

/// Probes each link from each of its ends, then runs each test of the document. A link that is
/// switched off at one of its ends is not probed, and the first test names it.
pub fn run(document: &Document, look: &Look, ask: &SendRequest<'_>) -> Vec<TestReport> {
    let mut reports = vec![probes(look, ask)];
    reports.extend(document.test.iter().map(|test| one(look, test, ask)));
    reports
}

fn probes(look: &Look, ask: &SendRequest<'_>) -> TestReport {
    let is_off = |end: &&EndReport| end.state.is_switched_off();
    let off: BTreeSet<u32> = look
        .ends
        .iter()
        .filter(is_off)
        .map(|end| end.link)
        .collect();
    let mut failed = Vec::new();
    for end in look.ends.iter().filter(|end| !off.contains(&end.link)) {
        let Some((node, interface)) = end.end.split_once(':') else {
            continue;
        };
        // The two ends of a link have the two addresses of its /30 prefix.
        let own = address_of(look, node, Some(interface));
        let Some(own) = own else {
            failed.push(format!("{} has no address", end.end));
            continue;
        };
        let to = Ipv4Addr::from(u32::from(own) ^ 3);
        if let Err(error) = echo(node, to, ask) {
            failed.push(format!("from {}: {error}", end.end));
        }
    }
    let links: BTreeSet<u32> = look.ends.iter().map(|end| end.link).collect();
    let down = look.ends.iter().filter(|end| end.state != LinkState::Up);
    let mut seen = if failed.is_empty() {
        format!("probes have passed {} links", links.len() - off.len())
    } else {
        let (failed, down) = (failed.join("; "), down.count());
        format!("{failed}; {down} ends of links are down")
    };
    for link in off {
        seen.push_str(&format!(
            "; link {link}: {}",
            Cause::Operator.words_of_link()
        ));
    }
    TestReport {
        test: "every link, both ways".to_owned(),
        holds: failed.is_empty(),
        seen,
    }
}

fn one(look: &Look, test: &Test, ask: &SendRequest<'_>) -> TestReport {
    let (test, tried) = match (&test.ping, &test.throughput) {
        (Some([from, to]), _) => (
            format!("ping {from} {to}"),
            ping(look, [from, to], test, ask),
        ),
        (_, Some([from, to])) => {
            let tried = throughput(look, [from, to], test, ask);
            (format!("throughput {from} {to}"), tried)
        }
        // A checked document has one of them.
        (None, None) => (
            String::new(),
            Err("the test has neither ping nor throughput".to_owned()),
        ),
    };
    let (holds, seen) = match tried {
        Ok((holds, seen)) => (holds, seen),
        Err(error) => (false, error),
    };
    TestReport { test, holds, seen }
}

fn ping(
    look: &Look,
    [from, to]: [&str; 2],
    test: &Test,
    ask: &SendRequest<'_>,
) -> Result<(bool, String), String> {
    let address = address_of(look, to, None).ok_or_else(|| format!("{to} has no interface"))?;
    let rtt_ns = echo(from, address, ask)?;
    let rtt_max = test.rtt_max.map(|span| span.duration().as_nanos());
    let seen = format!("{:.3} ms", rtt_ns as f64 / 1e6);
    Ok((rtt_max.is_none_or(|rtt_max| rtt_ns <= rtt_max), seen))
}

fn throughput(
    look: &Look,
    [from, to]: [&str; 2],
    test: &Test,
    ask: &SendRequest<'_>,
) -> Result<(bool, String), String> {
    let address = address_of(look, to, None).ok_or_else(|| format!("{to} has no interface"))?;
    let limit_ms = ms(STREAM_LIMIT);
    let arrived = std::thread::scope(|scope| {
        let takes = scope.spawn(|| {
            ask(NodeRequest::Receive {
                node: to.to_owned(),
                port: STREAM_PORT,
                limit_ms: limit_ms + ms(STREAM),
            })
        });
        ask(NodeRequest::Send {
            node: from.to_owned(),
            to: SocketAddrV4::new(address, STREAM_PORT),
            time_ms: ms(STREAM),
            limit_ms,
        })
        .map_err(|refusal| refusal.message)?;
        let taken = takes.join();
        let taken = taken.map_err(|_| "the receiver of the stream has ended".to_owned())?;
        taken.map_err(|refusal| refusal.message)
    })?;
    let Answer::Arrived { bytes, time_ns } = arrived else {
        return Err("something else was answered".to_owned());
    };
    let bps = bytes as f64 * 8.0 / (time_ns as f64 / 1e9).max(1e-3);
    let least = test.rate_min.map_or(0.0, |rate| rate.bps() as f64);
    Ok((bps >= least, format!("{:.3} Mbit/s", bps / 1e6)))
}

fn echo(node: &str, to: Ipv4Addr, ask: &SendRequest<'_>) -> Result<u64, String> {
    let asked = NodeRequest::Echo {
        node: node.to_owned(),
        to,
        limit_ms: ms(PING),
    };
    match ask(asked).map_err(|refusal| refusal.message)? {
        Answer::Echo { rtt_ns } => Ok(rtt_ns),
        _ => Err("something else was answered".to_owned()),
    }
}

/// The address of a node at an interface; at its first interface if none is given.
fn address_of(look: &Look, node: &str, interface: Option<&str>) -> Option<Ipv4Addr> {
    let node = look.nodes.iter().find(|candidate| candidate.name == node)?;
    let mut interfaces = node.interfaces.iter();
    let found = interfaces.find(|candidate| interface.is_none_or(|name| candidate.name == name))?;
    found.address.split('/').next()?.parse().ok()
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Longest time for an echo reply.
const PING: Duration = Duration::from_secs(30);
/// Duration of a stream, and longest time until it is accepted.
const STREAM: Duration = Duration::from_secs(3);
const STREAM_LIMIT: Duration = Duration::from_secs(30);
/// The TCP port at which a node accepts a stream.
const STREAM_PORT: u16 = 49_211;
