//! `carina vnet where`: shows where nodes run on this host.

use carina_text::table::Table;
use carina_vnet_host::Vnets;
use carina_vnet_host::whereabouts::{self, Whereabouts};

use crate::Shared;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Prints where nodes run: all nodes, or those with the given name.
///
/// # Errors
/// There is no such node.
pub(super) fn run(shared: &Shared, node: Option<&str>, vnet: Option<&str>) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let vnets = Vnets::of(&shared.run_dir());
    let mut found = whereabouts::nodes(&vnets).attempt("looking for nodes")?;
    let known: Vec<String> = found.iter().map(|place| place.node.clone()).collect();
    found.retain(|place| {
        node.is_none_or(|node| place.node == node) && vnet.is_none_or(|vnet| place.vnet == vnet)
    });
    if let (Some(node), true) = (node, found.is_empty()) {
        let of = vnet.map_or_else(String::new, |vnet| format!(" of network {vnet}"));
        return Err(failed(if known.is_empty() {
            format!("there is no node {node} on this host, which has no nodes at all")
        } else {
            format!(
                "there is no node {node}{of} on this host; there are: {}",
                known.join(", ")
            )
        }));
    }
    if shared.json {
        print_json(&found)
    } else {
        print_line(table(&found))
    }
}

fn table(found: &[Whereabouts]) -> Table {
    let head = [
        "NETWORK",
        "NODE",
        "HOST",
        "KIND",
        "NAMESPACE",
        "PID",
        "PORTS",
    ];
    let mut table = Table::new(head);
    for place in found {
        let ports = place.ports.iter();
        let ports = ports.map(|(interface, port)| match place.ways.get(interface) {
            None => format!("{interface} at {port}"),
            Some(way) => format!("{interface} at {port} to {way}"),
        });
        let pid = match (place.is_there, place.pid) {
            (false, _) => "not running".to_owned(),
            (true, pid) => pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        };
        table.row([
            place.vnet.clone(),
            place.node.clone(),
            place.host.clone(),
            place.kind.word().to_owned(),
            place.namespace.clone(),
            pid,
            ports.collect::<Vec<_>>().join(", "),
        ]);
    }
    table
}
