//! The report of a network as text: its nodes and links, and the words for their states.

use carina_text::table::{Table, short};
use carina_vnet::host_part::{LinkState, NodeState};
use carina_vnet::report::{LinkPath, LinkReport, VnetReport, VnetState};

use crate::Shared;
use crate::failure::Outcome;
use crate::report::{print_json, print_line};

/// Prints the report of a network, as text or JSON.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn show_report(shared: &Shared, report: &VnetReport) -> Outcome {
    if shared.json {
        print_json(report)
    } else {
        print_line(report_text(report))
    }
}

fn report_text(report: &VnetReport) -> String {
    let mut text = format!("{}: {}", report.name, state_word(report.state));
    if let Some(ms) = report.ready_after_ms {
        text.push_str(&format!(", ready after {} s", short(ms / 1000.0)));
    }
    let phases = report.phases.iter();
    let phases = phases.map(|timed| {
        let seconds = short(timed.took_ms / 1000.0);
        format!("{} {seconds} s", timed.phase.name())
    });
    text.push_str(&format!(" ({})\n", phases.collect::<Vec<_>>().join(", ")));
    for obstacle in &report.obstacles {
        text.push_str(&format!("  {obstacle}\n"));
    }
    format!("{text}\n{}", parts_text(report))
}

/// The nodes and links of a network as two tables.
pub(super) fn parts_text(report: &VnetReport) -> String {
    let mut nodes = Table::new(["NODE", "STATE", "CONSOLE", "INTERFACES"]);
    for node in &report.nodes {
        let interfaces = node.interfaces.iter().map(|interface| {
            let address6 = interface.address6.as_ref();
            let address6 = address6.map_or_else(String::new, |address6| format!(" {address6}"));
            format!("{} {}{address6}", interface.name, interface.address)
        });
        let console = if node.is_console_ready {
            "answers"
        } else {
            "-"
        };
        let interfaces: Vec<String> = interfaces.collect();
        nodes.row([
            node.name.as_str(),
            node_word(&node.state),
            console,
            &interfaces.join(", "),
        ]);
    }
    let mut links = Table::new(LINK_COLUMNS);
    for link in &report.links {
        links.row(link_cells(link));
    }
    format!("{nodes}\n\n{links}")
}

fn link_cells(link: &LinkReport) -> [String; 8] {
    let rtt = link.rtt_ns.map_or_else(
        || "-".to_owned(),
        |ns| format!("{} ms", short(ns as f64 / 1e6)),
    );
    let both = |of: fn(&carina_vnet::report::Passed) -> u64| {
        let [one, other] = &link.passed;
        format!("{} / {}", of(one), of(other))
    };
    [
        link.number.to_string(),
        link.ends.join(" -- "),
        link.rate.to_string(),
        path_word(link.path).to_owned(),
        link_word(&link.state).to_owned(),
        rtt,
        both(|passed| passed.frames),
        both(|passed| passed.dropped),
    ]
}

/// The state of a network as a word.
pub(super) fn state_word(state: VnetState) -> &'static str {
    match state {
        VnetState::Changing => "changing",
        VnetState::Ready => "ready",
        VnetState::Degraded => "degraded",
        VnetState::Failed => "failed",
    }
}

/// The state of a node as a word.
pub(super) fn node_word(state: &NodeState) -> &'static str {
    match state {
        NodeState::Absent => "absent",
        NodeState::Starting => "starts",
        NodeState::Up => "up",
        NodeState::Stopped => "stopped",
        NodeState::Failed { .. } => "failed",
        NodeState::Refused { .. } => "refused",
    }
}

/// The path of a link as a word.
fn path_word(path: Option<LinkPath>) -> &'static str {
    match path {
        Some(LinkPath::Kernel) => "kernel",
        Some(LinkPath::Engine) => "engine",
        None => "-",
    }
}

/// The state of a link as a word.
pub(super) fn link_word(state: &LinkState) -> &'static str {
    match state {
        LinkState::Absent => "absent",
        LinkState::Down { .. } => "down",
        LinkState::Up => "up",
    }
}

/// Columns of the table of links.
const LINK_COLUMNS: [&str; 8] = [
    "LINK", "ENDS", "RATE", "PATH", "STATE", "RTT", "FRAMES", "DROPPED",
];
