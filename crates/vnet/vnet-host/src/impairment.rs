//! Impairs links on purpose, each direction by itself.
//!
//! The document of a network may give its links impairments; they are part of the record. Operators
//! put others on top of them. Those are stored in a file beside the record, so that they last
//! across restarts of the agent until they are removed.

use std::collections::BTreeMap;

use carina_apps::impair::ImpairConfig;
use carina_frame_engine::counter_file::Reading;
use carina_frame_engine::{Graph, LinkName, PortName};
use carina_vnet::document::{Share, Span};
use carina_vnet::host_part::{HostPart, LinkPart};
use carina_vnet::impairment::{Impairment, Impairments, LinkImpairment};

use crate::directory::VnetDir;
use crate::error::{Error, Result};
use crate::graph::{rate_of, shaper};
use crate::names::{impair_app, rate_app};
use crate::port_selection::is_port_app;
use crate::state_file;

/// The configuration of the app that impairs one direction of a link, apart from the rate, which is
/// the shaper's.
fn config_of(impairment: &Impairment, seed: u64) -> ImpairConfig {
    let share =
        |share: Option<Share>| share.map_or(0.0, |share| f64::from(share.millionths()) / 1e6);
    let us = |span: Option<Span>| span.map_or(0, |span| span.duration().as_nanos() / 1000);
    ImpairConfig {
        loss: share(impairment.loss),
        duplicate: share(impairment.duplicate),
        reorder: share(impairment.reorder),
        corrupt: share(impairment.corrupt),
        delay_us: us(impairment.delay),
        jitter_us: us(impairment.jitter),
        seed,
        ..ImpairConfig::default()
    }
}

/// Checks impairments of a link.
///
/// # Errors
/// [`Error::Impairment`]: the delay or jitter exceeds a minute, the jitter exceeds the delay, or
/// frames are reordered but not delayed.
pub(crate) fn check(both: &LinkImpairment) -> Result<()> {
    let checked = both.check();
    checked.map_err(|error| Error::Impairment(error.to_string()))
}

/// The impairments of a link: the document's, overridden by those that operators have set (`all`).
pub(crate) fn of_link(link: &LinkPart, all: &Impairments) -> LinkImpairment {
    let on_top = all.get(&link.number).copied().unwrap_or_default();
    on_top.over(&link.impairment)
}

/// Inserts the apps that impair links into a network's graph. `all` are the impairments that
/// operators put on top of those of the document.
pub(crate) fn splice(graph: &mut Graph, part: &HostPart, all: &Impairments) -> Result<()> {
    for link in &part.links {
        let impaired = of_link(link, all);
        if let Err(error) = impaired.check() {
            let (number, near) = (link.number, &link.near);
            return Err(Error::Impairment(format!(
                "link {number}: {error}; with `carina vnet impair {near} --clear` the link has the \
                 impairments of its document alone"
            )));
        }
        let here = link.ends().count();
        for (side, impairment) in (0..2).filter_map(|side| Some((side, impaired.of_side(side)?))) {
            let shaper_name = rate_app(link.number, side);
            let after_shaper = PortName {
                app: shaper_name.clone(),
                port: "output".to_owned(),
            };
            let after = if side < here {
                if let Some(rate) = impairment.rate {
                    graph.app(&shaper_name, shaper(rate.min(rate_of(link))));
                }
                after_shaper
            } else {
                // The shaper of this direction is on the other host; therefore frames are impaired
                // before they reach the port.
                let into_port = |name: &&LinkName| is_port_app(&name.to.app, (link.number, 0));
                let from = graph.links().find(into_port).map(|link| link.from.clone());
                let Some(from) = from else { continue };
                match impairment.rate {
                    Some(rate) => {
                        graph.splice(&from, &shaper_name, shaper(rate))?;
                        after_shaper
                    }
                    None => from,
                }
            };
            let seed = 2 * u64::from(link.number) + side as u64;
            let name = impair_app(link.number, side);
            graph.splice(&after, &name, config_of(&impairment, seed))?;
        }
    }
    Ok(())
}

/// Frames that the apps of a network's engine have dropped, by app.
#[derive(Debug)]
pub(crate) struct Drops(BTreeMap<String, u64>);

impl Drops {
    /// The drops according to the counters of the engine.
    pub(crate) fn of(counters: &[Reading]) -> Drops {
        let mut all = BTreeMap::new();
        for reading in counters {
            if let Some((app, _)) = reading.dropped() {
                *all.entry(app.to_owned()).or_default() += reading.value;
            }
        }
        Drops(all)
    }

    /// Frames that one app has dropped.
    pub(crate) fn of_app(&self, app: &str) -> u64 {
        self.0.get(app).copied().unwrap_or(0)
    }
}

/// Reads the impairments of a network; none if the file does not exist.
pub(crate) fn read(dir: &VnetDir) -> Result<Impairments> {
    Ok(state_file::read(&dir.impairments())?.unwrap_or_default())
}

/// Writes the impairments of a network.
pub(crate) fn write(dir: &VnetDir, all: &Impairments) -> Result<()> {
    state_file::write(&dir.impairments(), all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::far_flow::Flows;
    use crate::graph::graph_of;
    use crate::port_selection::PortSelection;
    use crate::steps::tests::part;
    use carina_vnet::host_part::{Far, FarHost};

    #[test]
    fn one_direction_of_one_link_is_impaired() {
        let part = part(&["a b", "b c"]);
        let (flows, ports) = (Flows::new(), PortSelection::default());
        let mut graph = graph_of(&part, None, &flows, &ports, &BTreeSet::new()).unwrap();
        let back = Some(Impairment {
            loss: "1%".parse().ok(),
            ..Impairment::default()
        });
        let all = [(1, LinkImpairment { there: None, back })].into();
        splice(&mut graph, &part, &all).unwrap();
        graph.check().unwrap();
        let impaired: Vec<&str> = graph
            .apps()
            .filter(|(_, kind)| *kind == "impair")
            .map(|(name, _)| name)
            .collect();
        assert_eq!(impaired, ["l1-1-impair"]);
        let path: Vec<String> = graph
            .links()
            .filter(|link| link.from.app.starts_with("l1-1"))
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            path,
            [
                "l1-1.output -> l1-1-rate.input",
                "l1-1-impair.output -> l1-0.input",
                "l1-1-rate.output -> l1-1-impair.input",
            ]
        );
    }

    fn part_with_a_flow() -> HostPart {
        let mut part = part(&["a b dif"]);
        part.links[0].far = Far::Host(FarHost {
            host: "h2".to_owned(),
            local: [192, 0, 2, 1].into(),
            remote: [192, 0, 2, 2].into(),
        });
        part
    }

    #[test]
    fn rate_that_impairs_is_shaped_in_both_directions() {
        let slow = Some(Impairment {
            rate: "1Mbps".parse().ok(),
            ..Impairment::default()
        });
        let (there, back) = (slow, slow);
        let all: Impairments = [(0, LinkImpairment { there, back })].into();
        for part in [part(&["a b"]), part_with_a_flow()] {
            let mut graph = graph_of(
                &part,
                None,
                &Flows::new(),
                &PortSelection::default(),
                &BTreeSet::new(),
            )
            .unwrap();
            splice(&mut graph, &part, &all).unwrap();
            graph.check().unwrap();
            let shapers = graph.apps().filter(|(_, kind)| *kind == "shaper");
            let shapers: Vec<&str> = shapers.map(|(name, _)| name).collect();
            assert_eq!(shapers, ["l0-0-rate", "l0-1-rate"]);
            let into_port = graph.links().filter(|link| link.to.app == "l0-0");
            let from: Vec<&str> = into_port.map(|link| link.from.app.as_str()).collect();
            assert_eq!(from, ["l0-1-impair"]);
        }
    }

    #[test]
    fn what_comes_from_another_host_is_impaired_before_the_port() {
        let part = part_with_a_flow();
        let mut graph = graph_of(
            &part,
            None,
            &Flows::new(),
            &PortSelection::default(),
            &BTreeSet::new(),
        )
        .unwrap();
        let both = Some(Impairment {
            loss: "1%".parse().ok(),
            ..Impairment::default()
        });
        let all = [(
            0,
            LinkImpairment {
                there: both,
                back: both,
            },
        )];
        splice(&mut graph, &part, &all.into()).unwrap();
        graph.check().unwrap();
        let mut path: Vec<String> = graph.links().map(ToString::to_string).collect();
        path.sort();
        assert_eq!(
            path,
            [
                "l0-0-impair.output -> l0-flow.input",
                "l0-0-rate.output -> l0-0-impair.input",
                "l0-0.output -> l0-0-rate.input",
                "l0-1-impair.output -> l0-0.input",
                "l0-flow.output -> l0-1-impair.input",
            ]
        );
    }

    #[test]
    fn impossible_impairments_are_refused_with_words() {
        let jitter = one_way(Impairment {
            jitter: "5ms".parse().ok(),
            delay: "1ms".parse().ok(),
            ..Impairment::default()
        });
        let error = check(&jitter).unwrap_err().to_string();
        assert!(error.contains("at most the delay"), "{error}");
        let late = one_way(Impairment {
            delay: "1h".parse().ok(),
            ..Impairment::default()
        });
        let error = check(&late).unwrap_err().to_string();
        assert!(error.contains("delay is 1h"), "{error}");
    }

    fn one_way(impairment: Impairment) -> LinkImpairment {
        LinkImpairment {
            there: Some(impairment),
            back: None,
        }
    }

    #[test]
    fn links_have_impairments_of_the_document_and_of_operators() {
        let mut part = part(&["a b"]);
        part.links[0].impairment = one_way(Impairment {
            delay: "10ms".parse().ok(),
            jitter: "2ms".parse().ok(),
            ..Impairment::default()
        });
        let graph = |all: &Impairments| {
            let (flows, ports) = (Flows::new(), PortSelection::default());
            let mut graph = graph_of(&part, None, &flows, &ports, &BTreeSet::new()).unwrap();
            splice(&mut graph, &part, all).map(|()| graph)
        };
        let made = graph(&Impairments::new()).unwrap();
        let impaired = made.apps().filter(|(_, kind)| *kind == "impair");
        let impaired: Vec<&str> = impaired.map(|(name, _)| name).collect();
        assert_eq!(impaired, ["l0-0-impair"]);
        let lossy = one_way(Impairment {
            loss: "1%".parse().ok(),
            ..Impairment::default()
        });
        let both = of_link(&part.links[0], &[(0, lossy)].into());
        let words = "delay=10ms jitter=2ms loss=1% from its first end, none from its second";
        assert_eq!(both.to_string(), words);
        // The operator's delay is too short for the document's jitter.
        let short = one_way(Impairment {
            delay: "1ms".parse().ok(),
            ..Impairment::default()
        });
        let error = graph(&[(0, short)].into()).unwrap_err().to_string();
        assert!(error.contains("link 0: jitter is 2ms"), "{error}");
        assert!(error.contains("impair a:eth0 --clear"), "{error}");
    }

    #[test]
    fn impairments_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let dir = VnetDir::at(directory.path());
        assert!(read(&dir).unwrap().is_empty());
        let forward = Some(Impairment {
            delay: "20ms".parse().ok(),
            rate: "1Mbps".parse().ok(),
            ..Impairment::default()
        });
        let all = [(
            3,
            LinkImpairment {
                there: forward,
                back: None,
            },
        )]
        .into();
        write(&dir, &all).unwrap();
        assert_eq!(read(&dir).unwrap(), all);
    }
}
