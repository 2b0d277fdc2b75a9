//! The links of a network as a graph of the engine.

use carina_apps::rate_limiter::RateLimiterConfig;
use carina_engine::frames::Graph;
use carina_ports::af_packet::AfPacketConfig;
use carina_vnet::document::Rate;
use carina_vnet::host_part::{Far, HostPart};

use crate::error::{Error, Result};
use crate::names::{port, port_app, rate_app};

/// The graph of a part: for each link its two ports, and a token bucket in each direction.
pub fn graph_of(part: &HostPart) -> Result<Graph> {
    let mut graph = Graph::new();
    for link in &part.links {
        if let Far::Host(far) = &link.far {
            return Err(Error::Unsupported {
                what: format!("link {} to host {}", link.number, far.host),
                instead: "both ends of a link are on one host so far",
            });
        }
        for side in [0, 1] {
            let (app, rate) = (port_app(link.number, side), rate_app(link.number, side));
            let other = port_app(link.number, 1 - side);
            graph.app(&app, AfPacketConfig::of(&port(link.number, side)));
            graph.app(&rate, limiter(link.rate));
            graph.link(&format!("{app}.output -> {rate}.input"))?;
            graph.link(&format!("{rate}.output -> {other}.input"))?;
        }
    }
    Ok(graph)
}

/// The bucket of a link: what passes at once after a pause is what its rate gives in 20 ms, and at
/// least ten frames.
fn limiter(rate: Rate) -> RateLimiterConfig {
    let bits_per_second = rate.bps().min(RATE_MAX);
    RateLimiterConfig {
        bits_per_second,
        bucket_bytes: Some((bits_per_second / 8 / 50).max(BUCKET_MIN)),
    }
}

/// The highest rate that the limiter knows; above it no machine sends.
const RATE_MAX: u64 = 1_000_000_000_000;
const BUCKET_MIN: u64 = 10 * 1514;

#[cfg(test)]
mod tests {
    use carina_engine::frames::LinkName;

    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn graph_joins_the_two_ports_of_a_link_and_no_others() {
        let graph = graph_of(&part(&["a b", "b c"])).unwrap();
        graph.check().unwrap();
        assert_eq!(graph.apps().count(), 8);
        let of = |link: &LinkName| {
            let number = |app: &str| app.split('-').next().map(str::to_owned);
            (number(&link.from.app), number(&link.to.app))
        };
        assert_eq!(graph.links().count(), 8);
        assert!(graph.links().map(of).all(|(from, to)| from == to));
        let ports = graph.apps().filter(|(_, kind)| *kind == "af_packet");
        assert_eq!(ports.count(), 4);
    }

    #[test]
    fn buckets_hold_ten_frames_at_least() {
        let of = |text: &str| limiter(text.parse().unwrap());
        assert_eq!(of("8kbps").bucket_bytes, Some(15_140));
        assert_eq!(of("1Gbps").bucket_bytes, Some(2_500_000));
        assert_eq!(of("9000000Gbps").bits_per_second, RATE_MAX);
    }
}
