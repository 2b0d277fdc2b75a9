//! Networks all of which are on this host.

use std::collections::BTreeMap;

use carina_vnet::division::{Placement, divide};
use carina_vnet::document::Document;
use carina_vnet::host_part::VnetId;
use carina_vnet::layout::Layout;

use crate::directory::{Record, Wanted};
use crate::error::{Error, Result};

/// The record of a network all of which is on this host.
pub fn record_of(
    document: &Document,
    vnet: VnetId,
    generation: u64,
    layout: Layout,
) -> Result<Record> {
    let nodes = document.node.keys();
    let numbers = layout.links().map(|(number, _)| number);
    let placement = Placement {
        hosts: nodes.map(|node| (node.clone(), HERE.to_owned())).collect(),
        // No link leaves the host.
        tags: numbers.map(|number| (number, number)).collect(),
        outer: BTreeMap::new(),
    };
    let mut parts = divide(document, (vnet, generation), &layout, &placement)?;
    let part = parts.remove(HERE).ok_or(Error::Ended("the only host"))?;
    Ok(Record {
        vnet,
        wanted: Wanted::Here {
            document: Box::new(document.clone()),
            layout,
        },
        part,
        is_settled: false,
    })
}

/// The name of the only host.
const HERE: &str = "here";
