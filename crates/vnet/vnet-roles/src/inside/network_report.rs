//! A network as its operator sees it: the request, and what its hosts report, in the names of the
//! document.

use std::collections::BTreeMap;

use carina_vnet::document::{Document, ResolvedNode};
use carina_vnet::host_part::{
    EndPart, Far, HostPart, LinkPart, LinkState, NodePart, NodeState, VnetId,
};
use carina_vnet::impairment::LinkImpairment;
use carina_vnet::layout::Layout;
use carina_vnet::report::{InterfaceReport, LinkReport, NodeReport, Passed, VnetReport, VnetState};
use carina_vnet::vno::Seen;

use super::{EndReport, Look};

/// The report of a network with its nodes and links, as far as its hosts have reported them. `look`
/// is `None` if the network is not made.
#[must_use]
pub fn report(seen: &Seen, document: &Document, look: Option<&Look>) -> VnetReport {
    let document = document.extended();
    let told = look.and_then(|look| look.layout.as_deref());
    let layout = match told {
        Some(layout) => layout.clone(),
        // The layout that the first provider of a network chooses.
        None => Layout::of(&document, &Layout::default()),
    };
    let standing = &seen.standing;
    let reason = standing
        .reason
        .as_ref()
        .map(|reason| reason.message.clone());
    let (state, obstacles) = match (standing.is_ready(), standing.is_refused) {
        (true, _) => (VnetState::Ready, Vec::new()),
        (_, true) => (VnetState::Failed, reason.into_iter().collect()),
        _ => (VnetState::Changing, reason.into_iter().collect()),
    };
    VnetReport {
        name: seen.name.clone(),
        vnet: seen.vnet,
        generation: seen.generation,
        state,
        obstacles,
        nodes: nodes_of(seen.vnet, &document, &layout, look),
        links: links_of(&document, &layout, look),
        phases: Vec::new(),
        ready_after_ms: None,
    }
}

/// The whole network as if it were on one host: nodes with interfaces and routes, and links with
/// both ends.
#[must_use]
pub fn whole(vnet: VnetId, document: &Document, layout: &Layout) -> HostPart {
    let document = document.extended();
    let mut routes = layout.routes();
    let nodes = resolved(&document).map(|(name, node)| NodePart {
        interfaces: layout.interfaces(vnet, name),
        routes: routes.remove(name).unwrap_or_default(),
        routes6: Vec::new(),
        name: name.to_owned(),
        kind: node.kind,
        image: node.image,
        cpus: node.cpus,
        memory_mib: node.memory,
        boot: node.boot,
        founder: None,
        has_loop: layout.has_loop(name),
        start: node.start,
    });
    let links = layout.links().filter_map(|(number, laid)| {
        let link = document.link.get(laid.place)?;
        let [near, far] = laid.ends.clone();
        Some(LinkPart {
            number,
            tag: number,
            carrier: link.carrier,
            rate: link.rate,
            near,
            far: Far::Here(far),
            path: link.path,
            impairment: link.impairment(),
            timetable: link.timetable(),
        })
    });
    HostPart {
        vnet,
        name: document.vnet.name.clone(),
        generation: 0,
        links: links.collect(),
        nodes: nodes.collect(),
    }
}

fn resolved(document: &Document) -> impl Iterator<Item = (&str, ResolvedNode)> {
    let names = document.node.keys();
    names.filter_map(|name| Some((name.as_str(), document.resolved(name)?)))
}

fn nodes_of(
    vnet: VnetId,
    document: &Document,
    layout: &Layout,
    look: Option<&Look>,
) -> Vec<NodeReport> {
    let told = look.into_iter().flat_map(|look| &look.nodes);
    let told: BTreeMap<&str, &NodeReport> = told.map(|node| (node.name.as_str(), node)).collect();
    let node = |(name, wanted): (&str, ResolvedNode)| {
        let position = document.node.get(name).and_then(|node| node.position);
        if let Some(node) = told.get(name) {
            return NodeReport {
                position,
                state: node.state.for_operators(),
                ..(*node).clone()
            };
        }
        let interfaces = layout.interfaces(vnet, name);
        let interfaces = interfaces.iter().map(InterfaceReport::from);
        NodeReport {
            name: name.to_owned(),
            kind: wanted.kind,
            // The state of a node whose host is silent.
            state: NodeState::Absent,
            is_console_ready: false,
            interfaces: interfaces.collect(),
            position,
        }
    };
    resolved(document).map(node).collect()
}

fn links_of(document: &Document, layout: &Layout, look: Option<&Look>) -> Vec<LinkReport> {
    let told = look.into_iter().flat_map(|look| &look.ends);
    let told: BTreeMap<&str, &EndReport> = told.map(|end| (end.end.as_str(), end)).collect();
    let mut links = Vec::new();
    for (number, laid) in layout.links() {
        let Some(wanted) = document.link.get(laid.place) else {
            continue;
        };
        let ends = [0, 1].map(|side| laid.ends[side].to_string());
        let seen = [0, 1].map(|side| told.get(ends[side].as_str()).copied());
        links.push(LinkReport {
            number,
            carrier: wanted.carrier,
            rate: wanted.rate,
            path: None,
            state: state_of(&seen),
            rtt_ns: seen.iter().flatten().find_map(|end| end.rtt_ns),
            passed: seen.map(|end| end.map_or(Passed::default(), |end| end.sent)),
            impairment: LinkImpairment {
                there: seen[0].and_then(|end| end.impairment),
                back: seen[1].and_then(|end| end.impairment),
            },
            ends,
        });
    }
    let users = layout.access().map(|(number, laid)| {
        let point = format!("users at {}", laid.name);
        (number, &laid.end, point)
    });
    let cards = layout.nics().map(|(number, laid)| {
        // The operator must not see the name of the host's card.
        (number, &laid.end, "a card".to_owned())
    });
    for (number, near, far) in users.chain(cards) {
        links.extend(outer(number, near, far, &told));
    }
    links.sort_by_key(|link| link.number);
    links
}

/// The report of a link whose other end is not a node.
fn outer(
    number: u32,
    near: &EndPart,
    far: String,
    told: &BTreeMap<&str, &EndReport>,
) -> Option<LinkReport> {
    let near = near.to_string();
    let seen = told.get(near.as_str())?;
    Some(LinkReport {
        number,
        ends: [near, far],
        carrier: seen.carrier,
        rate: seen.rate,
        path: None,
        state: seen.state.for_operators(),
        rtt_ns: seen.rtt_ns,
        passed: [seen.sent, seen.received.unwrap_or_default()],
        impairment: LinkImpairment {
            there: seen.impairment,
            back: None,
        },
    })
}

/// The state of a link from the states of its ends: up if both are up, down if one is down. If the
/// operator has switched the link off at one end, that is the reason reported, because the other
/// end only finds that no probe passes.
fn state_of(ends: &[Option<&EndReport>; 2]) -> LinkState {
    let states = ends.iter().flatten().map(|end| &end.state);
    let is_down = |state: &&LinkState| matches!(state, LinkState::Down { .. });
    let off = states.clone().find(|state| state.is_switched_off());
    match (off.or_else(|| states.clone().find(is_down)), ends) {
        (Some(down), _) => down.for_operators(),
        (None, [Some(one), Some(other)]) if one.state == other.state => one.state.clone(),
        _ => LinkState::Absent,
    }
}

#[cfg(test)]
mod tests {
    use carina_vnet::document::{Carrier, Form};
    use carina_vnet::host_part::Cause;
    use carina_vnet::message::Standing;

    use super::*;

    fn document() -> Document {
        let text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[node.c]\n\
                    [[link]]\nends = [\"b\", \"a\"]\nrate = \"1Mbps\"\n\
                    [[link]]\nends = [\"b\", \"c\"]\nrate = \"2Mbps\"\n";
        Document::read(text, Form::Toml).unwrap()
    }

    fn seen() -> Seen {
        Seen {
            vnet: VnetId::new(1),
            name: "x".into(),
            generation: 1,
            standing: Standing::default(),
        }
    }

    fn end(end: &str, frames: u64) -> EndReport {
        EndReport {
            link: 0,
            end: end.into(),
            carrier: Carrier::Gre,
            rate: "1Mbps".parse().unwrap(),
            state: LinkState::Up,
            rtt_ns: Some(5),
            sent: Passed {
                frames,
                ..Passed::default()
            },
            received: None,
            impairment: None,
        }
    }

    #[test]
    fn links_have_their_ends_in_the_order_of_the_document() {
        let layout = Layout::of(&document(), &Layout::default());
        let look = Look {
            ends: vec![end("a:eth0", 1), end("b:eth0", 2), end("b:eth1", 3)],
            layout: Some(Box::new(layout)),
            ..Look::default()
        };
        let report = report(&seen(), &document(), Some(&look));
        assert_eq!(report.nodes.len(), 3);
        let [first, second] = &report.links[..] else {
            panic!("{report:?}");
        };
        assert_eq!(first.ends, ["b:eth0", "a:eth0"]);
        assert_eq!(first.passed.map(|passed| passed.frames), [2, 1]);
        assert_eq!(first.state, LinkState::Up);
        // The host of the other end has not reported.
        assert_eq!(second.ends, ["b:eth1", "c:eth0"]);
        assert_eq!(second.state, LinkState::Absent);
    }

    #[test]
    fn link_to_a_stopped_node_elsewhere_is_switched_off() {
        let down = |cause: Cause| LinkState::Down {
            reason: "of the host".into(),
            cause,
        };
        let with = |name: &str, state: LinkState| EndReport {
            state,
            ..end(name, 1)
        };
        let layout = Layout::of(&document(), &Layout::default());
        let look = Look {
            ends: vec![
                with("b:eth0", down(Cause::Silent)),
                with("a:eth0", down(Cause::Operator)),
                with("b:eth1", down(Cause::Silent)),
                with("c:eth0", LinkState::Up),
            ],
            layout: Some(Box::new(layout)),
            ..Look::default()
        };
        let report = report(&seen(), &document(), Some(&look));
        let states = report.links.iter().map(|link| link.state.clone());
        let causes = states.map(|state| match state {
            LinkState::Down { cause, .. } => Some(cause),
            _ => None,
        });
        let causes: Vec<Option<Cause>> = causes.collect();
        assert_eq!(causes, [Some(Cause::Operator), Some(Cause::Silent)]);
    }

    #[test]
    fn network_that_is_not_made_shows_what_is_wanted() {
        let report = report(&seen(), &document(), None);
        assert_eq!(report.state, VnetState::Changing);
        assert!(
            report
                .nodes
                .iter()
                .all(|node| node.state == NodeState::Absent)
        );
        assert_eq!(report.links[1].ends, ["b:eth1", "c:eth0"]);
        let layout = Layout::of(&document(), &Layout::default());
        whole(VnetId::new(1), &document(), &layout).check().unwrap();
    }
}
